"""Partitions of the energy for the contour samplers, and advice on choosing them."""

import dataclasses
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import Configurable
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc.samplers.base import check
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.parts import pilot
from keras_mhmcmc.samplers.parts.contour import Contour
from keras_mhmcmc.schedules import RobbinsMonro
from keras_mhmcmc.schedules import Schedule

# Subregions and steps of `partition="auto"`. `docs/contour.md` has the measurements.
PARTITIONS = 100
PILOT_STEPS = 1000
_LARGEST_ENERGY = 1e37  # nats; twice the spread of energies is a float32 as well
FEWEST_PILOT_STEPS = 2 * pilot.FEWEST
_ANYTHING = _validate.Interval(-np.inf)
_SHARE = _validate.Interval(0.0, 1.0, low_open=True)
# Iterations at which a schedule of step sizes is checked.
_PROBES = (0, 10, 1000, 100_000, 10_000_000)
# Largest shares of an epoch's energies above and below the partition without a warning.
# The first subregion holds all energies below `energy_min`, easily half of a run.
_MOST_ABOVE, _MOST_BELOW = 0.5, 0.9
# Mean visits of a subregion before a run is warned of empty subregions, and the share
# of the visits that count for the range of visited subregions.
_ENOUGH_VISITS = 20
_VISITED = 0.999


@serializable
@dataclasses.dataclass(frozen=True)
class EnergyPartition(Configurable):
    """Subregions of the energy, for the contour samplers.

    The first subregion holds all energies up to `energy_min`, the next ones are
    `energy_gap` wide each, and the last one holds all energies above them.
    `mh.suggest_partition` makes a partition from the energies of a pilot run.

    Args:
        energy_min: u_1, the upper end of the first subregion, in nats of U: a little
            above the lowest energies of a pilot run.
        energy_gap: the width of the inner subregions, in nats, greater than 0.
        partitions: m, the number of subregions, at least 2, usually 10 to 1000.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> EnergyPartition(energy_min=2, energy_gap=0.5, partitions=20)
    EnergyPartition(energy_min=2.0, energy_gap=0.5, partitions=20)

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm for simulations of multi-modal distributions", section 2.
    """

    energy_min: float
    energy_gap: float
    partitions: int

    def __post_init__(self) -> None:
        check(self, energy_min=_ANYTHING, energy_gap=_validate.POSITIVE)
        count = _validate.integer("partitions", self.partitions, 2)
        set_checked(self, partitions=count)


_HINT = (
    "`mh.suggest_partition(energies)` makes one from the energies of a short pilot run"
)


def checked_energy_partition(partition: Any) -> EnergyPartition:
    """Return `partition` if it is an `EnergyPartition`, or raise a `ValueError`."""
    hint = f"an `mh.EnergyPartition`. {_HINT}"
    return _validate.instance("partition", partition, EnergyPartition, hint)


def checked_or_auto(partition: Any, masses: Any, adapt: bool) -> EnergyPartition | None:
    """Return the partition, or None for "auto", or raise a `ValueError`."""
    if not isinstance(partition, str) or partition != "auto":
        hint = f'an `mh.EnergyPartition` or "auto". {_HINT}'
        return _validate.instance("partition", partition, EnergyPartition, hint)
    if masses is not None or not adapt:
        raise ValueError(
            "Argument `partition` must be an `mh.EnergyPartition` with `masses` or "
            "`adapt=False`, since masses belong to known subregions. Received: "
            f"partition='auto', masses={_validate.shown(masses)}, adapt={adapt}"
        )
    return None


def checked_step_size(step_size: Any, rho: float) -> float | Schedule:
    if step_size is None:
        step_size = RobbinsMonro()
    elif not isinstance(step_size, Schedule):
        hint = "Or a decreasing schedule, such as `mh.schedules.RobbinsMonro()`. With a"
        hint += " number the density keeps fluctuating."
        step_size = _validate.number("step_size", step_size, _SHARE, hint)
    first = step_size
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


def suggest_partition(energies: Any, partitions: int = PARTITIONS) -> EnergyPartition:
    """Return a partition for a contour sampler, from the energies of a pilot run.

    The first subregion ends at the 10% quantile of the energies, so that the lowest
    modes stay unchanged. The last subregion begins as far above the highest energy as
    the highest energy is above the first subregion, because a flattened chain climbs
    higher than the pilot run. Leave out the burn-in of the pilot run.

    Args:
        energies: U in nats, any shape, at least 10 of them finite:
            `draws.info["energy"]` of `mh.sample`, or `posterior.energies`.
        partitions: number of subregions, at least 3. Defaults to 100.

    Raises:
        ValueError: there are too few energies, or all of them are the same.

    Example:

    >>> import numpy as np
    >>> pilot = np.random.default_rng(0).gamma(2.0, size=1000) + 50.0
    >>> 50.0 < suggest_partition(pilot, partitions=40).energy_min < 51.0
    True

    Reference: Deng, Lin and Liang (2020), section 4 and appendix D.5, who set the
    partitions by hand.
    """
    partitions = _validate.integer("partitions", partitions, 3)
    energies = np.ravel(_validate.array("Argument `energies`", energies))
    finite = energies[np.isfinite(energies)]
    smallest = float(np.finfo("float32").tiny) * partitions
    if finite.size < pilot.FEWEST or finite.max() - finite.min() <= smallest:
        raise ValueError(
            "Argument `energies` must have at least 10 finite energies that differ. "
            f"Received: {energies.size} energies, {finite.size} of them finite"
            + (f", between {finite.min()} and {finite.max()}" if finite.size else "")
        )
    largest = np.abs(finite).max()
    if largest > _LARGEST_ENERGY:
        raise ValueError(
            f"Argument `energies` must be at most {_LARGEST_ENERGY:g} nats in "
            "magnitude: the samplers compute in float32. Remove the energies of "
            f"diverged steps. Received: energies up to {largest:g} in magnitude"
        )
    low = np.quantile(finite, pilot.LOW_SHARE)
    gap = pilot.width(low, finite.max(), partitions, reach=2.0)
    return EnergyPartition(float(low), float(gap), partitions)


def fix(low: float, high: float, partitions: int) -> str:
    """Return advice: a partition for energies from low to high, in nats."""
    low, high = float(low), float(high)
    first = low + 0.05 * (high - low)
    gap = max(2.0 * (high - first) / max(partitions - 2, 1), 1e-6)
    return (
        f"Energies lie between {low:.6g} and {high:.6g}: try "
        f"`mh.EnergyPartition(energy_min={first:.6g}, energy_gap={gap:.3g}, "
        f"partitions={partitions})`, or `mh.suggest_partition(energies)` with the "
        "energies of a short pilot run."
    )


def fix_of_pilot(steps: int) -> str:
    """Return the advice of a warning about a partition that a pilot found."""
    return (
        "The pilot ended before the energies were stationary: make the sampler with a "
        "larger `pilot_steps`, or with an `mh.EnergyPartition`, such as "
        "`mh.suggest_partition(posterior.energies)`. "
        f"Now: partition='auto', pilot_steps={steps}"
    )


def outside_message(below: float, above: float, advice: str) -> str | None:
    """Return a warning of the shares of energies outside a partition, or None."""
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
    """Return a warning about subregions without visits, (m,), or None."""
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


def visits_message(visits: Array, advice: str) -> str | None:
    """Return a warning about the visits outside a partition, (m,), or None."""
    total = max(visits.sum(), 1)
    return outside_message(visits[0] / total, visits[-1] / total, advice)


def run_message(visits: Array, contour: Contour, advice: str) -> str | None:
    """Return a warning about the visits, (m,), of a whole run, or None."""
    return visits_message(visits, advice) or empty_message(visits, contour)
