"""The store that keeps samples as files in a directory."""

import contextlib
import os
import re
from collections.abc import Iterable
from collections.abc import Mapping

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc._warn import warn
from keras_mhmcmc.posterior import files
from keras_mhmcmc.posterior import manifest as sample_manifest
from keras_mhmcmc.posterior.lock import FolderLock
from keras_mhmcmc.posterior.manifest import Manifest
from keras_mhmcmc.posterior.manifest import Signature
from keras_mhmcmc.posterior.manifest import file_of
from keras_mhmcmc.posterior.processes import Processes
from keras_mhmcmc.posterior.run import run_of
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Store
from keras_mhmcmc.posterior.store import base_of
from keras_mhmcmc.posterior.store import changes
from keras_mhmcmc.posterior.store import stacked
from keras_mhmcmc.posterior.store import values_of

_OURS = re.compile(r"base\.h5|manifest\.json|sample-\d{10,}\.h5")


class DirectoryStore(Store):
    """Samples as HDF5 files, listed in `manifest.json`.

    `base.h5` holds the weights that training does not change. Each sample holds the
    weights that differ from `base.h5`. A file is written under a temporary name,
    flushed to the disk and then renamed, and a sample is written before the manifest
    that lists it. The manifest therefore lists complete samples only, whenever the
    process dies. It has a checksum of each file, and says which run wrote them.
    """

    def __init__(self, directory: PathLike) -> None:
        path = _validate.instance(
            "directory", directory, (str, os.PathLike), "the path of a folder"
        )
        self.directory: str = os.fspath(path)
        self.signature: Signature = []
        self._base_sha256: str | None = None
        self._base: dict[int, Array] | None = None
        self._lock = FolderLock(self.directory)
        self._processes = Processes()
        self.records = []
        if os.path.exists(self._path(sample_manifest.NAME)):
            self._take(sample_manifest.read(self._path(sample_manifest.NAME)))

    def join(self, model: keras.Model) -> None:
        """Take what the first process knows of the directory.

        The directory may be out of reach for the others, and so empty.
        """
        self._processes = Processes(model)
        text = self._processes.do_in_first(lambda: self._manifest(self.records))
        if not self._processes.is_first:
            self._take(sample_manifest.parsed(text))

    def open(self, model: keras.Model, iterations: int) -> None:
        """Lock the directory, and remove samples from after `iterations`.

        Raises:
            ValueError: another process writes there, the samples there belong to
                another model, or `fit` would overwrite them.
        """
        self._processes.do_in_first(lambda: self._open_folder(model, iterations))
        self.join(model)
        try:
            if model.built:
                self._prepare(model)
        except BaseException:
            self._lock.release()
            raise

    def _open_folder(self, model: keras.Model, iterations: int) -> None:
        os.makedirs(self.directory, exist_ok=True)
        self._lock.acquire()
        try:
            self._check_unchanged()
            if self.records and model.built:
                self._check_same_model(_signature(model))
                if iterations > 0:  # or it is a new run, which is refused below
                    self._check_same_run("directory", repr(self.directory), model)
            self._remove_unfinished_and_later(iterations)
        except BaseException:
            self._lock.release()
            raise

    def append(self, record: Record, model: keras.Model) -> None:
        """Write the current weights of `model` as the newest sample."""
        self._lock.check()
        if self._base is None:  # the first step built the model
            self._prepare(model)
        values: Iterable[Array] = values_of(model)
        if self._processes.are_several:
            values = list(values)  # all processes take part
        sha256 = self._processes.do_in_first(lambda: self._write(record, values))
        self._list([*self.records, record._replace(sha256=sha256)])

    def _write(self, record: Record, values: Iterable[Array]) -> str:
        """Write the file of a sample, and return its checksum."""
        changed = changes(self._base or {}, values)
        path = self._path(file_of(record))
        return files.write(path, changed, {"iteration": record.iteration})

    def drop(self, index: int) -> None:
        """Remove one sample, from the manifest first."""
        dropped = self.records[index]
        self._list([record for record in self.records if record is not dropped])
        if self._processes.is_first:
            self._remove([file_of(dropped)])

    def write(self) -> None:
        """Write the records to the manifest."""
        if self.records:
            self._lock.check()
            self._list(self.records)

    def close(self) -> None:
        """Write the records to the manifest, and unlock the directory."""
        try:
            self.write()
        finally:
            self._lock.release()

    def read(self, model: keras.Model, length: int | None = None) -> list[Array]:
        """Return one array (samples, ...) for each of `model.weights`.

        Args:
            model: the model that was sampled.
            length: number of samples to read, the oldest ones. None reads all.

        Raises:
            ValueError: the samples belong to another model, or a file cannot be read.
        """
        self._check_same_model(_signature(model))
        base = self._read_base()
        samples = []
        for record in self.records[:length]:
            name, attributes = file_of(record), {"iteration": record.iteration}
            values = base | self._read(name, attributes, record.sha256)
            self._check_weights(name, values)
            samples.append([values[i] for i in range(len(self.signature))])
        return stacked(samples)

    def _check_unchanged(self) -> None:
        """Refuse a directory that another run wrote to since this store was made."""
        on_disk = DirectoryStore(self.directory).records
        if list(map(file_of, on_disk)) != list(map(file_of, self.records)):
            raise ValueError(
                "Argument `directory` must not change between the creation of this "
                "`PosteriorSamples` and `fit`. Create the callback again, or choose "
                f"another directory. Received: directory={self.directory!r}, which "
                f"held {len(self.records)} samples and now holds {len(on_disk)}"
            )

    def _remove_unfinished_and_later(self, iterations: int) -> None:
        if self.records and iterations == 0:
            raise ValueError(
                "Argument `directory` must be empty for a new run. To continue a run, "
                "load the model from its checkpoint. To start the run again, remove "
                f"the directory. Received: directory={self.directory!r}, which holds "
                f"{len(self.records)} samples up to iteration "
                f"{self.records[-1].iteration}, and an optimizer at iteration 0."
            )
        self._remove(filter(_is_unfinished, os.listdir(self.directory)))
        later = [record for record in self.records if record.iteration > iterations]
        if later:
            warn(
                f"The directory {self.directory!r} holds {len(later)} samples from "
                f"after iteration {iterations}, where the loaded model stands. They "
                "are removed, and `fit` draws them again."
            )
            self._write_list(self.records[: len(self.records) - len(later)])
            self._remove(map(file_of, later))

    def _prepare(self, model: keras.Model) -> None:
        """Read the base, or write it before the first sample."""
        if self.records:
            self._check_same_model(_signature(model))
            self._base = {}  # only the process that writes needs it
            self._processes.do_in_first(self._read_again)
            return
        base = base_of(model)
        self._base_sha256 = self._processes.do_in_first(
            lambda: files.write(self._path(files.BASE), base, {})
        )
        self.signature, self.run = _signature(model), run_of(model)
        self._base = base

    def _read_again(self) -> None:
        self._base = self._read_base()

    def _read_base(self) -> dict[int, Array]:
        return self._read(files.BASE, {}, self._base_sha256)

    def _read(
        self, name: str, attributes: Mapping[str, int], sha256: str | None
    ) -> dict[int, Array]:
        """Return the arrays of one of the files. A link out of the folder is refused.

        A folder from somebody else could otherwise show any file of this machine.
        """
        path, folder = self._path(name), os.path.realpath(self.directory)
        if os.path.dirname(os.path.realpath(path)) != folder:
            raise ValueError(
                f"The sample file {path!r} must not be a link that leads out of its "
                "folder. Put the file itself there. Received: a link to "
                f"{os.path.realpath(path)!r}"
            )
        return files.read(path, attributes, sha256)

    def _check_weights(self, name: str, values: Mapping[int, Array]) -> None:
        found = [[list(values[i].shape), values[i].dtype.name] for i in sorted(values)]
        wanted = [[shape, dtype] for _, shape, dtype in self.signature]
        if sorted(values) != list(range(len(wanted))) or found != wanted:
            raise ValueError(
                f"The sample file {self._path(name)!r} must hold, together with "
                f"{self._path(files.BASE)!r}, weights of shapes and types {wanted}. "
                "Restore it, or remove its entry from the manifest. Received: weights "
                f"{sorted(values)} of the shapes and types {found}"
            )

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _list(self, records: list[Record]) -> None:
        """Make `records` the samples of the store.

        The manifest comes first: if the disk is full, nothing changes.
        """
        self._processes.do_in_first(lambda: self._write_list(records))
        self.records = records

    def _write_list(self, records: list[Record]) -> None:
        """Do the work of `_list`, in the process that writes."""
        text = self._manifest(records)
        files.write_whole(self._path(sample_manifest.NAME), text.encode())
        self.records = records

    def _manifest(self, records: list[Record]) -> str:
        """Return the text of a manifest that lists `records`."""
        return sample_manifest.text_of(
            Manifest(self.signature, records, self.run, self._base_sha256)
        )

    def _take(self, manifest: Manifest) -> None:
        self.signature, self.records = manifest.signature, manifest.records
        self.run, self._base_sha256 = manifest.run, manifest.base_sha256

    def _check_same_model(self, signature: Signature) -> None:
        if signature != self.signature:
            raise ValueError(
                "Argument `directory` must not hold samples of another model, whose "
                "weights have other names, shapes or types. Choose a new directory, or "
                "use the model that was sampled. Received: "
                f"directory={self.directory!r}, with samples of {self.signature}, and "
                f"a model with {signature}"
            )

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # the user removed it
                os.remove(self._path(name))


def _is_unfinished(name: str) -> bool:
    """Return whether a process that died left this file in the middle of a write."""
    is_marked = name.startswith(files.UNFINISHED)
    return (
        is_marked and _OURS.fullmatch(name.removeprefix(files.UNFINISHED)) is not None
    )


def _signature(model: keras.Model) -> Signature:
    """Return [name, shape, dtype] of each weight, without automatic counters."""
    return [[_name_of(v), list(v.shape), v.dtype] for v in model.weights]


def _name_of(variable: keras.Variable) -> str:
    """Return the name of a weight. Keras numbers weights that were given no name."""
    is_counted = re.fullmatch(r"variable_\d+", variable.name) is not None
    return "variable" if is_counted else str(variable.name)
