"""Kept samples as files in a directory."""

import contextlib
import io
import os
import re
import warnings

import h5py
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.posterior import manifest as sample_manifest
from keras_mhmcmc.posterior.lock import FolderLock
from keras_mhmcmc.posterior.manifest import Manifest
from keras_mhmcmc.posterior.manifest import file_of
from keras_mhmcmc.posterior.store import base_of
from keras_mhmcmc.posterior.store import changes
from keras_mhmcmc.posterior.store import stacked

_BASE = "base.h5"
_UNFINISHED = "unfinished-"
_OURS = re.compile(r"base\.h5|manifest\.json|sample-\d{10,}\.h5")


class DirectoryStore:
    """Samples as HDF5 files, listed in `manifest.json`.

    `base.h5` has what training leaves as it is, each sample what differs from it. Every
    file is written under a temporary name, flushed to the disk and renamed, the
    sample before the manifest that lists it: whenever the process dies, the manifest
    lists whole samples only.
    """

    def __init__(self, directory):
        path = _validate.instance(
            "directory", directory, (str, os.PathLike), "the path of a folder"
        )
        self.directory = os.fspath(path)
        self._signature = None
        self._base = None
        self._lock = FolderLock(self.directory)
        self.records = []
        if os.path.exists(self._path(sample_manifest.NAME)):
            manifest = sample_manifest.read(self._path(sample_manifest.NAME))
            self._signature, self.records = manifest

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
        if list(map(file_of, on_disk.records)) != list(map(file_of, self.records)):
            raise ValueError(
                "Argument `directory` must not change between the making of this "
                "`PosteriorSamples` and `fit`. Make it anew, or choose another one. "
                f"Received: directory={self.directory!r}, which held "
                f"{len(self.records)} samples and now holds {len(on_disk.records)}"
            )
        if self.records and model.built:
            self._check_same_model(_signature(model))
        if self.records and iterations == 0:
            raise ValueError(
                "Argument `directory` must be empty for a new run, or the optimizer "
                "must have been loaded from where the run stopped. To begin that run "
                "again, remove its folder. Received: "
                f"directory={self.directory!r}, which holds {len(self.records)} "
                f"samples up to iteration {self.records[-1].iteration}, and an "
                "optimizer at iteration 0."
            )
        self._remove(filter(_is_unfinished, os.listdir(self.directory)))
        later = [record for record in self.records if record.iteration > iterations]
        if later:
            warnings.warn(
                f"The directory {self.directory!r} holds {len(later)} samples from "
                f"after iteration {iterations}, where the loaded model stands. They "
                "are removed, and `fit` draws them again.",
                stacklevel=3,
            )
            self._list(self.records[: len(self.records) - len(later)])
            self._remove(map(file_of, later))
        if model.built:
            self._prepare(model)

    def append(self, record, model):
        """Keeps the weights that `model` holds now."""
        if self._base is None:  # the model was built in its first step
            self._prepare(model)
        changed = changes(self._base, model)
        _write(self._path(file_of(record)), changed, iteration=record.iteration)
        self._list([*self.records, record])

    def revise_last(self, record):
        """Replaces what is known of the newest sample; the next write has it."""
        self.records[-1] = record

    def write(self):
        """Writes what is known of the samples."""
        if self.records:
            self._list(self.records)

    def flush(self):
        """Writes what is known of the samples, and gives the directory back."""
        try:
            self.write()
        finally:
            self._lock.release()

    def drop_first(self):
        """Forgets the oldest sample, the manifest first."""
        oldest = self.records[0]
        self._list(self.records[1:])
        self._remove([file_of(oldest)])

    def read(self, model):
        """All samples: for each of `model.weights` one array (samples, ...)."""
        self._check_same_model(_signature(model))
        common = self._read(_BASE)
        samples = []
        for record in self.records:
            name = file_of(record)
            values = common | self._read(name, iteration=record.iteration)
            self._check_weights(name, values)
            samples.append([values[i] for i in range(len(self._signature))])
        return stacked(samples)

    def _prepare(self, model):
        """Finds the weights that samples leave out; writes them before the first."""
        if self.records:
            self._check_same_model(_signature(model))
            fixed = self._read(_BASE)
            self._base = [fixed.get(i) for i in range(len(self._signature))]
        else:
            base = base_of(model)
            fixed = {i: value for i, value in enumerate(base) if value is not None}
            _write(self._path(_BASE), fixed)
            self._signature, self._base = _signature(model), base

    def _read(self, name, **attributes):
        """The arrays of one of the files, none of which may be a link elsewhere."""
        path, folder = self._path(name), os.path.realpath(self.directory)
        if os.path.dirname(os.path.realpath(path)) != folder:
            raise ValueError(
                f"The sample file {path!r} must not be a link that leads out of its "
                "folder. Put the file itself there. Received: a link to "
                f"{os.path.realpath(path)!r}"
            )
        return _read(path, **attributes)

    def _check_weights(self, name, values):
        found = [[list(values[i].shape), values[i].dtype.name] for i in sorted(values)]
        wanted = [[shape, dtype] for _, shape, dtype in self._signature]
        if sorted(values) != list(range(len(wanted))) or found != wanted:
            raise ValueError(
                f"The sample file {self._path(name)!r} must hold, with "
                f"{self._path(_BASE)!r}, weights of the shapes and types {wanted}. "
                "Restore it, or remove its entry from the manifest. Received: weights "
                f"{sorted(values)} of the shapes and types {found}"
            )

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _list(self, records):
        """Makes these the samples, on the disk first: a full one changes nothing."""
        text = sample_manifest.text_of(Manifest(self._signature, records))
        _write_whole(self._path(sample_manifest.NAME), text.encode())
        self.records = records

    def _check_same_model(self, signature):
        if signature != self._signature:
            raise ValueError(
                "Argument `directory` holds samples of another model: its weights have "
                "other names, shapes or types. Choose a new directory, or the model "
                f"that was sampled. Received: directory={self.directory!r}, with "
                f"samples of {self._signature}, and a model with {signature}"
            )

    def _remove(self, names):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # somebody else did
                os.remove(self._path(name))


def _is_unfinished(name):
    """Whether a file is what a process that died left of one of ours."""
    is_marked = name.startswith(_UNFINISHED)
    return is_marked and _OURS.fullmatch(name.removeprefix(_UNFINISHED)) is not None


def _signature(model):
    """Names, shapes and types of a model's weights, without automatic counters."""
    return [[_name_of(v), list(v.shape), v.dtype] for v in model.weights]


def _name_of(variable):
    """The name that a weight was given; Keras counts those without one."""
    is_counted = re.fullmatch(r"variable_\d+", variable.name) is not None
    return "variable" if is_counted else variable.name


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
    temporary = os.path.join(folder, f"{_UNFINISHED}{name}")
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
        f"{sample_manifest.NAME!r}."
    )
    if os.path.basename(path) == _BASE:
        remedy = (
            "Restore it from a copy: all samples need it. Without samples, remove it."
        )
    if not os.path.exists(path):
        raise ValueError(
            f"The sample file {path!r} is needed and is not there. {remedy}"
        )
    try:
        with h5py.File(path, "r") as file:
            found = {name: str(file.attrs.get(name)) for name in attributes}
            arrays = {int(name): _array(file, name) for name in file}
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The sample file {path!r} cannot be read: {error}. {remedy}"
        ) from error
    if found != {name: str(value) for name, value in attributes.items()}:
        raise ValueError(
            f"The sample file {path!r} must have {attributes}, as the manifest says. "
            f"{remedy} Received: {found}"
        )
    return arrays


def _array(file, name):
    """An array that is in the file itself, and not in another that it points to."""
    is_link = not isinstance(file.get(name, getlink=True), h5py.HardLink)
    dataset = None if is_link else file[name]
    is_array = isinstance(dataset, h5py.Dataset)
    if not is_array or dataset.external or dataset.is_virtual:
        raise ValueError(f"{name!r} in it is not an array of its own")
    return dataset[()].view(np.dtype(dataset.attrs["dtype"]))
