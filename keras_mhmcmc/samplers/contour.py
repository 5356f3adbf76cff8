"""CSGLD and CSGHMC: the halves of a step around the equations of `parts/contour.py`.

Each step evaluates the energy of the chain's point. `decide` finds its subregion, moves
theta, and gives the factor of the gradient and the weight of the point. `move` is that
of the base, SGLD or SGHMC. With a pilot the first steps are those of the base alone,
and find the partition.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.partition import PARTITIONS
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.partition import checked_energy_partition
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base as protocol
from keras_mhmcmc.samplers.parts import contour as equations
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.contour import Contour
from keras_mhmcmc.samplers.parts.contour import Pilot
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld
from keras_mhmcmc.schedules import RobbinsMonro
from keras_mhmcmc.schedules import Schedule

PILOT_STEPS = 1000  # of `partition="auto"`; `docs/contour.md` has the measurements
# Iterations at which a schedule of step sizes is checked.
_PROBES = (0, 10, 1000, 100_000, 10_000_000)
# Steps between two normalisations of theta to the sum 1. The exponentials of all
# subregions cost more than the rest of a step of one small chain.
_ROUNDINGS = 16
_COUNTS = ("steps", "partition", "multiplier", "below", "above")
# Largest shares of an epoch's energies above and below the partition without a warning.
# The first subregion holds all energies below `energy_min`, easily half of a run.
_MOST_ABOVE, _MOST_BELOW = 0.5, 0.9
# Mean visits of a subregion before a run is warned of empty subregions, and the share
# of the visits that count for the range of visited subregions.
_ENOUGH_VISITS = 20
_VISITED = 0.999


class State(NamedTuple):
    base: Any  # its first field is `point`
    log_masses: Tensor  # (..., m), or (m,) if all chains share them
    visits: Any  # int32, (..., m), or () if visits are not counted
    pilot: Any = ()  # `PilotState`, or () if the partition is given


@dataclasses.dataclass(frozen=True)
class csgld(protocol.OnDiffusion):
    """Make contour SGLD, a kernel for `mh.sample`.

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

    learning_rate: protocol.Rate
    _: dataclasses.KW_ONLY
    partition: EnergyPartition | Literal["auto"] = "auto"
    pilot_steps: int = PILOT_STEPS
    zeta: float = 0.75
    temperature: protocol.Rate = 1.0
    step_size: protocol.Rate | None = None
    random_field: str = "zeta"
    difference: str = "backward"
    max_multiplier: float | None = 5.0
    weight_power: float | None = None
    rho: float = 0.0
    masses: Array | None = None
    adapt: bool = True
    shared_density: bool = False
    # What follows: the diffusion whose energy is flattened, its numbers, the pilot
    # that finds the partition, and log theta before the first step.
    base: protocol.Diffusion = dataclasses.field(init=False, repr=False)
    contour: Contour = dataclasses.field(init=False, repr=False)
    pilot: Pilot | None = dataclasses.field(init=False, repr=False)
    log_masses: tuple[float, ...] = dataclasses.field(init=False, repr=False)

    kind: ClassVar[type[protocol.Diffusion]] = sgld
    counts_visits: ClassVar[bool] = False  # whether the state counts visits

    def __post_init__(self) -> None:
        given = self._checked_partition()
        count = given.partitions if given else PARTITIONS
        least = _validate.NOT_NEGATIVE
        limit = protocol.OrNone(_validate.Interval(1.0), "None sets no limit.")
        power = protocol.OrNone(least, "None is zeta.")
        protocol.check(self, pilot_steps=2 * equations.FEWEST)
        protocol.check(self, zeta=protocol.POSITIVE, rho=least)
        protocol.check(self, random_field=("zeta", "one"))
        protocol.check(self, difference=("backward", "forward"), adapt=(True, False))
        protocol.check(self, shared_density=(True, False))
        protocol.check(self, max_multiplier=limit, weight_power=power)
        masses, zeta, steps = self.masses, self.zeta, self.pilot_steps
        protocol.set_checked(
            self,
            base=self.diffusion(),
            contour=Contour(
                energy_min=given.energy_min if given else math.nan,
                energy_gap=given.energy_gap if given else math.nan,
                partitions=count,
                zeta=zeta,
                exponent=zeta if self.random_field == "zeta" else 1.0,
                rho=self.rho,
                is_forward=self.difference == "forward",
                max_multiplier=self.max_multiplier,
                weight_power=zeta if self.weight_power is None else self.weight_power,
            ),
            pilot=None if given else Pilot(steps, count, self.shared_density),
            log_masses=first_log_masses(self.masses, count),
            step_size=checked_step_size(self.step_size, self.rho),
            masses=None if masses is None else tuple(np.ravel(masses).tolist()),
        )
        if masses is None and not self.adapt:
            raise ValueError(
                "Argument `masses` must be given with `adapt=False`: the sampler "
                "learns no masses, and needs one mass for each of the "
                f"{count} subregions. Received: masses=None"
            )

    def _checked_partition(self) -> EnergyPartition | None:
        if not isinstance(self.partition, str) or self.partition != "auto":
            return checked_energy_partition(self.partition, ' or "auto"')
        if self.masses is not None or not self.adapt:
            raise ValueError(
                "Argument `partition` must be an `mh.EnergyPartition` with `masses` or "
                "`adapt=False`, since masses belong to known subregions. Received: "
                f"partition='auto', masses={_validate.shown(self.masses)}, "
                f"adapt={self.adapt}"
            )
        return None

    @property
    def traits(self) -> protocol.Traits:
        traits = self.base.traits._replace(
            uses_energy=True,
            has_weights=True,
            couples_chains=self.shared_density,
            counts=_COUNTS if self.counts_visits else (),
        )
        if self.pilot is None:
            return traits
        steps = self.pilot.steps
        return traits._replace(warm_up=steps, warm_up_argument=("pilot_steps", steps))

    def with_warm_up(self, steps: int) -> Self:
        if self.pilot is None:
            return self
        return protocol.bound(self, pilot=self.pilot.shortened(steps))

    def energy_unit(self, number: int, dimension: int) -> float | None:
        return None if self.pilot is not None else self.contour.energy_gap

    def init(self, position: protocol.Position) -> State:
        bins = (self.contour.partitions,)
        first = np.asarray(self.log_masses, "float32")
        is_shared = self.shared_density
        masses = protocol.Slot("log_masses", bins, value=first, is_shared=is_shared)
        visits = protocol.Slot("visits", bins, "int32") if self.counts_visits else ()
        found = () if self.pilot is None else self.pilot.init()
        return State(self.base.init(position), masses, visits, found)

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
                if self.shared_density
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
        if self.shared_density:
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
        settings = self.contour_of(state)
        visits = equations.visits_of(energy, settings)
        # Transposed: the energies of all chains at one step are neighbours in memory.
        known = energy.T[np.isfinite(energy.T)]
        if known.size > 0:
            message = self.fault_of(visits.sum(0), known.min(), known.max())
            if message is not None:
                warn(message)
        log_masses = np.asarray(ops.convert_to_numpy(state.log_masses), "float64")
        masses = np.broadcast_to(np.exp(log_masses), visits.shape)
        report = {"masses": masses, "visits": visits}
        for name in ("energy_min", "energy_gap") if self.pilot else ():
            found = ops.convert_to_numpy(getattr(settings, name))
            report[name] = np.broadcast_to(found, len(energy))
        return report

    def fault_of(self, visits: Array, low: float, high: float) -> str | None:
        """Return a warning about the visits, (m,), of a whole run, or None.

        Its energies were from low to high, nats.
        """
        total = max(visits.sum(), 1)
        advice = self.advice(low, high)
        message = outside_message(visits[0] / total, visits[-1] / total, advice)
        # With a pilot each chain has a partition of its own, and all of it was visited.
        if message is None and self.pilot is None:
            message = empty_message(visits, self.contour)
        return message

    def advice(self, low: float, high: float) -> str:
        if self.pilot is not None:
            return (
                "The pilot ended before the energies were stationary: make the sampler "
                "with a larger `pilot_steps`, or with an `mh.EnergyPartition`, such as "
                "`mh.suggest_partition(posterior.energies)`. Now: partition='auto', "
                f"pilot_steps={self.pilot.steps}"
            )
        count, low, high = self.contour.partitions, float(low), float(high)
        first = low + 0.05 * (high - low)
        gap = max(2.0 * (high - first) / max(count - 2, 1), 1e-6)
        return (
            f"Energies lie between {low:.6g} and {high:.6g}: try "
            f"`mh.EnergyPartition(energy_min={first:.6g}, energy_gap={gap:.3g}, "
            f"partitions={count})`, or `mh.suggest_partition(energies)` with the "
            "energies of a short pilot run."
        )

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


@dataclasses.dataclass(frozen=True)
class csghmc(csgld):
    """Make contour SGHMC, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) / Psi(U)^zeta, and exp(-U/T) with the weights of the
    draws, like `mh.kernels.csgld`. `momentum` is that of `mh.kernels.sghmc`. All other
    arguments and the errors are those of `mh.kernels.csgld`.

    Reference: Deng, Lin and Liang (2020), section 4.2.
    """

    _: dataclasses.KW_ONLY
    momentum: float = 0.9

    kind = sghmc


def checked_step_size(step_size: Any, rho: float) -> float | Schedule:
    hint = "Or a decreasing schedule, such as `mh.schedules.RobbinsMonro()`. With a"
    hint += " number the density keeps fluctuating."
    step_size = RobbinsMonro() if step_size is None else step_size
    kind = protocol.OrSchedule(protocol.OPEN_SHARE, hint)
    first = step_size = protocol.checked("step_size", step_size, kind)
    if isinstance(step_size, Schedule):
        values = np.array([float(step_size(probe)) for probe in _PROBES])
        first = values[0]
        falls = (values[1:] <= values[:-1]).all() and values[-1] < first
        if not falls or not (values > 0).all() or first >= 1:
            raise ValueError(
                "Argument `step_size` must be a schedule that falls from below 1 "
                "towards 0, such as `mh.schedules.RobbinsMonro()`. Received: a "
                f"schedule with the values {values.tolist()} at the iterations "
                f"{list(_PROBES)}"
            )
    if first * (1.0 + first * rho) >= 1.0:
        raise ValueError(
            "Arguments `step_size` and `rho` must keep the density positive: step_size "
            "* (1 + step_size * rho) < 1 at the first iteration. Lower one of them. "
            f"Received: step_size={first}, rho={rho}"
        )
    return step_size


def first_log_masses(masses: Any, partitions: int) -> tuple[float, ...]:
    """Return log theta of sum 1, m numbers. None is a linear decrease of theta."""
    if masses is None:
        values = np.arange(partitions, 0, -1, dtype="float64")
    else:
        values = _validate.array("Argument `masses`", masses)
        if values.shape != (partitions,):
            raise ValueError(
                f"Argument `masses` must have one number for each of the {partitions} "
                f"subregions. Received: an array of shape {values.shape}"
            )
        if not (np.isfinite(values).all() and (values > 0).all()):
            bad = int(np.argmin(np.isfinite(values) & (values > 0)))
            raise ValueError(
                "Argument `masses` must be finite and greater than 0 everywhere. A "
                "subregion without mass needs a small mass. "
                f"Received: masses[{bad}]={values[bad]}"
            )
    logs = np.log(values) - np.log(values.max())
    return tuple((logs - np.log(np.exp(logs).sum())).tolist())


def outside_message(below: float, above: float, advice: str) -> str | None:
    if above > _MOST_ABOVE:
        where = f"{above:.0%} of the energies lie above the last boundary"
    elif below > _MOST_BELOW:
        where = f"{below:.0%} of the energies lie below the first boundary"
    else:
        return None
    return (
        f"{where} of the partition, where a contour sampler does the same as the plain "
        f"sampler. {advice}"
    )


def empty_message(visits: Array, contour: Contour) -> str | None:
    visits = np.asarray(visits)
    if visits.sum() < _ENOUGH_VISITS * len(visits):
        return None
    # Leave out the highest thousandth: a chain may be thrown to a high energy once.
    share = np.cumsum(visits) / visits.sum()
    first, last = int(np.argmax(visits > 0)), int(np.argmax(share >= _VISITED))
    inside = int(np.sum(visits[first : last + 1] == 0))
    if first == 0 and inside == 0:
        return None
    lowest = contour.energy_min + first * contour.energy_gap
    if first > 0:
        where = f"the first {first} of {len(visits)} subregions of the energy"
        fix = f"Raise `energy_min` to {lowest:.6g}, the lowest visited boundary."
    else:
        where = f"{inside} subregions of the energy between visited ones"
        fix = f"Raise `energy_gap`, such as to {2 * contour.energy_gap:.3g}."
    return (
        f"No point was in {where}: their learned mass falls without end, and only "
        f"`max_multiplier` limits the gradient at their border. {fix}"
    )


_FEWEST = 10  # energies that are enough to judge a partition


class ContourOptimizer(Sampler):
    """Abstract: a sampler that flattens the energy and weights its samples."""

    algorithm: csgld

    def __init__(
        self,
        learning_rate: protocol.Rate,
        kind: type[csgld],
        arguments: dict[str, Any],
        *shared: Any,
        nan_policy: str,
    ) -> None:
        if arguments["pilot_steps"] is None:
            arguments = arguments | {"pilot_steps": PILOT_STEPS}
        kernel = protocol.of_optimizer(kind, arguments)
        kernel = protocol.bound(kernel, counts_visits=True)
        super().__init__(learning_rate, kernel, *shared, nan_policy=nan_policy)

    def _look_at_epoch(self, counts: dict[str, Array]) -> None:
        super()._look_at_epoch(counts)
        steps = np.sum(counts["steps"])
        if steps >= _FEWEST:
            below, above = (np.sum(counts[name]) / steps for name in ("below", "above"))
            advice = self.algorithm.advice(*self._energies.extremes())
            self._watch.say("partition", outside_message(below, above, advice))

    def _look_at_end(self) -> None:
        super()._look_at_end()
        if not _backend.hold_values(self._state.all):
            return
        algorithm = self.algorithm
        self._watch.look_at_warm_up(self._steps(), algorithm.traits)
        count = algorithm.contour.partitions
        visits = self._state.arrays().visits.reshape(-1, count).sum(0)
        if visits.sum() >= _FEWEST:
            message = algorithm.fault_of(visits, *self._energies.extremes())
            self._watch.say("partition", message)

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
        shared = csgld, locals(), train_size, prior, seed, name, options
        super().__init__(learning_rate, *shared, nan_policy=nan_policy)


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
        shared = csghmc, locals(), train_size, prior, seed, name, options
        super().__init__(learning_rate, *shared, nan_policy=nan_policy)
