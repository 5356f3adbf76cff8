"""SGNHT on a Gaussian: the variances of the docstring of its file, by its own step.

tests/fit/test_thermostat.py has the same laws of the optimizer, in longer runs.
"""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers import sgnht
from tests.support.kernel_tools import moved
from tests.support.kernel_tools import tensor

N, T, CURVATURE = 100, 0.7, 200.0  # L, in nats
RATE, FRICTION, SIZE = 0.1, 0.2, 40_000  # eta L is 0.2
STEPS, BURN_IN, EVERY = 180, 120, 30
KERNEL = sgnht.sgnht(RATE, momentum=1.0 - FRICTION)
NOISE = 0.014  # V, of a gradient of U/N: B is 0.1


def variance_of(noise):
    """Of the position, in T / L."""
    rng = np.random.default_rng(1)
    position = [tensor((T / CURVATURE) ** 0.5 * rng.normal(size=SIZE))]
    heat = RATE * T / N
    velocity = [tensor(heat**0.5 * rng.normal(size=SIZE))]
    # Where it comes to, so that the run is short.
    thermostat = tensor(FRICTION + RATE * N * noise / (2.0 * T))
    found = []
    for k in range(1, STEPS + 1):
        of_gradient, normals = (tensor(rng.normal(size=SIZE)) for _ in range(2))
        gradient = [CURVATURE / N * position[0] + noise**0.5 * of_gradient]
        state = sgnht.State(position, velocity, thermostat)
        settings = dict(learning_rate=RATE, temperature=T, train_size=N)
        state = moved(KERNEL, state, gradient, [normals], **settings)
        position, velocity, thermostat = state
        if k > BURN_IN and k % EVERY == 0:
            found.append(ops.convert_to_numpy(position[0]).astype("float64").var())
    return np.mean(found) * CURVATURE / T


def assert_law(noise):
    """Within four standard errors of two independent sets of positions."""
    draws = SIZE * (STEPS - BURN_IN) / EVERY
    assert abs(variance_of(noise) - 1.0) < 4.0 * (2.0 / draws) ** 0.5


@pytest.mark.parametrize("noise", [0.0, NOISE])
def test_the_variance_is_that_of_the_target_with_and_without_gradient_noise(noise):
    assert_law(noise)
