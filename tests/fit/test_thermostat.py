"""SGNHT: gradient noise of unknown size, which its thermostat absorbs."""

import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import Drive

N, T, CURVATURE = 100, 0.7, 200.0  # L, in nats
RATE, MOMENTUM, SIZE = 0.1, 0.8, 40_000
STIFFNESS = RATE / N * CURVATURE  # eta L
NOISES = [0.0, 0.014, 0.028]  # of a gradient of U/N, V: B is 0, 0.1, 0.2
STEPS, BURN_IN, EVERY = 420, 240, 30


def absorbed(noise):
    """The friction that gradient noise of variance V needs."""
    return RATE * N * noise / (2.0 * T)


def variance_of_sghmc(noise):
    """That of the docstring of `mh.SGHMC`."""
    heat = T * (1.0 + absorbed(noise) / (1.0 - MOMENTUM))
    return heat / (CURVATURE * (1.0 - STIFFNESS / (2.0 * (1.0 + MOMENTUM))))


def run(optimizer, noise, size=SIZE):
    """Variances of the position, of weights that are all alike."""
    rng = np.random.default_rng(1)
    drive = Drive(optimizer, np.zeros(size))
    state, squares = np.zeros(size), []
    for k in range(STEPS):
        gradient = CURVATURE * state / N + noise**0.5 * rng.normal(size=size)
        state = drive.step(0.0, gradient)
        if k >= BURN_IN and k % EVERY == EVERY - 1:
            squares.append(np.mean(state.astype("float64") ** 2))
    return squares


def error_of(variance, squares):
    return variance * (2.0 / (SIZE * len(squares))) ** 0.5


@pytest.mark.parametrize("noise", NOISES)
def test_sgnht_keeps_the_variance_that_sghmc_loses_to_gradient_noise(noise):
    """T / L within 4 standard errors, where that of SGHMC is its formula's."""
    common = dict(train_size=N, temperature=T, momentum=MOMENTUM, seed=2)
    squares = run(mh.SGNHT(RATE, **common), noise)
    ideal = T / CURVATURE
    assert abs(np.mean(squares) - ideal) < 4.0 * error_of(ideal, squares)

    squares = run(mh.SGHMC(RATE, **common), noise)
    biased = variance_of_sghmc(noise)
    assert abs(np.mean(squares) - biased) < 4.0 * error_of(biased, squares)
    # The two laws are far apart, and by far with noise.
    assert biased - ideal > 10.0 * error_of(biased, squares)
