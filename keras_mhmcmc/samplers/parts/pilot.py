"""The pilot of a contour sampler: first plain steps, whose energies give a partition.

Deng, Lin and Liang (2020), section 4 and appendix D.5, set partitions by hand. Here
step k < P, counted from 0, is a step of the base: the factor of `contour.py` is 1,
theta stays, and the weight of a draw is not defined. The energies of the second half
give the partition, since those of the first half are the descent from the start. With
U_(1) <= ... <= U_(n) the finite energies in order:

    u_1  =  the 10% quantile of U_(1), ..., U_(n), by linear interpolation
    du   =  4 (U_(n) - u_1) / (m - 2), at least 1e-6 max(|u_1|, |U_(n)|, 1)

So the last subregion begins four times as far above u_1 as the highest energy: a
flattened chain climbs higher than the pilot, and the energies of a network at T = 1
rise for long after they have fallen (`docs/contour.md` has a table). du is never so
small that float32 rounds it away.

Chains that share theta find one partition together, others one each. The weight of a
draw is (Psi(U)/du)^zeta, where Psi/du estimates the density of the energy, so that
weights of chains with different partitions can be compared.
"""

import math
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

FEWEST = 10  # energies that give a partition
LOW_SHARE = 0.1  # of the energies, which the first subregion holds
_REACH = 4.0  # from u_1 to the last subregion, relative to the highest energy
_FINEST = 1e-6  # smallest width, relative to the energies
_UNKNOWN = np.array([0.0, math.inf])  # one subregion holds all energies


class State(NamedTuple):
    """The energies of the pilot's second half, and what they gave."""

    energies: Tensor  # U, nats, (..., n); infinite: not known yet
    # u_1 and du, nats, (..., 2); the width is infinite until the pilot's end.
    partition: Tensor


class Pilot(NamedTuple):
    """A pilot of so many steps, for a partition of so many subregions."""

    steps: int  # P
    partitions: int  # m
    is_shared: bool  # whether all chains find one partition together
    room: int = 0  # energies that the state has room for, if they are more than n

    @property
    def num_kept(self) -> int:
        """Number of energies that give the partition, n."""
        return self.steps - self.steps // 2

    def shortened(self, steps: int) -> Self:
        """Return a pilot of so many steps, at most as many, with the same state."""
        room = max(self.room, self.num_kept)
        return self._replace(steps=min(steps, self.steps), room=room)

    def init(self) -> State:
        """Return the slots of the state."""
        room = max(self.room, self.num_kept)
        return State(
            Slot("pilot_energies", (room,), value=math.inf),
            Slot("partition", (2,), value=_UNKNOWN, is_shared=self.is_shared),
        )

    def update(self, state: State, energy: Tensor, number: Tensor) -> State:
        """Return the state after the step `number`, which evaluated `energy`."""
        number = ops.cast(number, "int32")

        def recorded() -> Tensor:
            room = max(self.room, self.num_kept)
            places = tensors.constant(range(room), "int32", energy)
            is_place = places == number - self.steps // 2
            return ops.where(is_place, ops.expand_dims(energy, -1), state.energies)

        energies = tensors.cond(number < self.steps, recorded, lambda: state.energies)
        partition = tensors.cond(
            number == self.steps - 1,
            lambda: self.found(energies),
            lambda: state.partition,
        )
        return State(energies, partition)

    def found(self, energies: Tensor) -> Tensor:
        """Return (u_1, du) of each chain, or of all chains, float32, (..., 2)."""
        if self.is_shared:
            energies = ops.reshape(energies, (-1,))
        is_finite = ops.isfinite(energies)
        ordered = ops.sort(ops.where(is_finite, energies, math.inf), axis=-1)
        count = ops.sum(ops.cast(is_finite, "int32"), axis=-1)
        last = ops.maximum(ops.cast(count, "int32") - 1, 0)
        low, high = _quantile(ordered, last, LOW_SHARE), tensors.pick(ordered, last)
        # A chain without a finite energy is lost, and its partition must be finite.
        low, high = (ops.where(ops.isfinite(x), x, 0.0) for x in (low, high))
        largest = ops.maximum(ops.maximum(ops.abs(low), ops.abs(high)), 1.0)
        gap = width(low, high, self.partitions, _REACH)
        gap = ops.maximum(gap, _FINEST * largest)
        return ops.stack([low, gap], axis=-1)


def width(low: Tensor, high: Tensor, partitions: int, reach: float) -> Tensor:
    """Return du of m subregions, the last from low + reach (high - low) on."""
    return reach * (high - low) / (partitions - 2)


def _quantile(ordered: Tensor, last: Tensor, share: float) -> Tensor:
    """Return the quantile of the first `last` + 1 numbers of each row."""
    place = share * ops.cast(last, "float32")
    below = ops.floor(place)
    index = ops.cast(below, "int32")
    lower = tensors.pick(ordered, index)
    upper = tensors.pick(ordered, ops.minimum(index + 1, last))
    return lower + (place - below) * (upper - lower)
