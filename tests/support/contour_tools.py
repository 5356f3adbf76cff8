"""What the tests of contour chains share: a partition, and where they run."""

import keras
import pytest

from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.samplers.contour import contour_sampler
from keras_mhmcmc.samplers.sgld import sgld

BASE = dict(
    partition=EnergyPartition(energy_min=2.0, energy_gap=0.5, partitions=12),
    pilot_steps=100,
    zeta=0.75,
    step_size=None,
    random_field="zeta",
    difference="backward",
    max_multiplier=5.0,
    weight_power=None,
    rho=0.0,
    masses=None,
    adapt=True,
)


# The steps themselves are compared with the oracles on every backend.
long_run = pytest.mark.skipif(
    keras.backend.backend() == "torch",
    reason="many steps take minutes where the loop is not compiled",
)


def settings_with(**changes):
    """The checked settings; energy_min, energy_gap, partitions change the partition."""
    config = BASE["partition"].get_config()
    own = {name: changes.pop(name) for name in list(changes) if name in config}
    partition = EnergyPartition(**(config | own))
    return contour_sampler(sgld(1.0), **(BASE | {"partition": partition} | changes))
