"""Kept samples as files in a directory."""

import contextlib
import io
import json
import os

import h5py
import numpy as np

from keras_mhmcmc.folder_lock import FolderLock
from keras_mhmcmc.sample_store import Record
from keras_mhmcmc.sample_store import base_of
from keras_mhmcmc.sample_store import changes
from keras_mhmcmc.sample_store import stacked

FORMAT = 1
_MANIFEST = "manifest.json"
_BASE = "base.h5"


class DirectoryStore:
    """Samples as HDF5 files, listed in `manifest.json`.

    `base.h5` has what training leaves as it is, each sample what differs from it. Every
    file is written under a temporary name, flushed to the disk and renamed, the
    sample before the manifest that lists it: whenever the process dies, the manifest
    lists whole samples only.
    """

    def __init__(self, directory):
        self.directory = os.fspath(directory)
        self._signature = None
        self._base = None
        self._lock = FolderLock(self.directory)
        self._files = []
        self.records = []
        if os.path.exists(self._path(_MANIFEST)):
            self._read_manifest()

    def open(self, model, iterations):
        """Readies the directory for samples of `model`, going on at `iterations`."""
        os.makedirs(self.directory, exist_ok=True)
        self._lock.acquire()
        try:
            self._ready(model, iterations)
        except BaseException:
            self._lock.release()
            raise

    def _ready(self, model, iterations):
        on_disk = DirectoryStore(self.directory)
        if on_disk._files != self._files:
            raise ValueError(
                "Argument `directory` must not change between the making of this "
                "`PosteriorSamples` and `fit`. Make it anew, or choose another one. "
                f"Received: directory={self.directory!r}, which held "
                f"{len(self._files)} samples and now holds {len(on_disk._files)}"
            )
        signature = _signature(model)
        if self._signature is not None:
            self._check_same_model(signature)
        if self.records and iterations == 0:
            raise ValueError(
                "Argument `directory` must be empty for a new run, or the optimizer "
                "must have been loaded from where the run stopped. Received: "
                f"directory={self.directory!r}, which holds {len(self.records)} "
                f"samples up to iteration {self.records[-1].iteration}, and an "
                "optimizer at iteration 0."
            )
        self._signature = signature
        self._base = self._base_for(model)
        later = [f for f, r in self._listed() if r.iteration > iterations]
        self._files = [f for f, r in self._listed() if r.iteration <= iterations]
        self.records = [r for r in self.records if r.iteration <= iterations]
        self._write_manifest()
        self._remove(later)

    def append(self, record, model):
        """Keeps the weights that `model` holds now."""
        name = f"sample-{record.iteration:010d}.h5"
        changed = changes(self._base, model)
        _write(self._path(name), changed, iteration=record.iteration)
        self._files.append(name)
        self.records.append(record)
        self._write_manifest()

    def revise_last(self, record):
        """Replaces what is known of the newest sample; the next write has it."""
        self.records[-1] = record

    def flush(self):
        """Writes what is known of the samples, at the end of a run."""
        self._write_manifest()
        self._lock.release()

    def drop_first(self):
        """Forgets the oldest sample, the manifest first."""
        oldest = self._files.pop(0)
        del self.records[0]
        self._write_manifest()
        self._remove([oldest])

    def read(self, model):
        """All samples: for each of `model.weights` one array (samples, ...)."""
        self._check_same_model(_signature(model))
        common = _read(self._path(_BASE))
        samples = []
        for name, record in self._listed():
            values = common | _read(self._path(name), iteration=record.iteration)
            self._check_shapes(name, values)
            samples.append([values[i] for i in range(len(self._signature))])
        return stacked(samples)

    def _base_for(self, model):
        """The weights that samples leave out, None for the others; writes the file."""
        if not os.path.exists(self._path(_BASE)):
            base = base_of(model)
            fixed = {i: value for i, value in enumerate(base) if value is not None}
            _write(self._path(_BASE), fixed)
            return base
        fixed = _read(self._path(_BASE))
        return [fixed.get(i) for i in range(len(self._signature))]

    def _check_shapes(self, name, values):
        found = [list(values[i].shape) for i in sorted(values)]
        wanted = [shape for _, shape, _ in self._signature]
        if sorted(values) != list(range(len(wanted))) or found != wanted:
            raise ValueError(
                f"The sample file {self._path(name)!r} must hold, with "
                f"{self._path(_BASE)!r}, weights of the shapes {wanted}. Restore it, "
                "or remove its entry from the manifest. Received: weights "
                f"{sorted(values)} of the shapes {found}"
            )

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _listed(self):
        return list(zip(self._files, self.records, strict=True))

    def _check_same_model(self, signature):
        if signature != self._signature:
            raise ValueError(
                "Argument `directory` holds samples of another model: its weights have "
                "other names, shapes or types. Choose a new directory, or the model "
                f"that was sampled. Received: directory={self.directory!r}, with "
                f"samples of {self._signature}, and a model with {signature}"
            )

    def _read_manifest(self):
        path = self._path(_MANIFEST)
        try:
            with open(path, encoding="utf-8") as file:
                manifest = json.load(file)
            if manifest["format"] > FORMAT:
                raise ValueError(
                    f"it has format {manifest['format']}, newer than {FORMAT}; update "
                    "keras_mhmcmc"
                )
            for entry in manifest["samples"]:
                name = entry["file"]
                if os.path.basename(name) != name or not name.endswith(".h5"):
                    raise ValueError(f"it lists {name!r}, which is no sample file here")
                record = Record(
                    int(entry["iteration"]),
                    _numbers(entry["log_weight"]),
                    _numbers(entry.get("energy")),
                )
                self._files.append(name)
                self.records.append(record)
            self._signature = [list(weight) for weight in manifest["weights"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"The manifest {path!r} cannot be read: {error}. Restore it from a "
                "copy, or choose a new directory."
            ) from error

    def _write_manifest(self):
        manifest = {
            "format": FORMAT,
            "weights": self._signature,
            "samples": [
                {"file": name, **record._asdict()} for name, record in self._listed()
            ],
        }
        text = json.dumps(manifest, indent=1)
        _write_whole(self._path(_MANIFEST), text.encode())

    def _remove(self, names):
        for name in names:
            os.remove(self._path(name))


def _numbers(value):
    """A number of a manifest, or a list of them; None stands for itself."""
    if value is None:
        return None
    return [float(x) for x in value] if isinstance(value, list) else float(value)


def _signature(model):
    """Names, shapes and types of a model's weights, without automatic counters."""
    return [[v.name, list(v.shape), v.dtype] for v in model.weights]


def _write(path, arrays, **attributes):
    """A file of numbered arrays, which replaces `path` once it is whole."""
    # In memory first: HDF5 reports a full disk only when it closes its file.
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs.update(attributes)
        for index, array in arrays.items():
            # HDF5 has no bfloat16: its bits are kept, and its name.
            bits = array.view("uint16") if array.dtype.kind == "V" else array
            dataset = file.create_dataset(str(index), data=bits)
            dataset.attrs["dtype"] = array.dtype.name
    _write_whole(path, content.getvalue())


def _write_whole(path, content):
    """A file with these bytes, which replaces `path` once it is on the disk."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"unfinished-{name}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise OSError(
            f"The file {path!r} could not be written: {error}. Free space on the disk, "
            "or choose another directory; all samples before it are whole, and a run "
            "that is loaded from a checkpoint goes on after them."
        ) from error


def _read(path, **attributes):
    """The numbered arrays of a file that must have these attributes."""
    remedy = (
        "Restore it from a copy; a sample can be left out by removing its entry from "
        f"{_MANIFEST!r}."
    )
    if not os.path.exists(path):
        raise ValueError(
            f"The sample file {path!r} is needed and is not there. {remedy}"
        )
    try:
        with h5py.File(path, "r") as file:
            found = {name: file.attrs.get(name) for name in attributes}
            arrays = {
                int(name): dataset[()].view(np.dtype(dataset.attrs["dtype"]))
                for name, dataset in file.items()
            }
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"The sample file {path!r} cannot be read: {error}. {remedy}"
        ) from error
    if found != attributes:
        raise ValueError(
            f"The sample file {path!r} must have {attributes}, as the manifest says. "
            f"{remedy} Received: {found}"
        )
    return arrays
