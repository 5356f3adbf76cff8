"""CSGLD and CSGHMC: the two halves of a step around the equations of `contour.py`.

Each step evaluates the energy of the chain's point. `decide` finds its subregion, moves
theta, and gives the factor of the gradient and the weight of the point. `move` is that
of the base, SGLD or SGHMC. With a `pilot` (`pilot.py`) the first steps are those of the
base alone, and find the partition.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import contour as equations
from keras_mhmcmc.algorithms.contour import Contour
from keras_mhmcmc.algorithms.pilot import Pilot
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Diffusion
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Info
from keras_mhmcmc.samplers.base import OverDiffusion
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Rate
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import Traits
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

# Steps between two normalisations of theta to the sum 1. The exponentials of all
# subregions cost more than the rest of a step of one small chain.
_ROUNDINGS = 16
_COUNTS = ("steps", "partition", "multiplier", "below", "above")


class State(NamedTuple):
    """The state of the base, and the learned masses."""

    base: Any  # its first field is `point`
    log_masses: Tensor  # (..., m), or (m,) if all chains share them
    visits: Any  # int32, (..., m), or () if visits are not counted
    pilot: Any = ()  # `pilot.State`, or () if the partition is given


class Auxiliary(NamedTuple):
    """What `decide` hands to `move` besides the position."""

    base: Any
    log_masses: Tensor
    visits: Any
    pilot: Any
    multiplier: Tensor


@dataclasses.dataclass(frozen=True)
class ContourSampler(OverDiffusion):
    """CSGLD and CSGHMC: a diffusion on an energy that its own visits flatten.

    Attributes:
        base: the diffusion.
        contour: the fixed numbers; without a partition if there is a pilot.
        step_size: omega, a number or a schedule that falls.
        log_masses: log theta before the first step, shape (m,).
        adapt: whether theta is learned. The sampler with a fixed theta is KSGLD.
        is_shared: whether all chains learn one theta together (ICSGLD).
        counts_visits: whether the state counts the visits of each subregion.
        pilot: finds the partition in the first steps. None: `contour` has one.
    """

    base: Diffusion
    contour: Contour
    step_size: Rate
    log_masses: tuple[float, ...]
    adapt: bool = True
    is_shared: bool = False
    counts_visits: bool = False
    pilot: Pilot | None = None

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        traits = self.base.traits._replace(
            uses_energy=True,
            has_weights=True,
            counts=_COUNTS if self.counts_visits else (),
        )
        if self.pilot is None:
            return traits
        steps = self.pilot.steps
        return traits._replace(warm_up=steps, warm_up_argument=("pilot_steps", steps))

    def bind_weights(self, weights: Sequence[Any], has_chains: bool) -> Self:
        """Return the algorithm as it is."""
        return self

    def with_warm_up(self, steps: int) -> Self:
        """Return the algorithm with a shorter pilot."""
        if self.pilot is None:
            return self
        return dataclasses.replace(self, pilot=self.pilot.shortened(steps))

    def energy_unit(self, number: int) -> float | None:
        """Return the width of a subregion; None if a pilot finds it."""
        return None if self.pilot is not None else self.contour.energy_gap

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        bins = (self.contour.partitions,)
        first = np.asarray(self.log_masses, "float32")
        log_masses = Slot("log_masses", bins, value=first, is_shared=self.is_shared)
        visits = Slot("visits", bins, "int32") if self.counts_visits else ()
        found = () if self.pilot is None else self.pilot.init()
        return State(self.base.init(position), log_masses, visits, found)

    def contour_of(self, state: State) -> Contour:
        """Return the fixed numbers, and the partition that the state has found."""
        if self.pilot is None:
            return self.contour
        low, gap = (state.pilot.partition[..., i] for i in range(2))
        return self.contour._replace(energy_min=low, energy_gap=gap)

    def decide(self, state: State, evaluation: Evaluation) -> tuple[Current, Info]:
        """Update theta with the energy of the point, and return the point's weight."""
        settings, number = self.contour_of(state), evaluation.number
        place, found = equations.locate(evaluation.energy, settings), state.pilot
        if self.pilot is not None:
            # The partition is that of the step before: the pilot's last step is plain.
            found = self.pilot.update(found, evaluation.energy, number)
            number = number - self.pilot.steps  # below 0: theta learns nothing
            place = place._replace(finite=place.finite & (number >= 0))
        log_masses = state.log_masses
        if self.adapt:
            update = (
                equations.update_shared_log_masses
                if self.is_shared
                else equations.update_log_masses
            )
            size = at_step(self.step_size, ops.maximum(number, 0))
            learned = update(log_masses, place, size, settings)
            # With rho the sum grows at each step, otherwise by rounding alone.
            is_due = number % (1 if settings.rho > 0.0 else _ROUNDINGS) == 0
            log_masses = tensors.cond(
                is_due, lambda: equations.normalized(learned), lambda: learned
            )
        per_chain = log_masses
        if self.is_shared:
            shape = (evaluation.energy.shape[0], settings.partitions)
            per_chain = ops.broadcast_to(log_masses[None], shape)
        multiplier, log_weight = equations.multiplier_and_log_weight(
            per_chain, place, evaluation.temperature, settings
        )
        if self.pilot is not None:
            width = settings.weight_power * ops.log(settings.energy_gap)
            log_weight = ops.where(number >= 0, log_weight - width, 0.0)
        current, _ = self.base.decide(state.base, evaluation)
        visits, counts = (), {}
        if self.counts_visits:
            visits = equations.visited(state.visits, place, settings)
            counts = self._counts(place, multiplier, number)
        auxiliary = Auxiliary(current.auxiliary, log_masses, visits, found, multiplier)
        return current._replace(auxiliary=auxiliary), Info(counts, log_weight)

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Move as the base does, with the gradient times the multiplier."""
        base, log_masses, visits, found, multiplier = current.auxiliary
        base = self.base.move(
            current._replace(auxiliary=base),
            evaluation._replace(multiplier=multiplier),
        )
        return State(base, log_masses, visits, found)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the mean number of the subregion, from 1, and the mean multiplier.

        A partition that a pilot has found comes too: NaN until then.
        """
        if not self.counts_visits:
            return {}
        steps = np.where(counts["steps"] > 0, counts["steps"], np.nan)
        names = ("partition", "multiplier")
        report = {name: counts[name] / steps for name in names}
        if self.pilot is not None:
            low, gap = self.contour_of(state)[:2]
            report["energy_min"] = np.where(np.isfinite(gap), low, np.nan)
            report["energy_gap"] = np.where(np.isfinite(gap), gap, np.nan)
        return report

    def _counts(
        self, place: equations.Place, multiplier: Tensor, number: Tensor
    ) -> dict[str, Tensor]:
        last = self.contour.partitions - 1
        counts = {
            "steps": ops.ones_like(multiplier),
            "partition": place.index + 1,
            "multiplier": multiplier,
            "below": place.index == 0,
            "above": place.index == last,
        }
        counts = {name: ops.cast(value, "float32") for name, value in counts.items()}
        if self.pilot is None:
            return counts
        learns = ops.cast(number >= 0, "float32")
        return {name: learns * value for name, value in counts.items()}
