"""The energies of a chain: their mean, and the one of the sample marked last."""

import math
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc.optimizers.initializers import constant


class SampleInfo(NamedTuple):
    """What a sampler knows of a sample."""

    energy: Any  # U, nats, () or (chains,)
    log_weight: Any
    is_final: bool


class Energies:
    """What a sampler knows of its energies, in nats, in two of its variables.

    A sample is kept before its energy is known: the next step evaluates it. So the
    sample is marked, the step stores the energy, and whoever marked the sample is told.
    One mark is kept on the device. A callback that marks another sample makes sure
    first that those who wait for the old one are told.
    """

    def __init__(self):
        self._state = None
        self._marked_at = None
        self._lost = None
        self._listeners = []

    def build(self, sampler, shape):
        """Adds the variables to `sampler`; `shape` is () or (chains,)."""
        # No step evaluates a chain that was stopped.
        self._lost = sampler.lost_chains
        # Count and mean of the energies, the last one, whether the marked sample waits
        # for its own, and its own.
        self._state = sampler.add_variable(
            shape=(*shape, 5),
            initializer=constant([0.0, 0.0, math.nan, 0.0, math.nan]),
            dtype="float32",
            name="energies",
        )
        self._marked_at = sampler.add_variable(
            (), constant(-1), "int32", name="marked_at"
        )

    # In a step.

    def recorded(self, energy):
        """The variables to assign, and their values, after a point with `energy`."""
        state = ops.convert_to_tensor(self._state)
        count, mean, _, awaited, sample = ops.unstack(state, 5, axis=-1)
        # A running mean: a float32 sum of many energies loses their digits.
        mean = mean + (energy - mean) / (count + 1.0)
        sample = ops.where(awaited > 0.0, energy, sample)
        state = [count + 1.0, mean, energy, ops.zeros_like(awaited), sample]
        return [self._state], [ops.stack(state, axis=-1)]

    def is_awaited(self):
        """Whether the point of this step is a sample that waits for its energy."""
        return _backend.scalar(ops.convert_to_tensor(self._state)[..., 3]) > 0.0

    # Between steps.

    def means(self):
        """The mean energy of each chain, NaN where there is none: () or (chains,)."""
        state = self._read()
        return np.where(state[..., 0] > 0, state[..., 1], math.nan)

    def reset(self):
        """Starts the mean anew."""
        state = self._read()
        state[..., :2] = 0.0
        self._state.assign(state)

    def mark(self, iteration, listener=None):
        """Marks the state at `iteration`.

        `listener()` is called when the energy is known, by the next `tell`.
        """
        self.tell()
        if not (self.is_waiting() and self.marked_at() == iteration):
            state = self._read()
            state[..., 3] = 1.0
            self._state.assign(state)
            self._marked_at.assign(iteration)
        self.listen(listener)

    def listen(self, listener):
        """Has `listener` told of the energy of the marked sample, once."""
        if listener is not None and listener not in self._listeners:
            self._listeners.append(listener)

    def tell(self):
        """Calls those who wait for an energy, if it is known."""
        if self._listeners and not self.is_waiting():
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener()

    def is_waiting(self):
        """Whether the marked sample has yet to be evaluated."""
        return bool(((self._read()[..., 3] > 0.0) & ~self._lost()).any())

    def marked_at(self):
        """The iteration of the sample that was marked last, or -1."""
        return int(ops.convert_to_numpy(self._marked_at))

    def of_sample(self):
        """The energy of the marked sample, or of the last point while it waits."""
        state = self._read()
        return state[..., 2 if self.is_waiting() else 4]

    def _read(self):
        return np.array(ops.convert_to_numpy(self._state))


def over_chains(values, is_count):
    """A float that stands for those of all chains: a count's sum, else their mean."""
    known = values[~np.isnan(values)]
    if is_count:
        return float(known.sum())
    return float(known.mean()) if known.size else math.nan
