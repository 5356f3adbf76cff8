"""The record of a kept sample, and the store that keeps samples in memory.

A store saves weights that training changes once for each sample, and all others once:
frozen layers hold most of the weights of a pretrained model.
"""

import contextlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import Self

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.posterior import progress
from keras_mhmcmc.posterior.run import Run
from keras_mhmcmc.posterior.run import differences
from keras_mhmcmc.posterior.run import run_of


class Record(NamedTuple):
    """What is known about a kept sample besides its weights."""

    iteration: int  # of the optimizer
    log_weight: float | list[float]  # a list has one entry for each chain
    energy: float | list[float] | None = None  # U in nats; None: unknown
    log_rate: float = 0.0  # the learning rate's contribution to `log_weight`
    is_final: bool = True  # False: energy and weight are still those of an older point
    sha256: str | None = None  # of the sample's file; None: unknown, or no file
    excess: list[float] | None = None  # of each chain, as `Runaway.excess` says

    def described_by(self, sampler: Sampler) -> Self:
        """Return the record with the energy and weight that `sampler` now has.

        The sampler describes the sample that was marked last. Lost chains get weight 0
        and no energy.
        """
        return self._described(sampler, np.array(-np.inf))

    def revised_by(self, sampler: Sampler) -> Self:
        """Return the record with the sample's own energy and weight, now known.

        A chain that was lost after the sample keeps the weight that it had, unless its
        loss was not finite at the sample itself.
        """
        is_useless = sampler.sample_info().is_useless
        weights = np.where(is_useless, -np.inf, np.asarray(self.log_weight))
        return self._described(sampler, weights)

    def _described(
        self, sampler: Sampler, log_weight_of_lost: npt.NDArray[np.float64]
    ) -> Self:
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


class Store:
    """Abstract: kept samples, oldest first. `records` describes each of them."""

    records: list[Record]
    run = Run()  # that of the samples, once there are some

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        """Return the optimizer's iteration of each sample, shape (samples,)."""
        return np.array([record.iteration for record in self.records], int)

    def join(self, model: keras.Model) -> None:
        """Take what the first process knows, if several processes hold `model`."""
        raise NotImplementedError

    def open(self, model: keras.Model, iterations: int) -> None:
        """Prepare for samples of `model`, which stands at `iterations`.

        Remove the samples from later iterations: `fit` draws them again.
        """
        raise NotImplementedError

    def _check_same_run(self, argument: str, given: str, model: keras.Model) -> None:
        """Raise a `ValueError` if the sampler of `model` is not that of the samples."""
        now = run_of(model)
        found = differences(now, self.run)
        if not found and None not in (now.seed, self.run.seed):
            is_other = now.seed != self.run.seed
            found = [f"seed={now.seed}, not {self.run.seed}"] if is_other else []
        if found:
            raise ValueError(
                f"Argument `{argument}` must not have samples of another run, since an "
                "average over two distributions is a sample of neither. Use a new "
                f"`mh.PosteriorSamples`, in a directory of its own. Received: {given} "
                f"with {len(self.records)} samples, and a sampler with "
                f"{'; '.join(found)}"
            )

    def append(self, record: Record, model: keras.Model) -> None:
        """Add the current weights of `model` as the newest sample."""
        raise NotImplementedError

    def revise_last(self, record: Record) -> None:
        """Replace the record of the newest sample. Remove the sample if it is useless.

        It is useless if no chain has a finite loss there, so that all have weight 0.
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
        raise NotImplementedError

    def write(self) -> None:
        """Make the records permanent, if the store can."""
        raise NotImplementedError

    def close(self) -> None:
        """Make the records permanent, and let other processes use the store."""
        raise NotImplementedError

    def read(self, model: keras.Model) -> list[Array]:
        """Return one array (samples, ...) for each of `model.weights`.

        Raises:
            ValueError: the samples belong to a model with other weights.
        """
        raise NotImplementedError


class MemoryStore(Store):
    """Samples as lists of arrays, one array for each of `model.weights`."""

    def __init__(self) -> None:
        self.records = []
        self._base: dict[int, Array] | None = None
        self._arrays: list[list[Array]] = []

    def join(self, model: keras.Model) -> None:
        """Do nothing: every process keeps all samples."""

    def open(self, model: keras.Model, iterations: int) -> None:
        """Remove the samples from after `iterations`, with a warning."""
        length = sum(record.iteration <= iterations for record in self.records)
        if length > 0 and model.built:
            self._check_same_run("callbacks", "an `mh.PosteriorSamples`", model)
        later = len(self.records) - length
        if later:
            warn(
                f"`PosteriorSamples` held {later} samples from after iteration "
                f"{iterations}, where the optimizer stands. They are removed. For "
                "another run use a new `mh.PosteriorSamples`."
            )
            del self.records[length:], self._arrays[length:]
            if not self.records:
                self._base = None  # the next run may be of another model

    def append(self, record: Record, model: keras.Model) -> None:
        """Add the current weights of `model` as the newest sample."""
        if self._base is None:  # not earlier: the first step may build the model
            self._base, self.run = base_of(model), run_of(model)
        if self._arrays:
            self._check_same_model(model)
        values = self._base | changes(self._base, values_of(model))
        self._arrays.append([values[i] for i in range(len(values))])
        self.records.append(record)

    def drop(self, index: int) -> None:
        """Remove one sample."""
        del self.records[index], self._arrays[index]

    def write(self) -> None:
        """Do nothing: memory is not permanent."""

    def close(self) -> None:
        """Do nothing: no other process sees this store."""

    def read(self, model: keras.Model) -> list[Array]:
        """Return one array (samples, ...) for each of `model.weights`."""
        self._check_same_model(model)
        return stacked(self._arrays)

    def _check_same_model(self, model: keras.Model) -> None:
        shapes = [tuple(variable.shape) for variable in model.weights]
        if shapes != [array.shape for array in self._arrays[0]]:
            raise ValueError(
                "Argument `model` must be the model that was sampled, or one of the "
                f"same architecture. Received: a model with weights of shapes {shapes}"
            )


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
    changed = {}
    for index, value in enumerate(values):
        if index not in base or not np.array_equal(base[index], value):
            changed[index] = np.array(value)
    return changed


def stacked(samples: Sequence[Sequence[Array]]) -> list[Array]:
    """Return one array (samples, ...) for each weight.

    If all samples hold the same array, the result is a read-only view of it.
    """
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
