"""The store that keeps samples as files in a directory."""

import contextlib
import json
import os
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc._warn import warn
from keras_mhmcmc.posterior import files
from keras_mhmcmc.posterior import manifest
from keras_mhmcmc.posterior.manifest import Manifest
from keras_mhmcmc.posterior.manifest import Signature
from keras_mhmcmc.posterior.manifest import file_of
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Store
from keras_mhmcmc.posterior.store import base_of
from keras_mhmcmc.posterior.store import changes
from keras_mhmcmc.posterior.store import run_of
from keras_mhmcmc.posterior.store import stacked
from keras_mhmcmc.posterior.store import values_of

# What a process that died left in the middle of a write.
_UNFINISHED = re.compile(
    rf"{files.UNFINISHED}(base\.h5|manifest\.json|sample-\d{{10,}}\.h5)"
)


class DirectoryStore(Store):
    """Samples as HDF5 files, listed in `manifest.json`.

    `base.h5` holds the weights that training does not change. Each sample holds the
    weights that differ from `base.h5`. A file is written under a temporary name,
    flushed to the disk and then renamed, and a sample is written before the manifest
    that lists it. The manifest therefore lists complete samples only, whenever the
    process dies. It says which run wrote them.
    """

    def __init__(self, directory: PathLike) -> None:
        super().__init__()
        path = _validate.instance(
            "directory", directory, (str, os.PathLike), "the path of a folder"
        )
        self.directory: str = os.fspath(path)
        self._lock = files.FolderLock(self.directory)
        self._processes = Processes()
        self._look()

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _look(self) -> None:
        """Take what the directory holds."""
        path = self._path(manifest.NAME)
        self._take(manifest.read(path) if os.path.exists(path) else Manifest([], []))

    def _take(self, found: Manifest) -> None:
        self.signature, self.records, self.run = found

    def join(self, model: keras.Model) -> None:
        """Take what the first process knows of the directory.

        The directory may be out of reach for the others, and so empty.
        """
        self._processes = Processes(model)
        found = self._processes.do_in_first(lambda: self._content(self.records))
        if not self._processes.is_first:
            self._take(manifest.parsed(found))

    def open(self, model: keras.Model, iterations: int) -> None:
        """Lock the directory, and remove samples from after `iterations`.

        Raises:
            ValueError: another process writes there, the samples there belong to
                another model, or `fit` would overwrite them.
        """
        try:
            self._processes.do_in_first(lambda: self._open_folder(model, iterations))
            self.join(model)
            if model.built:
                self._prepare(model)
        except BaseException:
            self._lock.release()
            raise

    def _open_folder(self, model: keras.Model, iterations: int) -> None:
        """Do the work of `open`, in the process that writes."""
        os.makedirs(self.directory, exist_ok=True)
        self._lock.acquire()
        self._look()  # another run may have filled it meanwhile
        if self.records and model.built:
            self._check_same_model(_signature(model))
        if self.records and iterations == 0:
            raise ValueError(
                "Argument `directory` must be empty for a new run. To continue a run, "
                "load the model from its checkpoint. To start the run again, remove "
                f"the directory. Received: directory={self.directory!r}, which holds "
                f"{len(self.records)} samples up to iteration "
                f"{self.records[-1].iteration}, and an optimizer at iteration 0."
            )
        if self.records and model.built:
            self._check_same_run("directory", repr(self.directory), model)
        self._remove(filter(_UNFINISHED.fullmatch, os.listdir(self.directory)))
        later = [record for record in self.records if record.iteration > iterations]
        if later:
            warn(
                f"The directory {self.directory!r} holds {len(later)} samples from "
                f"after iteration {iterations}, where the loaded model stands. They "
                "are removed, and `fit` draws them again."
            )
            self._list(self.records[: -len(later)], later)

    def append(self, record: Record, model: keras.Model) -> None:
        """Write the current weights of `model` as the newest sample."""
        self._lock.check()
        if self._base is None:  # the first step built the model
            self._prepare(model)
        values: Iterable[Array] = values_of(model)
        if self._processes.are_several:
            values = list(values)  # all processes take part
        records = [*self.records, record]
        self._processes.do_in_first(lambda: self._add(values, records))
        self.records = records

    def _add(self, values: Iterable[Array], records: list[Record]) -> None:
        """Write the last one of the records, and then its entry."""
        changed = changes(self._base or {}, values)
        attributes = {"iteration": records[-1].iteration}
        files.write(self._path(file_of(records[-1])), changed, attributes)
        self._list(records)

    def drop(self, index: int) -> None:
        """Remove one sample."""
        records = list(self.records)
        dropped = records.pop(index)
        self._processes.do_in_first(lambda: self._list(records, [dropped]))
        self.records = records

    def write(self) -> None:
        """Write the records to the manifest."""
        if self.records:
            self._lock.check()
            self._processes.do_in_first(lambda: self._list(self.records))

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
        base, samples = self._read_base(), []
        remedy = (
            "Restore it from a copy. To leave this sample out, remove its entry from "
            f"{manifest.NAME!r}."
        )
        wanted = [[i, *weight[1:]] for i, weight in enumerate(self.signature)]
        for record in self.records[:length]:
            path, iteration = self._path(file_of(record)), record.iteration
            values = base | files.read(path, {"iteration": iteration}, remedy)
            found = [[i, list(values[i].shape), values[i].dtype.name] for i in values]
            if sorted(found) != wanted:
                raise ValueError(
                    f"The file {path!r} must hold, together with {files.BASE!r}, "
                    f"weights of these positions, shapes and types: {wanted}. {remedy} "
                    f"Received: {sorted(found)}"
                )
            samples.append([values[i] for i in range(len(wanted))])
        return stacked(samples)

    def _prepare(self, model: keras.Model) -> None:
        """Read the base, or write it before the first sample."""
        if self.records:
            self._check_same_model(_signature(model))
            self._base = {}  # only the process that writes needs it
            self._processes.do_in_first(self._read_again)
            return
        self._base = base = base_of(model)
        path = self._path(files.BASE)
        self._processes.do_in_first(lambda: files.write(path, base, {}))
        self.signature, self.run = _signature(model), run_of(model)

    def _read_again(self) -> None:
        self._base = self._read_base()

    def _read_base(self) -> dict[int, Array]:
        remedy = (
            "Restore it from a copy: all samples need it. If there are no samples, "
            "remove it."
        )
        return files.read(self._path(files.BASE), {}, remedy)

    def _list(self, records: list[Record], removed: Sequence[Record] = ()) -> None:
        """Make `records` the samples of the store, in the process that writes.

        The manifest comes first: if the disk is full, nothing changes.
        """
        text = json.dumps(self._content(records), indent=1)
        files.write_whole(self._path(manifest.NAME), text.encode())
        self.records = records
        self._remove(map(file_of, removed))

    def _content(self, records: list[Record]) -> dict[str, Any]:
        return Manifest(self.signature, records, self.run).content()

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


def _signature(model: keras.Model) -> Signature:
    """Return [name, shape, dtype] of each weight.

    Keras numbers weights that were given no name. The signature leaves that out.
    """
    return [
        [re.sub(r"^variable_\d+$", "variable", v.name), list(v.shape), v.dtype]
        for v in model.weights
    ]


class Processes:
    """The processes that hold a model together; usually this one alone.

    They call the same functions in the same order, and wait for each other there. The
    first of them writes files.
    """

    def __init__(self, model: keras.Model | None = None) -> None:
        optimizer = None if model is None else model.optimizer
        self.are_several = optimizer is not None and _backend.is_spread(
            optimizer.iterations
        )
        self.is_first = not self.are_several or _backend.is_first_process()

    def do_in_first(self, action: Callable[[], Any]) -> Any:
        """Return `action()` of the first process in all of them, a JSON value.

        Raises:
            RuntimeError: in the other processes, if `action` failed in the first one,
                which raises the error itself. Otherwise they would wait forever.
        """
        if not self.are_several:
            return action()
        told: dict[str, Any] = {}
        failure = None
        if self.is_first:
            try:
                told["answer"] = action()
            except BaseException as error:
                told["error"], failure = repr(error), error
        told = json.loads(_backend.from_first_process(json.dumps(told)))
        if failure is not None:
            raise failure
        if "error" in told:
            raise RuntimeError(
                f"The first process, which writes the samples, failed: {told['error']}"
            )
        return told["answer"]
