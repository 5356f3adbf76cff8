"""CSGLD and CSGHMC: the two halves of a step around the equations of `contour.py`.

Each step evaluates the energy of the chain's point. `decide` finds its subregion, moves
theta, and gives the factor of the gradient and the weight of the point. `move` is that
of the base, SGLD or SGHMC. With a `pilot` (`pilot.py`) the first steps are those of the
base alone, and find the partition.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc import partition as subregions
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.partition import PILOT_STEPS
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base as protocol
from keras_mhmcmc.samplers.parts import contour as equations
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.contour import Contour
from keras_mhmcmc.samplers.parts.pilot import Pilot
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld

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


@dataclasses.dataclass(frozen=True)
class ContourSampler(protocol.OverDiffusion):
    """CSGLD and CSGHMC: a diffusion on an energy that its own visits flatten."""

    base: protocol.Diffusion
    contour: Contour  # without a partition if there is a pilot
    step_size: protocol.Rate  # omega
    log_masses: tuple[float, ...]  # log theta before the first step, (m,)
    adapt: bool = True  # whether theta is learned; otherwise this is KSGLD
    is_shared: bool = False  # whether all chains learn one theta (ICSGLD)
    counts_visits: bool = False  # whether the state counts visits
    pilot: Pilot | None = None  # finds the partition in the first steps

    @property
    def traits(self) -> protocol.Traits:
        traits = self.base.traits._replace(
            uses_energy=True,
            has_weights=True,
            counts=_COUNTS if self.counts_visits else (),
        )
        if self.pilot is None:
            return traits
        steps = self.pilot.steps
        return traits._replace(warm_up=steps, warm_up_argument=("pilot_steps", steps))

    def with_warm_up(self, steps: int) -> Self:
        if self.pilot is None:
            return self
        return dataclasses.replace(self, pilot=self.pilot.shortened(steps))

    def energy_unit(self, number: int, dimension: int) -> float | None:
        """Return the width of a subregion; None if a pilot finds it."""
        return None if self.pilot is not None else self.contour.energy_gap

    def init(self, position: protocol.Position) -> State:
        bins = (self.contour.partitions,)
        first = np.asarray(self.log_masses, "float32")
        log_masses = protocol.Slot(
            "log_masses", bins, value=first, is_shared=self.is_shared
        )
        visits = protocol.Slot("visits", bins, "int32") if self.counts_visits else ()
        found = () if self.pilot is None else self.pilot.init()
        return State(self.base.init(position), log_masses, visits, found)

    def contour_of(self, state: State) -> Contour:
        """Return the fixed numbers, and the partition that the state has found."""
        if self.pilot is None:
            return self.contour
        low, gap = (state.pilot.partition[..., i] for i in range(2))
        return self.contour._replace(energy_min=low, energy_gap=gap)

    def decide(
        self, state: State, evaluation: protocol.Evaluation
    ) -> tuple[protocol.Current, protocol.Info]:
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
            size = protocol.at_step(self.step_size, ops.maximum(number, 0))
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
        visits: Any = ()
        counts: dict[str, Tensor] = {}
        if self.counts_visits:
            visits = equations.visited(state.visits, place, settings)
            counts = self._counts(place, multiplier, number)
        state = State(current.auxiliary, log_masses, visits, found)
        current = current._replace(auxiliary=(state, multiplier))
        return current, protocol.Info(counts, log_weight)

    def move(self, current: protocol.Current, evaluation: protocol.Evaluation) -> State:
        state, multiplier = current.auxiliary
        evaluation = evaluation._replace(multiplier=multiplier)
        base = self.base.move(current._replace(auxiliary=state.base), evaluation)
        return state._replace(base=base)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the mean number of the subregion, from 1, and the mean multiplier."""
        if not self.counts_visits:
            return {}
        steps = np.where(counts["steps"] > 0, counts["steps"], np.nan)
        report = {name: counts[name] / steps for name in ("partition", "multiplier")}
        if self.pilot is not None:
            low, gap = self.contour_of(state)[:2]
            report["energy_min"] = np.where(np.isfinite(gap), low, np.nan)
            report["energy_gap"] = np.where(np.isfinite(gap), gap, np.nan)
        return report

    def report(
        self, state: State, energy: Array, names: Sequence[str]
    ) -> dict[str, Any]:
        """Return the masses, and the draws of each subregion, (chain, partitions)."""
        settings, pilot = self.contour_of(state), self.pilot
        visits = equations.visits_of(energy, settings)
        # Transposed: the energies of all chains at one step are neighbours in memory.
        known = energy.T[np.isfinite(energy.T)]
        message = None
        if known.size > 0 and pilot is None:
            advice = subregions.fix(known.min(), known.max(), settings.partitions)
            message = subregions.run_message(visits.sum(0), settings, advice)
        elif known.size > 0 and pilot is not None:
            advice = subregions.fix_of_pilot(pilot.steps)
            message = subregions.visits_message(visits.sum(0), advice)
        if message is not None:
            warn(message)
        log_masses = np.asarray(ops.convert_to_numpy(state.log_masses), "float64")
        masses = np.broadcast_to(np.exp(log_masses), visits.shape)
        report = {"masses": masses, "visits": visits}
        for name in ("energy_min", "energy_gap") if pilot else ():
            found = ops.convert_to_numpy(getattr(settings, name))
            report[name] = np.broadcast_to(found, len(energy))
        return report

    def _counts(
        self, place: equations.Place, multiplier: Tensor, number: Tensor
    ) -> dict[str, Tensor]:
        below, above = place.index == 0, place.index == self.contour.partitions - 1
        counted = ops.ones_like(multiplier), place.index + 1, multiplier, below, above
        values = [ops.cast(value, "float32") for value in counted]
        if self.pilot is not None:
            learns = ops.cast(number >= 0, "float32")
            values = [learns * value for value in values]
        return dict(zip(_COUNTS, values, strict=True))


def contour_sampler(
    base: protocol.Diffusion,
    partition: EnergyPartition | Literal["auto"],
    pilot_steps: int,
    zeta: float,
    step_size: protocol.Rate | None,
    random_field: str,
    difference: str,
    max_multiplier: float | None,
    weight_power: float | None,
    rho: float,
    masses: Array | None,
    adapt: bool,
    is_shared: bool = False,
    counts_visits: bool = False,
) -> ContourSampler:
    """Return the algorithm on `base` with these arguments of `mh.CSGLD`, checked."""
    given = subregions.checked_or_auto(partition, masses, adapt)
    steps = _validate.integer("pilot_steps", pilot_steps, subregions.FEWEST_PILOT_STEPS)
    finder = None if given else Pilot(steps, subregions.PARTITIONS, is_shared)
    partitions = given.partitions if given else subregions.PARTITIONS
    zeta = _validate.number("zeta", zeta, _validate.POSITIVE)
    _validate.choice("random_field", random_field, ("zeta", "one"))
    _validate.choice("difference", difference, ("backward", "forward"))
    _validate.choice("adapt", adapt, (True, False))
    _validate.choice("shared_density", is_shared, (True, False))
    if max_multiplier is not None:
        limits = _validate.Interval(1.0), "None sets no limit."
        max_multiplier = _validate.number("max_multiplier", max_multiplier, *limits)
    power = zeta
    if weight_power is not None:
        limits = _validate.NOT_NEGATIVE, "None is zeta."
        power = _validate.number("weight_power", weight_power, *limits)
    rho = _validate.number("rho", rho, _validate.NOT_NEGATIVE)
    contour = Contour(
        energy_min=given.energy_min if given else math.nan,
        energy_gap=given.energy_gap if given else math.nan,
        partitions=partitions,
        zeta=zeta,
        exponent=zeta if random_field == "zeta" else 1.0,
        rho=rho,
        is_forward=difference == "forward",
        max_multiplier=max_multiplier,
        weight_power=power,
    )
    if masses is None and not adapt:
        raise ValueError(
            "Argument `masses` must be given with `adapt=False`: the sampler learns "
            "no masses, and needs one mass for each of the "
            f"{partitions} subregions. Received: masses=None"
        )
    return ContourSampler(
        base,
        contour,
        subregions.checked_step_size(step_size, rho),
        subregions.first_log_masses(masses, partitions),
        adapt,
        is_shared,
        counts_visits,
        finder,
    )


def csgld(
    learning_rate: protocol.Rate,
    *,
    partition: EnergyPartition | Literal["auto"] = "auto",
    pilot_steps: int = PILOT_STEPS,
    zeta: float = 0.75,
    temperature: protocol.Rate = 1.0,
    step_size: protocol.Rate | None = None,
    random_field: str = "zeta",
    difference: str = "backward",
    max_multiplier: float | None = 5.0,
    weight_power: float | None = None,
    rho: float = 0.0,
    masses: Array | None = None,
    adapt: bool = True,
    shared_density: bool = False,
) -> ContourSampler:
    """Return contour SGLD, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) / Psi(U)^zeta. The energy U in nats is minus the log
    density, and Psi is the learned mass of the energy's subregions. With the weights of
    the draws it samples exp(-U/T), up to the bias of a finite step, of gradient noise,
    and of an active `max_multiplier`.

    Args:
        learning_rate: factor of the gradient of U/N, as in `mh.kernels.sgld`. A number
            of at least 0, or a schedule.
        partition: an `mh.EnergyPartition`, or "auto": the first steps are a pilot of
            plain SGLD. The energies of its second half make 100 subregions, from their
            10% quantile to four times as far above it as the highest energy.
        pilot_steps: steps of the pilot of "auto", at least 20, and at most the
            `burn_in` of `mh.sample`. Defaults to 1000.
        zeta: power that flattens the energy, greater than 0. With 1 the histogram of
            the energies becomes flat. Defaults to 0.75.
        temperature: T, at least 0, or a schedule (simulated annealing).
        step_size: omega, the step of the learned masses, from the pilot on: a falling
            schedule, or a number in (0, 1). None is `mh.schedules.RobbinsMonro()`.
        random_field: "zeta" for theta(J)^zeta in the update, "one" for theta(J), for a
            zeta much larger than 1.
        difference: "backward" or "forward": which difference is the slope of log theta.
        max_multiplier: largest absolute value of the gradient's factor, at least 1, or
            None. If it is active, weights are not exact: on a normal distribution in 20
            dimensions the mean energy was 0.5% too high at zeta = 5, 3.4% at 10, and
            right at 2 (`examples/benchmarks/contour_weights.py`).
        weight_power: draws have the weights Psi(U)^weight_power. None is zeta, the
            exact one. A smaller power evens the weights out, but then the weighted
            draws do not have the density exp(-U/T).
        rho: bias of the update towards low energies, eq. (57), at least 0.
        masses: initial theta, the positive mass of each subregion, shape (partitions,),
            up to a factor. None, a linear decrease, must be chosen with "auto".
        adapt: whether theta is learned. False keeps `masses` fixed (KSGLD).
        shared_density: whether all chains learn one theta and partition together
            (ICSGLD). By default each chain learns its own.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> partition = mh.EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=50)
    >>> kernel = mh.kernels.csgld(0.1, partition=partition)

    Reference: Deng, Lin and Liang (2020), algorithm 1; Deng, Liang, Hao, Lin and Liang
    (2022), algorithm 1.
    """
    settings = zeta, step_size, random_field, difference, max_multiplier
    more = weight_power, rho, masses, adapt, shared_density
    base = sgld(learning_rate, temperature=temperature)
    return contour_sampler(base, partition, pilot_steps, *settings, *more)


def csghmc(
    learning_rate: protocol.Rate,
    *,
    partition: EnergyPartition | Literal["auto"] = "auto",
    pilot_steps: int = PILOT_STEPS,
    zeta: float = 0.75,
    momentum: float = 0.9,
    temperature: protocol.Rate = 1.0,
    step_size: protocol.Rate | None = None,
    random_field: str = "zeta",
    difference: str = "backward",
    max_multiplier: float | None = 5.0,
    weight_power: float | None = None,
    rho: float = 0.0,
    masses: Array | None = None,
    adapt: bool = True,
    shared_density: bool = False,
) -> ContourSampler:
    """Return contour SGHMC, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) / Psi(U)^zeta, and exp(-U/T) with the weights of the
    draws, like `mh.kernels.csgld`. `momentum` is that of `mh.kernels.sghmc`. All other
    arguments and the errors are those of `mh.kernels.csgld`.

    Reference: Deng, Lin and Liang (2020), section 4.2.
    """
    settings = zeta, step_size, random_field, difference, max_multiplier
    more = weight_power, rho, masses, adapt, shared_density
    base = sghmc(learning_rate, temperature=temperature, momentum=momentum)
    return contour_sampler(base, partition, pilot_steps, *settings, *more)


_FEWEST = 10  # energies that are enough to judge a partition


class ContourOptimizer(Sampler):
    """Abstract: a sampler that flattens the energy and weights its samples."""

    algorithm: ContourSampler

    def __init__(
        self,
        learning_rate: protocol.Rate,
        settings: Any,
        *shared: Any,
        nan_policy: str,
    ) -> None:
        base, partition, steps, *more = settings
        steps = PILOT_STEPS if steps is None else steps
        algorithm = contour_sampler(base, partition, steps, *more, counts_visits=True)
        super().__init__(learning_rate, algorithm, *shared, nan_policy=nan_policy)

    def _look_at_epoch(self, counts: dict[str, Array]) -> None:
        """Warn, too, if most energies of an epoch lie outside the partition."""
        super()._look_at_epoch(counts)
        steps = np.sum(counts["steps"])
        if steps >= _FEWEST:
            below, above = (np.sum(counts[name]) / steps for name in ("below", "above"))
            message = subregions.outside_message(below, above, self._advice())
            self._watch.say("partition", message)

    def _look_at_end(self) -> None:
        """Warn if a run ends in the pilot, or left subregions empty between others."""
        super()._look_at_end()
        if not _backend.hold_values(self._state.all):
            return
        algorithm, contour = self.algorithm, self.algorithm.contour
        self._watch.look_at_warm_up(self._steps(), algorithm.traits)
        visits = self._state.arrays().visits.reshape(-1, contour.partitions).sum(0)
        if visits.sum() < _FEWEST:
            return
        if algorithm.pilot is None:
            message = subregions.run_message(visits, contour, self._advice())
        else:  # each chain has a partition of its own, and the pilot was in all of it
            message = subregions.visits_message(visits, self._advice())
        self._watch.say("partition", message)

    def _advice(self) -> str:
        pilot, partitions = self.algorithm.pilot, self.algorithm.contour.partitions
        if pilot is not None:
            return subregions.fix_of_pilot(pilot.steps)
        return subregions.fix(*self._energies.extremes(), partitions)

    @property
    def partition(self) -> EnergyPartition | list[EnergyPartition] | None:
        """The partition of the energy; the one of "auto", a list with several chains.

        With "auto" it is None until the end of the pilot.
        """
        given = self.arguments["partition"]
        if isinstance(given, EnergyPartition):
            return given
        if not self.built:
            return None
        contour = self.algorithm.contour_of(self._state.arrays())
        low, gap = np.ravel(contour.energy_min), np.ravel(contour.energy_gap)
        if not np.isfinite(gap).all():
            return None
        found = [
            EnergyPartition(float(x), float(y), contour.partitions)
            for x, y in zip(low, gap, strict=True)
        ]
        return found[0] if self.num_chains is None else found

    def learned_masses(self) -> Array:
        """Return theta, the learned mass of each subregion, ([chains,] partitions).

        The sum over subregions is 1.
        """
        log_masses = ops.convert_to_numpy(self.slots.log_masses)
        return np.exp(log_masses.astype("float64"))

    def visits(self) -> Array:
        """Return the number of steps in each subregion, ([chains,] partitions)."""
        return ops.convert_to_numpy(self.slots.visits)


@serializable
class CSGLD(ContourOptimizer):
    """Contour stochastic gradient Langevin dynamics: SGLD on a flattened energy.

    It samples exp(-U/T) / Psi(U)^zeta. The energy U in nats is train_size * loss - log
    prior. Psi is the learned mass of the energy's subregions, so the chain crosses
    barriers that stop SGLD. With their importance weights Psi(U)^zeta, which
    `mh.PosteriorSamples` keeps and the ensemble uses, the samples have the density
    exp(-U/T), up to the bias that `mh.kernels.csgld` gives. The sampler keeps no copy
    of the weights of the model.

    The weight of a sample needs its energy, which the next step evaluates. The last
    sample of a `fit` has the weight of the point before it, until another `fit`.

    Other arguments are those of `mh.kernels.csgld` and `mh.SGLD`.

    Args:
        pilot_steps: as in `mh.kernels.csgld`. The pilot is burn-in:
            `mh.PosteriorSamples` keeps no sample of it, and its second half should be
            stationary. Defaults to None: 1000, and at most a quarter of the steps of
            the first `fit`.

    Raises:
        ValueError, FloatingPointError: as in `mh.SGLD`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.CSGLD(0.01, train_size=1000)
    >>> known = mh.EnergyPartition(energy_min=200.0, energy_gap=20.0, partitions=100)
    >>> optimizer = mh.CSGLD(0.01, train_size=1000, partition=known)

    Reference: that of `mh.kernels.csgld`.
    """

    def __init__(
        self,
        learning_rate: protocol.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        partition: EnergyPartition | Literal["auto"] = "auto",
        pilot_steps: int | None = None,
        zeta: float = 0.75,
        temperature: protocol.Rate = 1.0,
        step_size: protocol.Rate | None = None,
        random_field: str = "zeta",
        difference: str = "backward",
        max_multiplier: float | None = 5.0,
        weight_power: float | None = None,
        rho: float = 0.0,
        masses: Array | None = None,
        adapt: bool = True,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "csgld",
        **options: Any,
    ) -> None:
        base = sgld(protocol.OF_OPTIMIZER, temperature=temperature)
        first = base, partition, pilot_steps, zeta, step_size, random_field, difference
        settings = *first, max_multiplier, weight_power, rho, masses, adapt
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, settings, *shared, nan_policy=nan_policy)


@serializable
class CSGHMC(ContourOptimizer):
    """Contour stochastic gradient Hamiltonian Monte Carlo: SGHMC on a flattened energy.

    It samples exp(-U/T) / Psi(U)^zeta, and exp(-U/T) with the importance weights, like
    `mh.CSGLD`. Momentum makes it faster on networks. With schedules for the learning
    rate and the temperature it is the paper's saCSGHMC. The sampler keeps one copy of
    the model's weights.

    Other arguments and the errors are those of `mh.CSGLD` and `mh.kernels.sghmc`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> rate = mh.schedules.CyclicalCosine(0.01, cycle_steps=1000)
    >>> optimizer = mh.CSGHMC(rate, train_size=1000, pilot_steps=2000, zeta=1.0)

    Reference: Deng, Lin and Liang (2020), sections 4.2 and 4.3.
    """

    def __init__(
        self,
        learning_rate: protocol.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        partition: EnergyPartition | Literal["auto"] = "auto",
        pilot_steps: int | None = None,
        zeta: float = 0.75,
        momentum: float = 0.9,
        temperature: protocol.Rate = 1.0,
        step_size: protocol.Rate | None = None,
        random_field: str = "zeta",
        difference: str = "backward",
        max_multiplier: float | None = 5.0,
        weight_power: float | None = None,
        rho: float = 0.0,
        masses: Array | None = None,
        adapt: bool = True,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "csghmc",
        **options: Any,
    ) -> None:
        base = sghmc(protocol.OF_OPTIMIZER, temperature=temperature, momentum=momentum)
        first = base, partition, pilot_steps, zeta, step_size, random_field, difference
        settings = *first, max_multiplier, weight_power, rho, masses, adapt
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, settings, *shared, nan_policy=nan_policy)
