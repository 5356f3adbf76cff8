"""A deep ensemble: the members are the networks of an `mh.ParallelChains`."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential


def test_members_are_the_trained_networks():
    chains, (x, y) = mh.ParallelChains(sequential(), 3, seed=0), data()
    fit(compiled(keras.optimizers.Adam(0.01), chains))
    ensemble = mh.deep_ensemble(chains)
    expected = chains.predict(x, verbose=0)
    np.testing.assert_allclose(ensemble.predict_members(x), expected, atol=1e-6)
    mean = ensemble.predict(x, verbose=0)
    np.testing.assert_allclose(mean, expected.mean(axis=0), atol=1e-6)
    assert np.std(expected, axis=0).max() > 0.01
    _, accuracy = ensemble.evaluate(x, y, verbose=0)
    assert abs(accuracy - np.mean(mean.argmax(axis=1) == y)) < 1e-6


def test_of_a_sampler_they_are_the_states_of_its_chains():
    """And not the proposals that stand in the chains."""
    chains = mh.ParallelChains(sequential(), 2, seed=0)
    optimizer = mh.MHBT(0.5, train_size=96, batch_size=16, seed=0)
    fit(compiled(optimizer, chains))
    states = [numpy(state) for state in optimizer.state_values()]
    for found, state in zip(mh.deep_ensemble(chains).weights[:-1], states, strict=True):
        np.testing.assert_array_equal(numpy(found), state)


def test_of_logits_it_averages_probabilities():
    stack = [keras.Input((5,)), keras.layers.Dense(3)]
    chains = mh.ParallelChains(keras.Sequential(stack), 2, seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    chains.compile("adam", loss)
    fit(chains)
    mean = mh.deep_ensemble(chains).predict(data()[0], verbose=0)
    np.testing.assert_allclose(mean.sum(axis=1), 1.0, atol=1e-5)


def test_chains_that_were_not_trained_are_refused():
    chains = mh.ParallelChains(sequential(), 2, seed=0)
    with pytest.raises(ValueError, match="`chains` must be trained"):
        mh.deep_ensemble(chains)
    chains.compile("adam", "mse")
    with pytest.raises(ValueError, match="`chains` must be trained"):
        mh.deep_ensemble(chains)


@pytest.mark.eager_and_compiled
def test_a_list_of_models_and_one_of_them():
    """One that was never compiled, and one with a proposal of its chain in it."""
    models, x = [sequential(seed) for seed in (1, 2)], data()[0]
    expected = np.stack([model.predict(x, verbose=0) for model in models])
    ensemble = mh.deep_ensemble(models)
    np.testing.assert_allclose(ensemble.predict_members(x), expected, atol=1e-6)
    found = mh.deep_ensemble(models[1]).predict(x, verbose=0)
    np.testing.assert_allclose(found, expected[1], atol=1e-6)
    sampler = mh.MHBT(0.5, batch_size=16, seed=0)
    fit(compiled(sampler, models[0]))
    sampler.propose()
    states = [numpy(state) for state in sampler.state_values()]
    ensemble = mh.deep_ensemble(models)
    for found, state in zip(ensemble.weights[:-1], states, strict=True):
        np.testing.assert_array_equal(numpy(found)[0], state)
    _, accuracy = ensemble.evaluate(*data(), verbose=0)  # compiled, as the first is
    assert 0.0 <= accuracy <= 1.0


def test_models_of_two_architectures_are_refused():
    other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="`chains` must have built models of the same"):
        mh.deep_ensemble([sequential(), other])
