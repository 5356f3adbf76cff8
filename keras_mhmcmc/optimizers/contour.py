"""What users call on the contour samplers, besides what every sampler has."""

from typing import Any

import numpy as np

from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc.algorithms.contour_sampler import ContourSampler
from keras_mhmcmc.optimizers.partition_watch import PartitionWatch
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.schedules import Schedule


class ContourOptimizer(Sampler):
    """Abstract: a sampler that flattens the energy and weights its samples."""

    algorithm: ContourSampler

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        algorithm: ContourSampler,
        **arguments: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=algorithm,
            watch=PartitionWatch(type(self).__name__, algorithm),
            **arguments,
        )

    @property
    def partition(self) -> EnergyPartition | list[EnergyPartition] | None:
        """The partition of the energy.

        With `partition="auto"`, it is the one that the pilot found, and None until the
        end of the pilot. With several chains it is then a list, with one for each.
        """
        given = self.arguments["partition"]
        if isinstance(given, EnergyPartition):
            return given
        if not self.built:
            return None
        contour = self.algorithm.contour_of(self._parts.state.arrays())
        low, gap = np.ravel(contour.energy_min), np.ravel(contour.energy_gap)
        if not np.isfinite(gap).all():
            return None
        found = [
            EnergyPartition(float(x), float(y), contour.partitions)
            for x, y in zip(low, gap, strict=True)
        ]
        return found[0] if self.num_chains is None else found

    def learned_masses(self) -> Array:
        """Return theta, the learned mass of each subregion, shape (partitions,).

        With several chains the shape is (chains, partitions). The sum over subregions
        is 1.
        """
        log_masses = ops.convert_to_numpy(self._parts.state.structure.log_masses)
        return np.exp(log_masses.astype("float64"))

    def visits(self) -> Array:
        """Return the number of steps in each subregion, shape (partitions,).

        With several chains the shape is (chains, partitions).
        """
        return ops.convert_to_numpy(self._parts.state.structure.visits)
