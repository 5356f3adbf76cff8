"""What the tests of contour chains share: a partition, and where they run."""

import keras
import pytest

from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.samplers.contour import csgld

PARTITION = EnergyPartition(energy_min=2.0, energy_gap=0.5, partitions=12)


# The steps themselves are compared with the oracles on every backend.
long_run = pytest.mark.skipif(
    keras.backend.backend() == "torch",
    reason="many steps take minutes where the loop is not compiled",
)


def settings_with(**changes):
    """The checked settings; energy_min, energy_gap, partitions change the partition."""
    config = PARTITION.get_config()
    own = {name: changes.pop(name) for name in list(changes) if name in config}
    partition = EnergyPartition(**(config | own))
    return csgld(1.0, partition=partition, **changes)
