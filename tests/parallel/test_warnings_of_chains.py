"""What a single model is warned of, chains are warned of as well."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def total(y_true, y_pred):
    return ops.sum(ops.square(y_true - y_pred))


def nll():
    return mh.losses.GaussianNLL(1.0)


def by_weights():
    return mh.losses.GaussianNLL(1.0, reduction="mean_with_sample_weight")


SEVENS = np.full(64, 7.0)
# Regularizer, prior, loss, weights of the examples, and what the only warning says.
CASES = {
    "a sum": (None, None, lambda: total, None, "is a sum over the mini-batch"),
    "two priors": ("l2", mh.priors.Gaussian(1.0), nll, None, "is a second prior"),
    "sevens": (None, None, nll, SEVENS, "counts an example 7 times"),
    "sevens that do not matter": (None, None, by_weights, SEVENS, None),
    "nothing": (None, mh.priors.Gaussian(1.0), nll, None, None),
}


@pytest.mark.parametrize("chains", [None, 1, 2])
@pytest.mark.parametrize("case", CASES)
def test_warnings(case, chains):
    regularizer, prior, loss, weights, expected = CASES[case]
    keras.utils.set_random_seed(0)
    layer = keras.layers.Dense(1, kernel_regularizer=regularizer)
    model = keras.Sequential([keras.Input((3,)), layer])
    if chains is not None:
        model = mh.ParallelChains(model, chains, seed=0)
    sampler = mh.SGLD(1e-5, train_size=64, prior=prior, seed=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.compile(sampler, loss())
        callbacks = [mh.PosteriorSamples()]
        model.fit(X, Y, 16, sample_weight=weights, verbose=0, callbacks=callbacks)
    ours = ("mini-batch", "prior", "an example")
    told = [str(w.message) for w in caught]
    told = [text for text in told if any(word in text for word in ours)]
    assert len(told) == (expected is not None), told
    assert expected is None or expected in told[0]


def test_an_optimizer_that_would_divide_the_gradients_is_refused():
    """The chains do not scale their losses."""
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    chains = mh.ParallelChains(network, 2, seed=0)
    with pytest.raises(ValueError, match="must not have `loss_scale_factor`"):
        chains.compile(keras.optimizers.SGD(0.1, loss_scale_factor=1024.0), "mse")


def test_the_regularizer_is_in_the_loss_of_each_chain_once():
    keras.utils.set_random_seed(0)
    layer = keras.layers.Dense(1, kernel_regularizer="l2")
    model = keras.Sequential([keras.Input((3,)), layer])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    expected = model.evaluate(X, Y, verbose=0)
    chains = mh.ParallelChains(model, 1, seed=0)
    chains.compile(keras.optimizers.SGD(0.0), "mse")
    assert chains.evaluate(X, Y, verbose=0) == pytest.approx(expected, rel=1e-5)
    history = chains.fit(X, Y, verbose=0, epochs=2)
    assert history.history["loss"][-1] == pytest.approx(expected, rel=1e-5)
