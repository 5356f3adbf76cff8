"""Outputs that are no means, such as a log variance: their average is told."""

import functools
import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from tests.support.models import numpy

pytestmark = pytest.mark.every_backend

X = np.random.default_rng(0).normal(size=(16, 2)).astype("float32")
Y = X[:, :1] + 0.3


def nats(y, outputs, scale=1.0):
    """Of a mean and a log variance, as people write it."""
    mean, log_variance = outputs[:, :1], outputs[:, 1:]
    return 0.5 * (log_variance + scale * ops.square(y - mean) / ops.exp(log_variance))


class Nats(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return nats(y_true, y_pred)


class NatsOfSquares(keras.losses.MeanSquaredError):
    def call(self, y_true, y_pred):
        return nats(y_true, y_pred)


class OfOne(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return ops.square(y_true - y_pred)


class WithSmoothing(keras.losses.SparseCategoricalCrossentropy):
    def call(self, y_true, y_pred):
        return super().call(y_true, y_pred)


OWN = [nats, functools.partial(nats, scale=1.0), Nats(), NatsOfSquares()]


def network(loss, units=2):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
    model.compile("sgd", loss)
    return model


def two_members(model, activation=None):
    stacked = [np.stack([numpy(v), 2.0 * numpy(v)]) for v in model.weights]
    return ensemble_of(model, stacked, np.ones(2), activation)


def told(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in caught if w.filename == __file__]


@pytest.mark.parametrize("loss", OWN)
def test_a_mean_of_unknown_outputs_is_told(loss):
    model = network(loss)
    (found,) = told(lambda: two_members(model))
    assert "such as a log variance" in found and "predict_members" in found
    ensemble = two_members(model, "linear")
    (found,) = told(lambda: ensemble.evaluate(X, Y, verbose=0))
    assert "2 for each 1 of the targets" in found
    assert "`mh.losses`" in found and "`predict_members`" in found
    assert told(lambda: ensemble.evaluate(X, Y, verbose=0)) == []


def test_the_outputs_of_a_likelihood_are_parameters_too():
    """The number of `evaluate` is not that of the mixture, which `mh.evaluate` has."""
    loss = mh.losses.GaussianNLL()
    ensemble = two_members(network(loss))
    (found,) = told(lambda: ensemble.evaluate(X, Y, verbose=0))
    assert "score it with `mh.evaluate`" in found
    members = [numpy(loss.call(Y, p)) for p in ensemble.predict_members(X)]
    right = -np.mean(np.logaddexp(*np.negative(members)) - np.log(2.0))
    assert abs(ensemble.evaluate(X, Y, verbose=0) - right) > 0.1
    table = mh.evaluate({"ensemble": ensemble}, X, Y)
    assert table.column("nll")[0] == pytest.approx(right, rel=1e-4)


@pytest.mark.parametrize(
    ("loss", "units", "y"),
    [
        ("mse", 1, Y),
        (OfOne(), 1, Y),
        (OfOne(), 2, np.concatenate([Y, Y], 1)),
        (mh.losses.GaussianNLL(0.3), 1, Y),
        (WithSmoothing(from_logits=True), 2, np.arange(16) % 2),
    ],
)
def test_means_of_means_are_not_told(loss, units, y):
    ensemble = two_members(network(loss, units), "linear")
    assert told(lambda: ensemble.evaluate(X, y, verbose=0)) == []


def test_logits_of_a_subclass_are_known():
    model = network(WithSmoothing(from_logits=True))
    assert told(lambda: two_members(model)) == []


def test_scores_of_unknown_outputs_say_what_to_do():
    ensemble = two_members(network(nats), "linear")
    remedy = pytest.raises(ValueError, match="`mh.losses`")
    with remedy:
        mh.evaluate({"ensemble": ensemble}, X, Y)
    with remedy:
        mh.evaluate({"ensemble": ensemble}, X, Y, noise_std=0.3)
    with remedy:
        mh.predict_distribution(ensemble, X)
    with remedy:
        mh.conformal_intervals(ensemble, X, Y)
