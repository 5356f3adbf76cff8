"""Members in half precision are averaged in float32."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

X = np.random.default_rng(0).normal(size=(50, 8)).astype("float32")


@pytest.fixture(params=["mixed_bfloat16", "mixed_float16"], autouse=True)
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield
    keras.config.set_dtype_policy(before)


def network():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.3)]
    return keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(4)])


def test_of_an_ensemble():
    model, rng = network(), np.random.default_rng(1)
    ensemble = mh.Ensemble(model, 20, "softmax")
    members = [rng.normal(size=(20, *w.shape)) for w in model.get_weights()]
    ensemble.set_members(members, np.ones(20))
    mean = ensemble.predict(X, verbose=0)
    assert mean.dtype == "float32"
    np.testing.assert_allclose(mean.sum(axis=1), 1.0, atol=1e-6)
    each = ensemble.predict_members(X)
    np.testing.assert_allclose(each.astype("float64").mean(axis=0), mean, atol=1e-6)


def test_of_dropout():
    passes = mh.MCDropout(network(), 10, "softmax")
    mean = passes.predict(X, verbose=0)
    assert mean.dtype == "float32"
    np.testing.assert_allclose(mean.sum(axis=1), 1.0, atol=1e-6)
