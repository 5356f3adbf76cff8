"""The variances of SGLD and SGHMC on a Gaussian with gradient noise: closed forms."""

import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import Drive

N, T, CURVATURE = 100, 0.7, 200.0  # L, in nats


def closed_form(rate, momentum, noise):
    """That of the docstrings of `mh.SGHMC` and, without momentum, of `mh.SGLD`."""
    heat = T + rate * N * noise / (2.0 * (1.0 - momentum))
    return heat / (CURVATURE * (1.0 - rate / N * CURVATURE / (2.0 * (1.0 + momentum))))


@pytest.mark.parametrize("name", ["SGLD", "SGHMC"])
def test_the_samplers_have_that_variance(name):
    """Weights that are all alike, with gradients whose noise is drawn here."""
    rate, noise, size = 0.1, 0.2, 40_000
    make = {
        "SGLD": lambda **common: mh.SGLD(rate, **common),
        "SGHMC": lambda **common: mh.SGHMC(rate, momentum=0.8, **common),
    }[name]
    momentum = 0.8 if name == "SGHMC" else 0.0
    rng = np.random.default_rng(1)
    drive = Drive(make(train_size=N, temperature=T, seed=2), np.zeros(size))
    state, squares = np.zeros(size), []
    for k in range(180):
        gradient = CURVATURE * state / N + noise**0.5 * rng.normal(size=size)
        state = drive.step(0.0, gradient)
        if k >= 60 and k % 30 == 29:
            squares.append(np.mean(state.astype("float64") ** 2))
    expected = closed_form(rate, momentum, noise)
    error = expected * (2.0 / (size * len(squares))) ** 0.5
    assert abs(np.mean(squares) - expected) < 4.0 * error
    # Without its noise term the formula would be far away.
    assert closed_form(rate, momentum, 0.0) < 0.65 * expected


@pytest.mark.parametrize(("pull", "left"), [(0.3, 0.65), (0.1, 0.30), (0.03, 0.10)])
def test_shuffled_epochs_leave_a_share_of_the_noise(pull, left):
    """Batches of one epoch share no example: their noise cancels over the epoch.

    SGLD at T = 0 with 10 batches an epoch; the table of energy_and_units.md.
    """
    size, batch, chains = 200, 20, 500
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=size)
    gradients -= gradients.mean()
    position, squares = np.zeros(chains), []
    for epoch in range(int(40 / pull)):
        order = np.argsort(rng.random((chains, size)), axis=1)
        noise = gradients[order].reshape(chains, -1, batch).mean(axis=2)
        for drawn in noise.T:
            position = position - pull * position - drawn
            if epoch >= 10 / pull:
                squares.append(np.mean(position**2))
    share = (size - batch) / (size - 1.0) / batch
    independent = share * np.mean(gradients**2) / (2.0 * pull * (1.0 - pull / 2.0))
    assert np.mean(squares) / independent == pytest.approx(left, rel=0.06)
