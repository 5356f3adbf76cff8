"""Mini-batch chains reach the tempered posterior, as full-batch chains do."""

import numpy as np
import pytest
from scipy import stats

import keras_mhmcmc as mh

WEIGHT = 20  # c_n
CHAINS = 800
SIZE = 20_000


@pytest.fixture(scope="module")
def target():
    return mh.targets.GaussianMean(SIZE, 2)


def last_positions(target, temperature, **law):
    """Standardised by the law that is wanted, at T = n / c_n."""
    draws = mh.sample(
        mh.kernels.mhbt(0.37, temperature=temperature),
        np.zeros(2),
        **law,
        num_steps=80,
        num_chains=CHAINS,
        every=80,
        progress=False,
    )
    mean, covariance = target.moments(SIZE / WEIGHT)
    return (draws.position[:, 0] - mean) / covariance[0, 0] ** 0.5


def mini_batches(target, batch_size):
    return {
        "log_likelihood": target.log_likelihood,
        "log_prior": target.log_prior,
        "data": target.data,
        "batch_size": batch_size,
    }


def is_the_law(positions):
    """Whether chains, one draw of each, agree with N(0, I): five standard errors.

    The bias of mini-batches widens the variance by c_n / m, 0.04 for m = 500.
    """
    mean_is_right = np.abs(positions.mean(0)).max() < 5 / CHAINS**0.5
    error = np.abs(positions.var(0) - 1).max()
    variance_is_right = error < 5 * (2 / CHAINS) ** 0.5 + 0.04
    # The limit of the Kolmogorov-Smirnov distance that is passed once in 100,000.
    limit = stats.kstwo.isf(1e-5, CHAINS) + 0.01
    distances = [stats.kstest(x, "norm").statistic for x in positions.T]
    return mean_is_right and variance_is_right and max(distances) < limit


@pytest.mark.slow_on("torch", "tensorflow")
def test_mini_batches_reach_the_tempered_posterior(target):
    law = mini_batches(target, 500)
    assert is_the_law(last_positions(target, SIZE / WEIGHT, **law))


def test_full_batches_reach_the_tempered_posterior(target):
    law = {"log_density": target.log_density}
    assert is_the_law(last_positions(target, SIZE / WEIGHT, **law))


def test_another_temperature_is_noticed(target):
    law = {"log_density": target.log_density}
    assert not is_the_law(last_positions(target, 1.5 * SIZE / WEIGHT, **law))


def test_a_bias_of_small_batches_is_noticed(target):
    # The widening is c_n / m = 0.5 here: batches too small for this temperature.
    law = mini_batches(target, 40)
    assert not is_the_law(last_positions(target, SIZE / WEIGHT, **law))
