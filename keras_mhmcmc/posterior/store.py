"""The stores of kept samples: in memory, and as files in a directory.

A store saves weights that training changes once for each sample, and all others once:
frozen layers hold most of the weights of a pretrained model.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.posterior import files
from keras_mhmcmc.posterior import progress
from keras_mhmcmc.posterior import record as records_of
from keras_mhmcmc.posterior.record import MANIFEST
from keras_mhmcmc.posterior.record import Manifest
from keras_mhmcmc.posterior.record import Record
from keras_mhmcmc.posterior.record import Run
from keras_mhmcmc.posterior.record import Signature
from keras_mhmcmc.posterior.record import differences
from keras_mhmcmc.posterior.record import file_of
from keras_mhmcmc.posterior.record import run_of

# What a process that died left in the middle of a write.
_UNFINISHED = re.compile(
    rf"{files.UNFINISHED}(base\.h5|manifest\.json|sample-\d{{10,}}\.h5)"
)


class Store:
    """Samples in memory, oldest first. `records` describes each of them."""

    _place = "memory"

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.run = Run()  # that of the samples, once there are some
        self._processes = Processes()
        self._base: dict[int, Array] | None = None
        self._arrays: dict[int, list[Array]] = {}  # by iteration, as in `model.weights`

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        """Return the optimizer's iteration of each sample, shape (samples,)."""
        return np.array([record.iteration for record in self.records], int)

    def join(self, model: keras.Model) -> None:
        """Take what the first process knows, if only that one keeps samples."""

    def open(self, model: keras.Model, iterations: int) -> None:
        """Prepare for samples of `model`, and remove those from after `iterations`."""
        self._remove_later(model, iterations)
        if not self.records:
            self._base = None  # the next run may be of another model

    def _remove_later(self, model: keras.Model, iterations: int) -> None:
        if self.records and model.built and iterations > 0:
            self._check_same_run(model)
        later = [record for record in self.records if record.iteration > iterations]
        if later:
            warn(
                f"`PosteriorSamples` removed {len(later)} samples from after iteration "
                f"{iterations}, where the optimizer stands, in {self._place}: `fit` "
                "draws them again. For another run use a new `mh.PosteriorSamples`."
            )
            self._list(self.records[: -len(later)], later)

    def _check_same_run(self, model: keras.Model) -> None:
        """Raise a `ValueError` if the sampler of `model` is not that of the samples."""
        now = run_of(model)
        found = differences(now, self.run)
        if not found and len({now.seed, self.run.seed} - {None}) > 1:
            found = [f"seed={now.seed}, not {self.run.seed}"]
        if found:
            raise ValueError(
                "Argument `callbacks` must not have samples of another run, since an "
                "average over two distributions is a sample of neither. Use a new "
                "`mh.PosteriorSamples`, in a directory of its own. Received: one with "
                f"{len(self.records)} samples in {self._place}, and a sampler with "
                f"{'; '.join(found)}"
            )

    def append(self, record: Record, model: keras.Model) -> None:
        """Add the current weights of `model` as the newest sample."""
        if self._base is None:  # not earlier: the first step may build the model
            self._base, self.run = base_of(model), run_of(model)
        if self.records:
            self._check_same_shapes(model)
        values = self._base | changes(self._base, values_of(model))
        self._arrays[record.iteration] = [values[i] for i in range(len(values))]
        self.records.append(record)

    def revise_last(self, record: Record) -> None:
        """Replace the record of the newest sample.

        Remove a useless sample: no chain has a finite loss there, and all weigh 0.
        """
        self.records[-1] = record
        has_energy = record.energy is None or np.isfinite(record.energy).any()
        if not has_energy and np.isneginf(record.log_weight).all():
            self.drop(-1)

    def weigh_last(self, model: keras.Model, sampler: Sampler | None) -> None:
        """Give the newest sample the present rate, if it is the present state."""
        last, log_rate = self.records[-1], progress.log_rate_of(model)
        is_present = last.iteration == progress.iteration_of(model)
        if is_present and last.log_rate != log_rate:
            record = last._replace(log_rate=log_rate, log_weight=log_rate)
            self.revise_last(record if sampler is None else record.revised_by(sampler))

    def drop(self, index: int) -> None:
        """Remove one sample."""
        records = list(self.records)
        dropped = records.pop(index)
        self._processes.do_in_first(lambda: self._list(records, [dropped]))
        self.records = records

    def _list(self, records: list[Record], removed: Sequence[Record] = ()) -> None:
        """Make `records` the samples of the store, without those that are removed."""
        self.records = records
        for record in removed:
            del self._arrays[record.iteration]

    def write(self) -> None:
        """Make the records permanent, if the store can."""

    def close(self) -> None:
        """Make the records permanent, and let other processes use the store."""

    def read(self, model: keras.Model) -> list[Array]:
        """Return one array (samples, ...) for each of `model.weights`.

        If all samples hold the same array, it is a read-only view. A model with other
        weights is refused.
        """
        self._check_same_shapes(model)
        return stacked([self._arrays[record.iteration] for record in self.records])

    def _check_same_shapes(self, model: keras.Model) -> None:
        shapes = [tuple(variable.shape) for variable in model.weights]
        kept = self._arrays[self.records[0].iteration]
        if shapes != [array.shape for array in kept]:
            raise ValueError(
                "Argument `model` must be the model that was sampled, or one of the "
                f"same architecture. Received: a model with weights of shapes {shapes}"
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
        self._place = repr(self.directory)
        self._lock = files.FolderLock(self.directory)
        self._look()

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _look(self) -> None:
        """Take what the directory holds."""
        path = self._path(MANIFEST)
        is_there = os.path.exists(path)
        self._take(records_of.read_manifest(path) if is_there else Manifest([], []))

    def _take(self, found: Manifest) -> None:
        self.signature, self.records, self.run = found

    def join(self, model: keras.Model) -> None:
        """Take what the first process knows: the others may not reach the directory."""
        self._processes = Processes(model)
        found = self._processes.do_in_first(lambda: self._content(self.records))
        if not self._processes.is_first:
            self._take(records_of.parsed(found))

    def open(self, model: keras.Model, iterations: int) -> None:
        """Lock the directory, and remove samples from after `iterations`.

        Samples of other models and runs are refused.
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
                "Argument `directory` must be empty for a new run. Load the model from "
                "its checkpoint to continue, or remove the directory to start again. "
                f"Received: directory={self.directory!r}, which holds "
                f"{len(self.records)} samples up to iteration "
                f"{self.records[-1].iteration}, and an optimizer at iteration 0."
            )
        self._remove(filter(_UNFINISHED.fullmatch, os.listdir(self.directory)))
        self._remove_later(model, iterations)

    def append(self, record: Record, model: keras.Model) -> None:
        """Write the current weights of `model` as the newest sample."""
        self._lock.check()
        if self._base is None:
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

    def _list(self, records: list[Record], removed: Sequence[Record] = ()) -> None:
        """Write the manifest, and then remove files, in the process that writes."""
        text = json.dumps(self._content(records), indent=1)
        files.write_whole(self._path(MANIFEST), text.encode())
        self.records = records
        self._remove(map(file_of, removed))

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
        """Return one array for each weight, of all samples or of the oldest ones."""
        self._check_same_model(_signature(model))
        base, samples = self._read_base(), []
        remedy = (
            "Restore it from a copy, or remove its entry from "
            f"{MANIFEST!r} to leave this sample out."
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
            self._base = base = {}  # only the process that writes needs it
            self._processes.do_in_first(lambda: base.update(self._read_base()))
            return
        self._base = base = base_of(model)
        path = self._path(files.BASE)
        self._processes.do_in_first(lambda: files.write(path, base, {}))
        self.signature, self.run = _signature(model), run_of(model)

    def _read_base(self) -> dict[int, Array]:
        remedy = "Restore it from a copy, or remove it if there are no samples."
        return files.read(self._path(files.BASE), {}, remedy)

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


def base_of(model: keras.Model) -> dict[int, Array]:
    """Return copies of the weights that are not trainable, by their positions.

    Training changes some of them, such as moving statistics: see `changes`.
    """
    trainable = {id(variable) for variable in model.trainable_weights}
    return {
        index: host_copy(variable)
        for index, variable in enumerate(model.weights)
        if id(variable) not in trainable
    }


def values_of(model: keras.Model) -> Iterator[Array]:
    """Give the value of each weight as a numpy array, one after the other.

    Parts that other processes hold are gathered: all processes must take all values.
    """
    return (_backend.host_value(variable) for variable in model.weights)


def changes(base: Mapping[int, Array], values: Iterable[Array]) -> dict[int, Array]:
    """Return copies of the weights that differ from `base`, by their positions."""
    return {
        index: np.array(value)
        for index, value in enumerate(values)
        if index not in base or not np.array_equal(base[index], value)
    }


def stacked(samples: Sequence[Sequence[Array]]) -> list[Array]:
    """Return one array (samples, ...) for each weight, a view if all are the same."""
    return [
        np.broadcast_to(values[0], (len(values), *values[0].shape))
        if all(value is values[0] for value in values)
        else np.stack(values)
        for values in zip(*samples, strict=True)
    ]


def host_copy(value: Tensor | keras.Variable) -> Array:
    """Copy a tensor or variable to a numpy array that shares no memory with it."""
    return np.array(_backend.host_value(value))


@contextlib.contextmanager
def chain_state_in(model: keras.Model) -> Iterator[None]:
    """Put the chain's current state into `model`, in place of a pending proposal.

    The proposal returns to the model at the end of the `with` block.
    """
    if not model.compiled or not isinstance(model.optimizer, Sampler):
        yield
        return
    # Not `model.trainable_variables`: layers may have been frozen since `build`.
    variables = model.optimizer.sampled_variables
    # Copies on the devices: arrays of the host would undo a division of the chains.
    pending = [ops.copy(variable) for variable in variables]
    _assign(variables, [ops.copy(x) for x in model.optimizer.state_values()])
    try:
        yield
    finally:
        _assign(variables, pending)


def _assign(variables: Iterable[keras.Variable], values: Iterable[Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
