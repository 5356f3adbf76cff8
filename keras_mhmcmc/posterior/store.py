"""The store of kept samples: in memory, or in a folder with a `manifest.json`."""

import contextlib
import functools
import json
import os
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.posterior import files

# What may differ between the chains of one posterior: their law is the same.
_OF_A_CHAIN = {"learning_rate", "name", "seed", "warm_up"}


class Run(NamedTuple):
    """The sampler of a run. An entry is None if it is unknown or does not apply."""

    seed: int | None = None  # of the sampler's noise
    sampler: str | None = None  # the name of its class
    arguments: dict[str, Any] | None = None  # of the sampler, as JSON has them
    chains: int | None = None  # of an `mh.ParallelChains`; None: a single chain


def run_of(model: keras.Model) -> Run:
    chains = model.num_chains if isinstance(model, StackedModel) else None
    optimizer = model.optimizer
    if not isinstance(optimizer, Sampler):
        return Run(chains=chains)
    name, arguments = type(optimizer).__name__, optimizer.recorded_arguments()
    return Run(optimizer.noise_seed(), name, arguments, chains)


def differences(run: Run, other: Run) -> list[str]:
    """Return what makes two runs sample different laws, as "name=value, not value"."""
    if run.arguments is None or other.arguments is None:
        return []
    if run.sampler != other.sampler:
        return [f"sampler={run.sampler!r}, not {other.sampler!r}"]
    names = sorted((run.arguments.keys() | other.arguments.keys()) - _OF_A_CHAIN)
    return [
        f"{name}={run.arguments.get(name)!r}, not {other.arguments.get(name)!r}"
        for name in names
        if run.arguments.get(name) != other.arguments.get(name)
    ]


class Record(NamedTuple):
    """What is known about a kept sample besides its weights."""

    iteration: int  # of the optimizer
    log_weight: float | list[float]  # a list has one entry for each chain
    energy: float | list[float] | None = None  # U in nats; None: unknown
    log_rate: float = 0.0  # the learning rate's contribution to `log_weight`
    is_final: bool = True  # False: energy and weight are still those of an older point
    excess: list[float] | None = None  # of each chain, as `SampleWatch.excess` says

    def described_by(self, sampler: Sampler, log_weight_of_lost: Any = -np.inf) -> Self:
        """Return the record with what `sampler` knows of the sample marked last."""
        info, is_lost = sampler.sample_info(), sampler.lost_chains()
        log_weight = np.asarray(self.log_rate)
        if sampler.algorithm.traits.has_weights:
            log_weight = np.asarray(info.log_weight) + log_weight
        if is_lost.any():
            log_weight = np.where(is_lost, log_weight_of_lost, log_weight)
        return self._replace(
            log_weight=log_weight.tolist(),
            energy=np.where(is_lost, np.nan, info.energy).tolist(),
            is_final=info.is_final,
        )

    def revised_by(self, sampler: Sampler) -> Self:
        """Return the record with the sample's own energy and weight, now known."""
        # A chain that was lost after the sample keeps the weight that it had.
        is_useless = sampler.sample_info().is_useless
        kept = np.where(is_useless, -np.inf, np.asarray(self.log_weight))
        return self.described_by(sampler, kept)


FORMAT = 1
MANIFEST = "manifest.json"

# [name, shape, dtype] of each weight of a model, as JSON has it.
Signature = list[list[str | list[int]]]


class Manifest(NamedTuple):
    """The samples of a folder, oldest first, and the weights that each of them has."""

    signature: Signature
    records: list[Record]
    run: Run = Run()


def file_of(record: Record) -> str:
    return f"sample-{record.iteration:010d}.h5"


def read_manifest(path: PathLike) -> Manifest:
    """Return the manifest in a file, or raise a `ValueError` that names it."""
    try:
        with open(path, encoding="utf-8") as file:
            return parsed(json.load(file))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(
            f"The manifest {path!r} cannot be read: {reason}. Restore it from a copy, "
            "or choose a new directory."
        ) from error


def parsed(content: Any) -> Manifest:
    """Return the manifest with this content. Entries that are not ours are ignored."""
    if content["format"] > FORMAT:
        raise ValueError(
            f"it has format {content['format']}, newer than {FORMAT}; update "
            "keras_mhmcmc"
        )
    signature = [
        [name, list(shape), dtype] for name, shape, dtype in content["weights"]
    ]
    records = [_record(sample) for sample in content["samples"]]
    found = [record.iteration for record in records]
    if found != sorted(set(found)):
        raise ValueError("its samples are not in ascending order of their iterations")
    return Manifest(signature, records, _ours(Run, content.get("run", {})))


def _record(sample: dict[str, Any]) -> Record:
    record: Record = _ours(Record, sample)
    # Any other name might lead out of the folder, or to a file of another kind.
    if sample["file"] != file_of(record):
        raise ValueError(f"{sample['file']!r} is not the file {file_of(record)!r}")
    if not np.less(np.array(record.log_weight, float), np.inf).all():
        raise ValueError(f"{file_of(record)!r} has the weight {record.log_weight}")
    return record


def _ours(kind: Any, entries: dict[str, Any]) -> Any:
    """Return a named tuple of its entries. A `TypeError` names one that is missing."""
    return kind(**{name: entries[name] for name in kind._fields if name in entries})


# What a process that died left in the middle of a write.
_UNFINISHED = re.compile(
    rf"{files.UNFINISHED}(base\.h5|manifest\.json|sample-\d{{10,}}\.h5)"
)


class Store:
    """Samples, oldest first. `records` describes each of them.

    The base holds the weights that training does not change, and each sample those that
    differ from it. With a directory, the manifest lists HDF5 files, which are written
    before it: it lists complete samples only, whenever the process dies. Processes that
    hold a model together call the same methods in the same order.
    """

    def __init__(self, directory: PathLike | None = None) -> None:
        self.directory = ""  # none: the samples are in memory
        self.signature: Signature = []
        self.records: list[Record] = []
        self.run = Run()  # that of the samples, once there are some
        self._base: dict[int, Array] = {}
        self._changes: dict[int, dict[int, Array]] = {}  # in memory, by iteration
        self._is_ready = False  # whether the base is that of the model that is sampled
        self._is_spread = False  # over several processes
        self._is_marking = self._is_locked = False
        if directory is not None:
            path = _validate.instance(
                "directory", directory, (str, os.PathLike), "the path of a folder"
            )
            self.directory = os.fspath(path) or os.curdir
            self._look()

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _place(self) -> str:
        return repr(self.directory) if self.directory else "memory"

    def _look(self) -> None:
        path = self._path(MANIFEST)
        is_there = os.path.exists(path)
        found = read_manifest(path) if is_there else Manifest([], [])
        self.signature, self.records, self.run = found

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        return np.array([record.iteration for record in self.records], int)

    # A `fit` begins.

    def join(self, model: keras.Model) -> None:
        """Take what the first process knows: the others may not reach the directory."""
        iterations = model.optimizer.iterations
        self._is_spread = bool(self.directory) and _backend.is_spread(iterations)
        if self._is_spread:
            found = parsed(self._in_first(lambda: self._content(self.records)))
            self.signature, self.records, self.run = found

    def open(self, model: keras.Model, iterations: int) -> None:
        """Lock the directory, and remove samples from after `iterations`."""
        self._is_ready = False
        try:
            self._in_first(lambda: self._start(model, iterations))
            self.join(model)
            if model.built:
                self._prepare(model)
        except BaseException:
            self._unlock()
            raise

    def _start(self, model: keras.Model, iterations: int) -> None:
        """Do the work of `open`, in the process that writes."""
        if self.directory:
            os.makedirs(self.directory, exist_ok=True)
            files.lock(self.directory, self)
            self._is_locked = True
            self._look()  # another run may have filled it meanwhile
            if self.records and model.built:
                self._check_same_model(model)
            if self.records and iterations == 0:
                raise ValueError(
                    "Argument `directory` must be empty for a new run. Load the model "
                    "from its checkpoint to continue, or remove the directory to start "
                    f"again. Received: directory={self.directory!r}, which holds "
                    f"{len(self.records)} samples up to iteration "
                    f"{self.records[-1].iteration}, and an optimizer at iteration 0."
                )
            self._remove(filter(_UNFINISHED.fullmatch, os.listdir(self.directory)))
        if self.records and model.built and iterations > 0:
            self._check_same_run(model)
        later = [record for record in self.records if record.iteration > iterations]
        if later:
            warn(
                f"`PosteriorSamples` removed {len(later)} samples from after iteration "
                f"{iterations}, where the optimizer stands, in {self._place()}: `fit` "
                "draws them again. For another run use a new `mh.PosteriorSamples`."
            )
            self._list(self.records[: -len(later)], later)

    def _prepare(self, model: keras.Model) -> None:
        """Check the model of the samples, or take its base before the first sample."""
        self._is_ready = True
        if self.records:
            self._check_same_model(model)
            if self.directory:
                self._in_first(self._read_base)
            return
        self._base = _base_of(model)
        if self.directory:
            path = self._path(files.BASE)
            self._in_first(lambda: files.write(path, self._base, {}))
        self.signature, self.run = _signature(model), run_of(model)

    def _check_same_model(self, model: keras.Model) -> None:
        signature = _signature(model)
        if signature != self.signature:
            raise ValueError(
                "Argument `directory` or `model` must not be of another model than the "
                "samples, with weights of other names, shapes or types. Use the model "
                "that was sampled, or a new `mh.PosteriorSamples`. Received: samples "
                f"of {self.signature} in {self._place()}, and a model with {signature}"
            )

    def _check_same_run(self, model: keras.Model) -> None:
        now = run_of(model)
        found = differences(now, self.run)
        if not found and len({now.seed, self.run.seed} - {None}) > 1:
            found = [f"seed={now.seed}, not {self.run.seed}"]
        if found:
            raise ValueError(
                "Argument `callbacks` must not have samples of another run, since an "
                "average over two distributions is a sample of neither. Use a new "
                "`mh.PosteriorSamples`, in a directory of its own. Received: one with "
                f"{len(self.records)} samples in {self._place()}, and a sampler with "
                f"{'; '.join(found)}"
            )

    # Samples come and go.

    def append(self, record: Record, model: keras.Model) -> None:
        """Keep the current weights of `model` as the newest sample."""
        if not self._is_ready:  # the first step has built the model
            self._prepare(model)
        values: Iterable[Array] = map(_backend.host_value, model.weights)
        if self._is_spread:
            values = list(values)  # all processes take part
        records = [*self.records, record]
        self._in_first(lambda: self._add(records, values))
        self.records = records

    def _add(self, records: list[Record], values: Iterable[Array]) -> None:
        newest, base = records[-1], self._base
        changed = {
            index: np.array(value)
            for index, value in enumerate(values)
            if index not in base or not np.array_equal(base[index], value)
        }
        self._check_owner()
        if self.directory:
            path = self._path(file_of(newest))
            files.write(path, changed, {"iteration": newest.iteration})
        else:
            self._changes[newest.iteration] = changed
        self._list(records)

    def revise_last(self, record: Record) -> None:
        """Replace the record of the newest sample, or remove a useless one."""
        self.records[-1] = record
        has_energy = record.energy is None or np.isfinite(record.energy).any()
        if not has_energy and np.isneginf(record.log_weight).all():
            self.drop(-1)

    def drop(self, index: int) -> None:
        records = list(self.records)
        dropped = records.pop(index)
        self._in_first(lambda: self._list(records, [dropped]))
        self.records = records

    def _content(self, records: list[Record]) -> dict[str, Any]:
        """Return what JSON can hold, and `parsed` takes."""
        return {
            "format": FORMAT,
            "run": self.run._asdict(),
            "weights": self.signature,
            "samples": [{"file": file_of(r), **r._asdict()} for r in records],
        }

    def _list(self, records: list[Record], removed: Sequence[Record] = ()) -> None:
        """Make `records` the samples of the store, and then remove the others."""
        self._check_owner()
        if self.directory:
            text = json.dumps(self._content(records), indent=1)
            files.write_whole(self._path(MANIFEST), text.encode())
            self._remove(map(file_of, removed))
        for record in removed:
            self._changes.pop(record.iteration, None)
        self.records = records

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # the user removed it
                os.remove(self._path(name))

    def write(self) -> None:
        if self.directory and self.records:
            self._in_first(lambda: self._list(self.records))

    def close(self) -> None:
        try:
            self.write()
        finally:
            self._unlock()

    def _check_owner(self) -> None:
        if self._is_locked:
            files.check_owner(self.directory, self)

    def _unlock(self) -> None:
        if self._is_locked:
            files.unlock(self.directory, self)
            self._is_locked = False

    # A sample is kept before a step has evaluated it. Until then it has the energy and
    # weight of the point before. The step that leaves the sample finds its own, and the
    # sampler tells this store.

    def mark(self, sampler: Sampler, iteration: int) -> None:
        """Await the energy of the state at `iteration`, which is about to be kept."""
        self._is_marking = True  # and whoever keeps the sample writes the records
        sampler.mark_sample(functools.partial(self._revise, sampler, iteration))
        self._is_marking = False

    def await_newest(self, sampler: Sampler, iteration: int) -> None:
        """Await the energy of the newest sample in a `fit` from `iteration` on."""
        if not sampler.built or not self.records or self.records[-1].is_final:
            return
        newest = self.records[-1].iteration
        listener = functools.partial(self._revise, sampler, newest)
        if newest == iteration:
            # The checkpoint may be from just before the sample was marked.
            sampler.mark_sample(listener)
        else:
            energies = sampler.energies
            if energies.marked_at() == newest:
                energies.listen(listener)
            energies.notify()

    def _revise(self, sampler: Sampler, iteration: int) -> None:
        """Record the energy of the sample of `iteration`, which is now known."""
        if not self.records or self.records[-1].is_final:
            return
        if self.records[-1].iteration == iteration:
            self.revise_last(self.records[-1].revised_by(sampler))
            if not self._is_marking:
                self.write()

    # The samples are read.

    def read(self, model: keras.Model, length: int | None = None) -> list[Array]:
        """Return one array (samples, ...) for each of `model.weights`, or raise.

        If all samples hold the same array, it is a read-only view.
        """
        self._check_same_model(model)
        if self.directory:
            self._read_base()
        samples = [self._values_of(record) for record in self.records[:length]]
        return [
            np.broadcast_to(values[0], (len(values), *values[0].shape))
            if all(value is values[0] for value in values)
            else np.stack(values)
            for values in zip(*samples, strict=True)
        ]

    def _read_base(self) -> None:
        remedy = "Restore it from a copy, or remove it if there are no samples."
        self._base = files.read(self._path(files.BASE), {}, remedy)

    def _values_of(self, record: Record) -> list[Array]:
        if not self.directory:
            values = self._base | self._changes[record.iteration]
            return [values[i] for i in range(len(values))]
        path, iteration = self._path(file_of(record)), record.iteration
        remedy = (
            "Restore it from a copy, or remove its entry from "
            f"{MANIFEST!r} to leave this sample out."
        )
        values = self._base | files.read(path, {"iteration": iteration}, remedy)
        wanted = [[i, *weight[1:]] for i, weight in enumerate(self.signature)]
        found = [[i, list(values[i].shape), values[i].dtype.name] for i in values]
        if sorted(found) != wanted:
            raise ValueError(
                f"The file {path!r} must hold, together with {files.BASE!r}, weights "
                f"of these positions, shapes and types: {wanted}. {remedy} "
                f"Received: {sorted(found)}"
            )
        return [values[i] for i in range(len(wanted))]

    # Several processes.

    def _in_first(self, action: Callable[[], Any]) -> Any:
        """Return `action()` of the first process in all of them, a JSON value.

        All raise an error if it failed. Otherwise the others would wait forever.
        """
        if not self._is_spread:
            return action()
        told: dict[str, Any] = {}
        failure = None
        if _backend.is_first_process():
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


def _signature(model: keras.Model) -> Signature:
    """Return [name, shape, dtype] of each weight, without the numbers of Keras."""
    return [
        [re.sub(r"^variable_\d+$", "variable", v.name), list(v.shape), v.dtype]
        for v in model.weights
    ]


def _base_of(model: keras.Model) -> dict[int, Array]:
    """Return copies of the weights that are not trainable, by their positions."""
    trainable = {id(variable) for variable in model.trainable_weights}
    return {
        index: host_copy(variable)
        for index, variable in enumerate(model.weights)
        if id(variable) not in trainable
    }


def host_copy(value: Tensor | keras.Variable) -> Array:
    return np.array(_backend.host_value(value))


@contextlib.contextmanager
def chain_state_in(model: keras.Model) -> Iterator[None]:
    """Put the chain's state into `model` for a while, in place of a proposal."""
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
