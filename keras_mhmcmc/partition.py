"""Partitions of the energy for the contour samplers."""

import dataclasses
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import Configurable
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.samplers.base import check
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.parts import contour

PARTITIONS = 100  # with `partition="auto"`; `docs/contour.md` has the measurements
_LARGEST_ENERGY = 1e37  # nats; twice the spread of energies is a float32 as well
_ANYTHING = _validate.Interval(-np.inf)


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


def checked_energy_partition(partition: Any, or_else: str = "") -> EnergyPartition:
    hint = f"an `mh.EnergyPartition`{or_else}. `mh.suggest_partition(energies)` makes "
    hint += "one from the energies of a short pilot run"
    return _validate.instance("partition", partition, EnergyPartition, hint)


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
    if finite.size < contour.FEWEST or finite.max() - finite.min() <= smallest:
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
    low = np.quantile(finite, contour.LOW_SHARE)
    gap = contour.width(low, finite.max(), partitions, reach=2.0)
    return EnergyPartition(float(low), float(gap), partitions)
