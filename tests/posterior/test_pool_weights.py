"""Joint weights of several chains, on a law of five energies with known masses."""

import types

import numpy as np

import keras_mhmcmc as mh
from keras_mhmcmc.posterior.reading import PooledStore
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Run

ENERGIES = np.arange(5.0)
MASSES = np.array([0.05, 0.1, 0.4, 0.4, 0.05])
ZETA = 0.75


def flattened(samples, chains, rng):
    """A pool of draws from MASSES^(1 - zeta), which are the law of a contour sampler.

    Each draw has the weight MASSES^zeta, as if all chains had learned the masses.
    """
    law = MASSES ** (1.0 - ZETA)
    drawn = rng.choice(len(law), (chains, samples), p=law / law.sum())
    logs = ZETA * np.log(MASSES)
    stores = [
        types.SimpleNamespace(
            run=Run(),
            records=[
                Record(i + 1, float(logs[level]), float(ENERGIES[level]))
                for i, level in enumerate(levels)
            ],
        )
        for levels in drawn
    ]
    posterior = mh.PosteriorSamples()
    posterior._store = PooledStore(stores, samples)
    return posterior


def mean_and_error(weights, values):
    mean = np.average(values, weights=weights)
    variance = np.average(np.square(values - mean), weights=weights)
    return mean, np.sqrt(variance * np.square(weights).sum()) / weights.sum()


def test_joint_weights_estimate_the_posterior_and_those_of_each_chain_do_not():
    """Chains of few samples: a chain of one sample has nothing to compare it with."""
    pool = flattened(samples=2, chains=3000, rng=np.random.default_rng(0))
    weights, energies = pool.weights, pool.energies
    exact = MASSES @ ENERGIES
    mean, error = mean_and_error(weights, energies)
    assert abs(mean - exact) < 4 * error
    per_chain = weights / weights.mean(axis=0)
    wrong, error = mean_and_error(per_chain, energies)
    assert abs(wrong - exact) > 8 * error


def test_chains_that_have_learned_the_masses_have_equal_mean_weights():
    pool = flattened(samples=3000, chains=4, rng=np.random.default_rng(0))
    means = pool.weights.mean(axis=0)
    error = pool.weights.std() / np.sqrt(len(pool))
    np.testing.assert_allclose(means, 1.0, atol=4 * error)
