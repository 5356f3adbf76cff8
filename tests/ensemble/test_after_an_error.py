"""Models of this package still work after inputs that they refuse."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = np.arange(64) % 3


def network():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5)]
    layers += [keras.layers.Dense(3, "softmax")]
    return keras.Sequential([keras.Input((4,)), *layers])


def ensemble():
    model = network()
    result = mh.Ensemble(model, 3)
    rng = np.random.default_rng(1)
    members = [rng.normal(size=(3, *w.shape)) for w in model.get_weights()]
    result.set_members(members, np.ones(3))
    return result


MODELS = {
    "ensemble": ensemble,
    "dropout": lambda: mh.MCDropout(network(), 3),
    "scaled": lambda: mh.TemperatureScaled(ensemble(), 2.0),
    "chains": lambda: mh.ParallelChains(network(), 2, seed=0),
}


def later_batch():
    """A good batch, then one with another shape."""
    yield X[:8]
    yield X[:8, :3]


@pytest.mark.parametrize("name", MODELS)
def test_wrong_inputs_do_no_harm(name):
    model = MODELS[name]()
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    before, shown = model.predict(X, verbose=0), repr(model)
    loss = model.evaluate(X, Y, verbose=0)
    calls = [
        lambda: model.predict(X[0], verbose=0),
        lambda: model.predict(X[:, :2], verbose=0),
        lambda: model.evaluate(X[:, :2], Y, verbose=0),
        lambda: model.predict(later_batch(), verbose=0),
    ]
    if hasattr(model, "predict_members"):
        calls.append(lambda: model.predict_members(X[:, :2]))
    for call in calls:
        with pytest.raises(Exception, match="."):
            call()
        after, other_loss = model.predict(X, verbose=0), model.evaluate(X, Y, verbose=0)
        assert repr(model) == shown
        if name == "dropout":  # each call draws its masks
            np.testing.assert_allclose(after.sum(axis=1), 1.0, rtol=1e-5)
            continue
        np.testing.assert_array_equal(after, before)
        np.testing.assert_allclose(other_loss, loss, rtol=1e-6)
