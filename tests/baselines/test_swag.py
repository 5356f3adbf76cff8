"""SWAG: the Gaussian of kept weights that members are drawn from."""

import sys

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.statistics.planting import wrap
from tests.support import models_people_write
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential

SWAG_FILE = sys.modules["keras_mhmcmc.baselines.swag"]
pytestmark = pytest.mark.filterwarnings("ignore:The optimizer .* is not a sampler")


class Recorder(keras.callbacks.Callback):
    """Keeps all trainable weights at the end of each epoch, one row each."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def on_epoch_end(self, epoch, logs=None):
        arrays = [numpy(v).ravel() for v in self.model.trainable_variables]
        self.rows.append(np.concatenate(arrays).astype("float64"))


def flat(arrays, axes=0):
    """Arrays (..., weight) as one; the first `axes` axes stay."""
    rows = [np.reshape(a, (*np.shape(a)[:axes], -1)) for a in arrays]
    return np.concatenate(rows, axis=-1)


def small():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])


def trained(model=None, optimizer=None, epochs=6, **options):
    """A callback after `fit`, and the weights at the ends of the epochs."""
    model = model or small()
    posterior, recorder = mh.PosteriorSamples(**options), Recorder()
    x, y = data()
    model.compile(optimizer or keras.optimizers.SGD(0.3), "mse")
    callbacks = [posterior, recorder]
    model.fit(
        x[:, :2], x[:, 2:4], 32, epochs=epochs, verbose=0, callbacks=callbacks
    )  # 3 steps an epoch
    return posterior, np.stack(recorder.rows), model


def deviations_of(rows):
    """Of each state from the mean of the states up to it, after algorithm 1."""
    return np.stack([row - rows[: i + 1].mean(0) for i, row in enumerate(rows)])


def covariance_of(rows, rank, diagonal=False):
    if diagonal:
        return np.diag(rows.var(axis=0))
    columns = deviations_of(rows)[-rank:].T
    low_rank = columns @ columns.T / (columns.shape[1] - 1)
    return 0.5 * (np.diag(rows.var(axis=0)) + low_rank)


def check_draws(diagonal=False, scale=1.0, members=4000):
    """The error of a covariance S from n draws: (S_ii S_jj + S_ij^2) / n squared."""
    posterior, rows, model = trained()
    given = dict(rank=4, seed=1, diagonal=diagonal, scale=scale, activation="linear")
    ensemble = mh.swag(posterior, model, members, **given)
    draws = flat([numpy(v) for v in ensemble.weights[:-1]], 1).astype("float64")
    covariance = scale * covariance_of(rows, 4, diagonal)
    variance = np.diag(covariance)
    errors = (draws.mean(0) - rows.mean(0)) / np.sqrt(variance / members)
    assert np.abs(errors).max() < 4.5
    tolerance = np.sqrt((np.outer(variance, variance) + covariance**2) / members)
    assert (np.abs(np.cov(draws.T) - covariance) < 4.5 * tolerance).all()


class TestDraws:
    @pytest.mark.parametrize(("diagonal", "scale"), [(False, 4.0), (True, 1.0)])
    def test_have_the_moments_of_the_gaussian(self, diagonal, scale):
        check_draws(diagonal, scale)

    def test_a_scale_of_zero_gives_the_mean(self):
        posterior, rows, model = trained()
        ensemble = mh.swag(posterior, model, 3, scale=0.0)
        x = data()[0][:, :2]
        kernel, bias = rows.mean(0)[:4].reshape(2, 2), rows.mean(0)[4:]
        for prediction in ensemble.predict_members(x):
            np.testing.assert_allclose(prediction, x @ kernel + bias, atol=1e-5)

    def test_a_seed_repeats_them(self):
        posterior, _, model = trained()
        values = [
            flat(mh.swag(posterior, model, 2, seed=s).get_weights()) for s in (1, 1, 2)
        ]
        np.testing.assert_array_equal(values[0], values[1])
        assert np.any(values[0] != values[2])

    def test_each_of_several_networks_has_its_own_gaussian(self):
        """MultiSWAG: with a scale of 0 the members are the means of the networks."""
        x, y = data()
        chains = mh.ParallelChains(small(), 2, seed=0)
        chains.compile(keras.optimizers.SGD(0.3), "mse")
        posterior = mh.PosteriorSamples()
        chains.fit(x[:, :2], x[:, 2:4], 32, epochs=3, verbose=0, callbacks=[posterior])
        found = [numpy(v) for v in mh.swag(posterior, chains, 2, scale=0.0).weights]
        for values, states in zip(found, posterior.chains(chains)[0], strict=False):
            means = states.mean(axis=1)
            np.testing.assert_allclose(values, means[[0, 0, 1, 1]], atol=1e-6)


def from_the_final_mean(real, states, rank):
    return (states - states.mean(axis=0))[-rank:]


def without_correlations(real, states, rank, rng, members, scale, diagonal):
    return real(states, rank, rng, members, 0.5 * scale, True)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("last_deviations", from_the_final_mean), ("draws", without_correlations)],
)
def test_a_planted_fault_is_caught(monkeypatch, name, fault):
    wrap(monkeypatch, SWAG_FILE, name, fault)
    with pytest.raises(AssertionError):
        check_draws()


@pytest.mark.parametrize("name", ["unbuilt", "functional", "subclass", "frozen"])
def test_models_as_people_write_them(name):
    written = models_people_write.MODELS[name]
    model, (x, y), posterior = written.build(), written.data(), mh.PosteriorSamples()
    model.compile("adam", written.loss, metrics=written.metrics)
    model.fit(x, y, epochs=3, verbose=0, callbacks=[posterior])
    ensemble = mh.swag(posterior, model, 4)
    assert np.isfinite(ensemble.evaluate(x, y, verbose=0)).all()
    np.testing.assert_allclose(ensemble.predict(x, verbose=0).sum(-1), 1.0, atol=1e-5)
    assert len(ensemble.shared) == (2 if name == "frozen" else 0)


def test_statistics_of_normalisation_can_be_estimated_again():
    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization()]
    head = keras.layers.Dense(3, "softmax")
    model = keras.Sequential([keras.Input((FEATURES,)), *layers, head])
    posterior = mh.PosteriorSamples()
    fit(compiled("adam", model), epochs=3, callbacks=[posterior])
    ensemble, x = mh.swag(posterior, model, 3), data()[0]
    last = numpy(layers[1].moving_mean)
    index = [v.path for v in model.weights].index(layers[1].moving_mean.path)
    np.testing.assert_array_equal(numpy(ensemble.weights[index]), [last] * 3)
    ensemble.recalibrate(x)
    kernels, biases = (numpy(v) for v in ensemble.weights[:2])
    for member, found in enumerate(numpy(ensemble.weights[index])):
        expected = (x @ kernels[member] + biases[member]).mean(0)
        np.testing.assert_allclose(found, expected, atol=1e-4)


class TestRefused:
    def test_too_few_states(self):
        posterior, _, model = trained(epochs=1)
        with pytest.raises(ValueError, match="at least two.*Received: 1 states"):
            mh.swag(posterior, model)

    def test_another_model(self):
        posterior, *_ = trained(epochs=2)
        with pytest.raises(ValueError, match="`model` must not be of another model"):
            mh.swag(posterior, sequential())

    def test_weights_that_are_not_finite(self):
        posterior, _, model = trained(optimizer=keras.optimizers.SGD(1e30))
        with pytest.raises(ValueError, match="must be finite.*lower its learning"):
            mh.swag(posterior, model)
