"""What users call on the contour samplers, besides what every sampler has."""

from typing import Any

import numpy as np

from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc.algorithms.contour import ContourSampler
from keras_mhmcmc.optimizers.partition_watch import PartitionWatch
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.schedules import Schedule


class ContourOptimizer(Sampler):
    """Abstract: a sampler that flattens the energy and weights its samples."""

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
            watch=PartitionWatch(algorithm.contour),
            **arguments,
        )

    @property
    def partition(self) -> EnergyPartition:
        """The partition of the energy."""
        return self.arguments["partition"]

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
