"""The rho of the spike-and-slab samplers beside exact inclusion probabilities."""

import itertools

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.example_tools import load

SAMPLERS = {"sgldsa": mh.SGLDSA, "sghmcsa": mh.SGHMCSA, "esm": mh.ESM}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


def make(name, rate, of_prior, **options):
    prior = mh.priors.SpikeSlab("kernel", v0=1e-2, v1=1.0, **of_prior)
    return SAMPLERS[name](rate, train_size=96, prior=prior, **options)


@pytest.fixture(scope="module")
def inclusion():
    """The module examples/benchmarks/inclusion.py."""
    return load("benchmarks/inclusion")


def test_the_enumeration_is_that_of_a_grid(inclusion):
    """Two predictors: the weights are integrated by sums, and the models are four."""
    x, y = inclusion.data()
    x = x[:, :2]
    grid = np.linspace(-0.5, 2.0, 1001)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    gram, moment = x.T @ x, x.T @ y
    log_likelihood = -0.5 * (
        gram[0, 0] * first**2 + 2 * gram[0, 1] * first * second + gram[1, 1] * second**2
    )
    log_likelihood += moment[0] * first + moment[1] * second
    likelihood = np.exp(log_likelihood - log_likelihood.max())
    mass = {}
    for model in itertools.product((0, 1), repeat=2):
        variances = [inclusion.V1 if k else inclusion.V0 for k in model]
        prior = [np.exp(-(grid**2) / (2 * v)) / v**0.5 for v in variances]
        mass[model] = prior[0] @ likelihood @ prior[1]
    second = (mass[0, 1] + mass[1, 1]) / sum(mass.values())
    assert inclusion.exact_inclusion(x, y)[1] == pytest.approx(second, abs=1e-6)


def test_rho_is_a_fixed_point_that_the_start_decides(inclusion):
    """The second predictor belongs to the slab with a probability of 0.945."""
    x, y = inclusion.data()
    exact = inclusion.exact_inclusion(x, y)[1]
    assert exact == pytest.approx(0.945, abs=1e-3)
    fixed, learned = {}, {}
    for start in inclusion.STARTS:
        fixed[start] = inclusion.fixed_point(x, y, start, rounds=400)[1]
        learned[start] = inclusion.learned_inclusion(x, y, start, steps=1000)[1]
    assert fixed[None] == pytest.approx(0.071, abs=1e-3)
    assert fixed[0.99] == pytest.approx(0.996, abs=1e-3)
    for start in inclusion.STARTS:
        assert learned[start] == pytest.approx(fixed[start], abs=0.15)


@every_sampler
def test_the_first_inclusion_is_the_one_asked_for(name):
    for options, expected in (
        ({}, 0.5),
        ({"delta": 0.2}, 0.2),
        ({"delta": 0.2, "initial_inclusion": 0.9}, 0.9),
    ):
        optimizer = make(name, 0.01, options)
        optimizer.build([keras.Variable(np.ones((3, 2), "float32"), name="kernel")])
        (rho,) = optimizer.inclusion_probabilities().values()
        np.testing.assert_allclose(rho, expected, rtol=1e-6)
        expected_delta = options.get("delta", 0.5)
        assert optimizer.diagnostics()["delta"] == pytest.approx(expected_delta)
