"""SWAG: which moments it collects, and the Gaussian that members are drawn from."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.baselines import swag as swag_file
from tests.statistics.planting import wrap
from tests.support import models_people_write
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential


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
    swag, recorder = mh.SWAG(**options), Recorder()
    x, y = data()
    model.compile(optimizer or keras.optimizers.SGD(0.3), "mse")
    callbacks = [swag, recorder]
    model.fit(
        x[:, :2], x[:, 2:4], 32, epochs=epochs, verbose=0, callbacks=callbacks
    )  # 3 steps an epoch
    return swag, np.stack(recorder.rows), model


def deviations_of(rows):
    """Of each state from the mean of the states up to it, after algorithm 1."""
    return np.stack([row - rows[: i + 1].mean(0) for i, row in enumerate(rows)])


def covariance_of(rows, rank, diagonal=False):
    if diagonal:
        return np.diag(rows.var(axis=0))
    columns = deviations_of(rows)[-rank:].T
    low_rank = columns @ columns.T / (columns.shape[1] - 1)
    return 0.5 * (np.diag(rows.var(axis=0)) + low_rank)


def check_moments():
    swag, rows, _ = trained(rank=4)
    rows = rows.astype("float64")
    np.testing.assert_allclose(flat(swag.mean), rows.mean(0), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(flat(swag.variance), rows.var(0), rtol=1e-5, atol=1e-12)
    expected = deviations_of(rows)[-4:]
    np.testing.assert_allclose(flat(swag.deviations, 1), expected, atol=1e-9)


def check_draws(diagonal=False, scale=1.0, members=4000):
    """The error of a covariance S from n draws: (S_ii S_jj + S_ij^2) / n squared."""
    swag, rows, model = trained(rank=4)
    ensemble = swag.ensemble(
        model, members, seed=1, diagonal=diagonal, scale=scale, activation="linear"
    )
    draws = flat([numpy(v) for v in ensemble.weights[:-1]], 1).astype("float64")
    covariance = scale * covariance_of(rows, 4, diagonal)
    variance = np.diag(covariance)
    errors = (draws.mean(0) - rows.mean(0)) / np.sqrt(variance / members)
    assert np.abs(errors).max() < 4.5
    tolerance = np.sqrt((np.outer(variance, variance) + covariance**2) / members)
    assert (np.abs(np.cov(draws.T) - covariance) < 4.5 * tolerance).all()


class TestMoments:
    def test_are_those_of_the_recorded_weights(self):
        check_moments()

    def test_burn_in_and_every_count_iterations(self):
        swag, *_ = trained(burn_in=4, every=5, epochs=6)
        np.testing.assert_array_equal(swag.iterations, [9, 14])
        swag, rows, _ = trained(burn_in=9, epochs=6)
        np.testing.assert_array_equal(swag.iterations, [12, 15, 18])
        np.testing.assert_allclose(flat(swag.mean), rows[3:].mean(0), atol=1e-7)

    @pytest.mark.skipif(
        keras.backend.backend() == "torch", reason="Keras refuses it on PyTorch"
    )
    def test_several_steps_in_one_execution(self):
        model, swag = sequential(), mh.SWAG(every=2)
        fit(compiled("sgd", model, steps_per_execution=3), callbacks=[swag])
        assert (np.diff(swag.iterations) >= 2).all() and len(swag) >= 2

    def test_a_second_fit_adds_to_them(self):
        swag, _, model = trained(epochs=2)
        x, _ = data()
        model.fit(x[:, :2], x[:, 2:4], 32, epochs=2, verbose=0, callbacks=[swag])
        np.testing.assert_array_equal(swag.iterations, [3, 6, 9, 12])

    def test_the_run_does_not_change(self):
        keras.utils.set_random_seed(0)
        _, with_swag, _ = trained()
        keras.utils.set_random_seed(0)
        model, recorder = small(), Recorder()
        model.compile(keras.optimizers.SGD(0.3), "mse")
        x, _ = data()
        model.fit(x[:, :2], x[:, 2:4], 32, epochs=6, verbose=0, callbacks=[recorder])
        np.testing.assert_array_equal(with_swag, np.stack(recorder.rows))

    def test_of_a_sampler_are_those_of_its_states(self):
        """And not of the proposal that stands in the model."""
        sampler = mh.MHBT(0.5, train_size=96, batch_size=16, seed=0)
        swag, posterior = mh.SWAG(every=2), mh.PosteriorSamples(every=2)
        model = compiled(sampler)
        fit(model, callbacks=[swag, posterior])
        np.testing.assert_array_equal(swag.iterations, posterior.iterations)
        members = [numpy(v) for v in posterior.ensemble(model).weights[:-1]]
        means = flat([m.mean(axis=0) for m in members])
        np.testing.assert_allclose(flat(swag.mean), means, atol=1e-6)


class TestDraws:
    @pytest.mark.parametrize("diagonal", [False, True])
    def test_have_the_moments_of_the_gaussian(self, diagonal):
        check_draws(diagonal)

    def test_scale_is_a_factor_of_the_covariance(self):
        check_draws(scale=4.0)

    def test_a_scale_of_zero_gives_the_mean(self):
        swag, rows, model = trained()
        ensemble = swag.ensemble(model, 3, scale=0.0)
        x = data()[0][:, :2]
        kernel, bias = rows.mean(0)[:4].reshape(2, 2), rows.mean(0)[4:]
        for prediction in ensemble.predict_members(x):
            np.testing.assert_allclose(prediction, x @ kernel + bias, atol=1e-5)

    def test_a_seed_repeats_them(self):
        swag, _, model = trained()
        values = [
            flat(swag.ensemble(model, 2, seed=s).get_weights()) for s in (1, 1, 2)
        ]
        np.testing.assert_array_equal(values[0], values[1])
        assert np.any(values[0] != values[2])


def from_the_final_mean(real, states, rank):
    return (states - states.mean(axis=0))[-rank:]


def without_the_half(real, states, rank, rng, members, scale, diagonal):
    return real(states, rank, rng, members, 2.0 * scale, diagonal)


def without_correlations(real, states, rank, rng, members, scale, diagonal):
    return real(states, rank, rng, members, 0.5 * scale, True)


@pytest.mark.parametrize(
    ("name", "fault", "check"),
    [
        ("last_deviations", from_the_final_mean, check_moments),
        ("last_deviations", from_the_final_mean, check_draws),
        ("draws", without_the_half, check_draws),
        ("draws", without_correlations, check_draws),
    ],
)
def test_a_planted_fault_is_caught(monkeypatch, name, fault, check):
    wrap(monkeypatch, swag_file, name, fault)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("name", ["unbuilt", "functional", "subclass", "frozen"])
def test_models_as_people_write_them(name):
    written = models_people_write.MODELS[name]
    model, (x, y), swag = written.build(), written.data(), mh.SWAG()
    model.compile("adam", written.loss, metrics=written.metrics)
    model.fit(x, y, epochs=3, verbose=0, callbacks=[swag])
    ensemble = swag.ensemble(model, 4)
    assert np.isfinite(ensemble.evaluate(x, y, verbose=0)).all()
    np.testing.assert_allclose(ensemble.predict(x, verbose=0).sum(-1), 1.0, atol=1e-5)
    assert len(ensemble.shared) == (2 if name == "frozen" else 0)


def test_statistics_of_normalisation_can_be_estimated_again():
    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization()]
    head = keras.layers.Dense(3, "softmax")
    model, swag = keras.Sequential([keras.Input((FEATURES,)), *layers, head]), mh.SWAG()
    fit(compiled("adam", model), epochs=3, callbacks=[swag])
    ensemble, x = swag.ensemble(model, 3), data()[0]
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
        swag, _, model = trained(epochs=1)
        with pytest.raises(ValueError, match="at least two.*Received: 1 states"):
            swag.ensemble(model)

    def test_another_run(self):
        swag, *_ = trained(epochs=2)
        x, _ = data()
        model = small()
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match="must not mix two runs"):
            model.fit(x[:, :2], x[:, 2:4], verbose=0, callbacks=[swag])

    def test_another_model(self):
        swag, *_ = trained(epochs=2)
        with pytest.raises(ValueError, match="`model` must be the model that was"):
            swag.ensemble(sequential())

    def test_weights_that_are_not_finite(self):
        swag, _, model = trained(optimizer=keras.optimizers.SGD(1e30))
        with pytest.raises(ValueError, match="must be finite.*lower its learning"):
            swag.ensemble(model)

    def test_layers_frozen_on_the_way(self):
        swag, _, model = trained(sequential_of_two(), epochs=2)
        model.layers[0].trainable = False
        x, _ = data()
        model.compile("sgd", "mse")
        model.optimizer.build(model.trainable_variables)
        model.optimizer.iterations.assign(6)
        with pytest.raises(ValueError, match="the same trainable weights"):
            model.fit(x[:, :2], x[:, 2:4], verbose=0, callbacks=[swag])

    def test_chains(self):
        chains = mh.ParallelChains(sequential(), 2, seed=0)
        with pytest.raises(ValueError, match="must be a single one.*deep_ensemble"):
            fit(compiled("adam", chains), callbacks=[mh.SWAG()])


def sequential_of_two():
    layers = [keras.layers.Dense(3), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((2,)), *layers])
