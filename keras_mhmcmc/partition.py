"""The energy's partition: checked arguments of the contour samplers, and advice."""

import dataclasses
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.algorithms.contour import Contour
from keras_mhmcmc.schedules import RobbinsMonro
from keras_mhmcmc.schedules import Schedule

_SHARE = _validate.Interval(0.0, 1.0, low_open=True)
# Iterations at which a schedule of step sizes is looked at.
_PROBES = (0, 10, 1000, 100_000, 10_000_000)
# Of an epoch: from what share of energies outside the partition on it is reported. The
# first subregion has everything below `energy_min`, which may well be half of a run.
_MOST_ABOVE, _MOST_BELOW = 0.5, 0.9
# Of a run: visits for each subregion from which on empty ones are reported, and the
# share of the visits that the range of the visited ones has.
_ENOUGH_VISITS = 20
_VISITED = 0.999


@dataclasses.dataclass(frozen=True)
class Partition:
    """The arguments that the contour samplers share, checked.

    `contour` has the numbers, `step_size` is a number or schedule, and `log_masses` the
    first log theta, an array (partitions,).
    """

    contour: Contour
    step_size: Any
    log_masses: np.ndarray
    adapt: bool


def checked_partition(
    *,
    energy_min,
    energy_gap,
    partitions,
    zeta,
    step_size,
    random_field,
    difference,
    max_multiplier,
    weight_power,
    rho,
    pdf,
    adapt,
):
    """The `Partition` of these arguments, or a `ValueError` that names one."""
    anything = _validate.Interval(-np.inf)
    energy_min = _validate.number("energy_min", energy_min, anything)
    energy_gap = _validate.number("energy_gap", energy_gap, _validate.POSITIVE)
    partitions = _validate.integer("partitions", partitions, 2)
    zeta = _validate.number("zeta", zeta, _validate.POSITIVE)
    _validate.choice("random_field", random_field, ("zeta", "one"))
    _validate.choice("difference", difference, ("backward", "forward"))
    _validate.choice("adapt", adapt, (True, False))
    if max_multiplier is not None:
        at_least_one = _validate.Interval(1.0)
        hint = "None leaves the multiplier as it is."
        max_multiplier = _validate.number(
            "max_multiplier", max_multiplier, at_least_one, hint
        )
    if weight_power is not None:
        weight_power = _validate.number(
            "weight_power", weight_power, _validate.NOT_NEGATIVE, "Or None, for zeta."
        )
    rho = _validate.number("rho", rho, _validate.NOT_NEGATIVE)
    contour = Contour(
        energy_min=energy_min,
        energy_gap=energy_gap,
        partitions=partitions,
        zeta=zeta,
        exponent=zeta if random_field == "zeta" else 1.0,
        rho=rho,
        is_forward=difference == "forward",
        max_multiplier=max_multiplier,
        weight_power=zeta if weight_power is None else weight_power,
    )
    if pdf is None and not adapt:
        raise ValueError(
            "Argument `pdf` must be given with `adapt=False`: it is the density that "
            f"is not to be learned, the mass of each of the {partitions} subregions. "
            "Received: pdf=None"
        )
    return Partition(
        contour, _checked_step_size(step_size, rho), _log_pdf(pdf, partitions), adapt
    )


def _checked_step_size(step_size, rho):
    if step_size is None:
        step_size = RobbinsMonro()
    elif not isinstance(step_size, Schedule):
        hint = (
            "Or a schedule that falls, such as `mh.schedules.RobbinsMonro()`; with a "
            "number the density keeps fluctuating."
        )
        step_size = _validate.number("step_size", step_size, _SHARE, hint)
    if not isinstance(step_size, Schedule):
        first = step_size
    else:
        values = np.array([float(step_size(probe)) for probe in _PROBES])
        falls = (values[1:] <= values[:-1]).all() and values[-1] < values[0]
        if not falls or not (values > 0).all() or values[0] >= 1:
            raise ValueError(
                "Argument `step_size` must be a schedule that falls from below 1 "
                "towards 0, for the density to settle: such as "
                "`mh.schedules.RobbinsMonro()`. Received: a schedule with the values "
                f"{values.tolist()} at the iterations {list(_PROBES)}"
            )
        first = values[0]
    if first * (1.0 + first * rho) >= 1.0:
        raise ValueError(
            "Arguments `step_size` and `rho` must satisfy omega (1 + omega rho) < 1 "
            "for the first step size omega, or the density would become negative. "
            f"Received: omega={first}, rho={rho}"
        )
    return step_size


def _log_pdf(pdf, partitions):
    """The logarithm of `pdf` with sum 1; None is linearly decreasing."""
    if pdf is None:
        values = np.arange(partitions, 0, -1, dtype="float64")
    else:
        values = _validate.array("Argument `pdf`", pdf)
        if values.shape != (partitions,):
            raise ValueError(
                f"Argument `pdf` must have one number for each of the {partitions} "
                f"subregions. Received: an array of shape {values.shape}"
            )
        if not (np.isfinite(values).all() and (values > 0).all()):
            bad = int(np.argmin(np.isfinite(values) & (values > 0)))
            raise ValueError(
                "Argument `pdf` must be finite and greater than 0 everywhere; give "
                "subregions without mass a small one. "
                f"Received: pdf[{bad}]={values[bad]}"
            )
    logs = np.log(values) - np.log(values.max())
    return (logs - np.log(np.exp(logs).sum())).astype("float32")


def suggest_partition(energies, partitions=100):
    """A partition for a contour sampler, from the energies of a short pilot run.

    The first boundary is the lower tenth of the energies: below it, the subregion of
    the lowest modes is left as it is. The last one lies as far above the highest energy
    as that lies above the first boundary, since a flattened chain climbs higher than
    the pilot did. Leave the pilot's own burn-in away.

    Args:
        energies: energies U in nats, any shape, at least 10 that are finite: such as
            `draws.info["energy"]` of `mh.sample`, or `posterior.energies`.
        partitions: number of subregions, at least 3.

    Returns:
        dict with `energy_min`, `energy_gap` and `partitions`, for
        `mh.CSGLD(..., **suggestion)`.

    Raises:
        ValueError: there are too few energies, all are the same, or an argument is of
            another kind.

    Example:

    >>> import numpy as np
    >>> pilot = np.random.default_rng(0).gamma(2.0, size=1000) + 50.0
    >>> suggestion = suggest_partition(pilot, partitions=40)
    >>> sorted(suggestion)
    ['energy_gap', 'energy_min', 'partitions']
    >>> bool(50.0 < suggestion["energy_min"] < 51.0)
    True

    Reference: Deng, Lin and Liang (2020), section 4 and appendix D.5, where the
    partitions are set by hand.
    """
    partitions = _validate.integer("partitions", partitions, 3)
    energies = np.ravel(_validate.array("Argument `energies`", energies))
    finite = energies[np.isfinite(energies)]
    if finite.size < 10 or finite.max() <= finite.min():
        raise ValueError(
            "Argument `energies` must have at least 10 finite energies that differ. "
            f"Received: {energies.size} energies, {finite.size} of them finite"
            + (f", between {finite.min()} and {finite.max()}" if finite.size else "")
        )
    low = np.quantile(finite, 0.1)
    gap = 2.0 * (finite.max() - low) / (partitions - 2)
    return {
        "energy_min": float(low),
        "energy_gap": float(gap),
        "partitions": partitions,
    }


def _fix(low, high, partitions):
    """The advice of a warning: a partition for energies between `low` and `high`."""
    low, high = float(low), float(high)
    first = low + 0.05 * (high - low)
    gap = max(2.0 * (high - first) / max(partitions - 2, 1), 1e-6)
    return (
        f"Energies lie between {low:.6g} and {high:.6g}: try "
        f"`energy_min={first:.6g}, energy_gap={gap:.3g}, partitions={partitions}`, or "
        "`mh.suggest_partition(energies)` with the energies of a short pilot run."
    )


def outside_message(below, above, low, high, partitions):
    """What to say of a stretch of the run, or None.

    `below` and `above` are the shares of its energies in the first and last subregion,
    `low` and `high` its extreme energies.
    """
    if above > _MOST_ABOVE:
        where = f"{above:.0%} of the energies lie above the last boundary"
    elif below > _MOST_BELOW:
        where = f"{below:.0%} of the energies lie below the first boundary"
    else:
        return None
    return (
        f"{where} of the partition, where a contour sampler does what the plain one "
        f"does. {_fix(low, high, partitions)}"
    )


def empty_message(visits, contour):
    """What to say of subregions that a whole run did not visit, or None."""
    visits = np.asarray(visits)
    if visits.sum() < _ENOUGH_VISITS * len(visits):
        return None
    # Without the last thousandth of the visits: a chain may be thrown far up once.
    share = np.cumsum(visits) / visits.sum()
    first, last = int(np.argmax(visits > 0)), int(np.argmax(share >= _VISITED))
    inside = int(np.sum(visits[first : last + 1] == 0))
    if first == 0 and inside == 0:
        return None
    lowest = contour.energy_min + first * contour.energy_gap
    if first > 0:
        where = f"the first {first} of {len(visits)} subregions of the energy"
        fix = f"Raise `energy_min` to {lowest:.6g}, the lowest that was visited."
    else:
        where = f"{inside} subregions of the energy between others that were visited"
        fix = f"Raise `energy_gap`, such as to {2 * contour.energy_gap:.3g}."
    return (
        f"No point was in {where}. The learned density falls without end there, and at "
        "their border the multiplier of the gradient is only held by "
        f"`max_multiplier`. {fix}"
    )


def run_message(visits, low, high, contour):
    """What to say of a whole run, whose visits of the subregions are counted, or None.

    `low` and `high` are its extreme energies.
    """
    total = max(visits.sum(), 1)
    below, above = visits[0] / total, visits[-1] / total
    message = outside_message(below, above, low, high, len(visits))
    return message or empty_message(visits, contour)
