"""The energies of a chain: their mean, and the one of the sample marked last."""

import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.optimizers.initializers import constant

_LARGEST = float(np.finfo("float32").max)
# Columns: how many points, their mean energy, the extreme energies, energy and log
# weight of the last point, whether the marked sample waits for its own, and energy and
# log weight of the marked sample.
_FIRST = [0.0, 0.0, _LARGEST, -_LARGEST, 0.0, 0.0, 0.0, 0.0, 0.0]
_MEAN, _LOWEST, _HIGHEST, _LAST, _IS_PENDING, _SAMPLE = 1, 2, 3, 4, 6, 7


class SampleInfo(NamedTuple):
    """What a sampler knows of a sample."""

    energy: Array  # U, nats, () or (chains,)
    log_weight: Array
    is_final: bool  # or both are those of the point before
    # Whether each chain was lost in the step that would have evaluated the sample.
    is_useless: Array | bool = False


class Energies:
    """What a sampler knows of its energies, in nats, in two of its variables.

    A sample is kept before its energy is known: the next step evaluates it. So the
    sample is marked, the step stores the energy, and whoever marked the sample is told.
    One mark is kept on the device. A callback that marks another sample makes sure
    first that all who wait for the old one are told.

    Args:
        add_variable: adds a variable with the chain axis, if there is one.
        lost_chains: returns which chains no step evaluates any more.
    """

    def __init__(
        self,
        add_variable: Callable[..., keras.Variable],
        lost_chains: Callable[[], Array],
    ) -> None:
        shape = (len(_FIRST),)
        self._state = add_variable(shape, constant(_FIRST), "float32", "energies")
        self._marked_at = add_variable(
            (), constant(-1), "int32", "marked_at", is_shared=True
        )
        self._lost = lost_chains
        self._listeners: list[Callable[[], None]] = []

    @property
    def variable(self) -> keras.Variable:
        """The variable that a step writes."""
        return self._state

    # In a step.

    def recorded(self, energy: Tensor, log_weight: Tensor) -> Tensor:
        """Return the value of `variable` after one more point.

        Args:
            energy: of the point, nats, () or (chains,).
            log_weight: of the point; None is 0.
        """
        columns = ops.unstack(ops.convert_to_tensor(self._state), len(_FIRST), axis=-1)
        count, mean, lowest, highest, _, _, is_pending, sample, sample_weight = columns
        # A running mean: a float32 sum of many energies loses their digits.
        mean = mean + (energy - mean) / (count + 1.0)
        weight = ops.zeros_like(energy) if log_weight is None else log_weight
        is_sample = is_pending > 0.0
        columns = [
            count + 1.0,
            mean,
            ops.minimum(lowest, energy),
            ops.maximum(highest, energy),
            energy,
            weight,
            ops.zeros_like(is_pending),
            ops.where(is_sample, energy, sample),
            ops.where(is_sample, weight, sample_weight),
        ]
        return ops.stack(columns, axis=-1)

    # Between steps.

    def means(self) -> Array:
        """Return the mean energy of each chain, () or (chains,); NaN without one."""
        state = self._read()
        return np.where(state[..., 0] > 0, state[..., _MEAN], math.nan)

    def extremes(self) -> tuple[float, float]:
        """Return the lowest and the highest energy of the run."""
        state = self._read()
        return float(state[..., _LOWEST].min()), float(state[..., _HIGHEST].max())

    def reset(self) -> None:
        """Start the mean anew."""
        state = self._read()
        state[..., : _MEAN + 1] = 0.0
        self._state.assign(state)

    def mark(self, iteration: int, listener: Callable[[], None] | None = None) -> None:
        """Mark the state at `iteration` as a sample.

        The next `notify` calls `listener()` once the energy is known.
        """
        self.notify()
        if not (self.is_pending() and self.marked_at() == iteration):
            state = self._read()
            state[..., _IS_PENDING] = 1.0
            self._state.assign(state)
            self._marked_at.assign(iteration)
        self.listen(listener)

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call `listener()` once the energy of the marked sample is known."""
        if listener is not None and listener not in self._listeners:
            self._listeners.append(listener)

    def forget(self) -> None:
        """Await the energy of the marked sample no more."""
        state = self._read()
        state[..., _IS_PENDING] = 0.0
        self._state.assign(state)
        self._listeners = []

    def notify(self) -> None:
        """Call those who wait for an energy, if the energy is known."""
        if self._listeners and not self.is_pending():
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener()

    def is_pending(self) -> bool:
        """Return whether the marked sample has yet to be evaluated."""
        return bool(((self._read()[..., _IS_PENDING] > 0.0) & ~self._lost()).any())

    def marked_at(self) -> int:
        """Return the iteration of the sample that was marked last, or -1."""
        return int(ops.convert_to_numpy(self._marked_at))

    def of_sample(self) -> SampleInfo:
        """Return what is known of the marked sample, or of the point before it."""
        state, is_pending = self._read(), self.is_pending()
        first = _LAST if is_pending else _SAMPLE
        energy = state[..., first]
        if is_pending:  # before the first point there is no energy
            energy = np.where(state[..., 0] > 0, energy, math.nan)
        is_useless = (state[..., _IS_PENDING] > 0.0) & self._lost()
        return SampleInfo(energy, state[..., first + 1], not is_pending, is_useless)

    def _read(self) -> Array:
        return np.array(ops.convert_to_numpy(self._state))


def over_chains(values: Array, is_count: bool) -> float:
    """Return one number for all chains: the sum of a count, else the mean."""
    known = values[~np.isnan(values)]
    if is_count:
        return float(known.sum())
    return float(known.mean()) if known.size else math.nan
