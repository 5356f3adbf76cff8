"""Ensembles whose outputs are logits, or have masks: what is averaged, and told."""

import functools
import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import data
from tests.support.models import numpy

X, Y = data()


def network(activation=None, units=CLASSES, loss=None, metrics=None):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(units, activation)]
    )
    if loss is not None:
        model.compile("sgd", loss, metrics=metrics)
    return model


def two_members(model, activation=None):
    """An ensemble of the model and of its double."""
    stacked = [np.stack([numpy(v), 2.0 * numpy(v)]) for v in model.weights]
    return ensemble_of(model, stacked, np.ones(2), activation)


def warnings_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in caught if w.filename == __file__]


def test_logits_of_a_model_without_a_loss_are_told():
    (found,) = warnings_of(lambda: two_members(network()))
    assert "not compiled" in found and 'activation="softmax"' in found
    assert warnings_of(lambda: two_members(network(), "linear")) == []
    assert warnings_of(lambda: two_members(network("softmax"))) == []
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert warnings_of(lambda: two_members(network(loss=loss))) == []


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.SparseCategoricalCrossentropy(),
        keras.losses.sparse_categorical_crossentropy,
    ],
)
def test_a_second_softmax_is_told(loss):
    model = network("softmax", loss=loss)
    (found,) = warnings_of(lambda: two_members(model, "softmax"))
    assert "second softmax" in found
    assert warnings_of(lambda: two_members(model, "linear")) == []
    assert warnings_of(lambda: two_members(network(loss="mse"), "softmax")) == []


def sign_accuracy(y, logits):
    return ops.mean(ops.cast((logits > 0.0) == (y > 0.5), "float32"))


@pytest.mark.parametrize(
    ("metric", "is_told"),
    [
        (sign_accuracy, True),
        (keras.metrics.Precision(thresholds=0.0), True),
        (keras.metrics.BinaryAccuracy(threshold=0.5), False),
        (keras.metrics.AUC(from_logits=True), False),
        ("mae", False),
    ],
)
def test_metrics_for_logits_are_told(metric, is_told):
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model = network(units=1, loss=loss, metrics=[metric])
    model.train_on_batch(X[:16], (Y[:16] > 0).astype("float32"))
    found = warnings_of(lambda: two_members(model))
    assert [("metric for logits" in text) for text in found] == [True] * is_told
    assert warnings_of(lambda: two_members(model, "linear")) == []


def tagger():
    """A word in, its tag out; 0 is padding, and its tags are wrong on purpose."""
    keras.utils.set_random_seed(0)
    words = keras.layers.Embedding(5, 5, mask_zero=True)
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            words,
            keras.layers.LSTM(8, return_sequences=True),
            keras.layers.Dense(5, "softmax"),
        ]
    )
    kernel, _ = model.layers[-1].get_weights()
    model.layers[-1].set_weights([kernel, np.array([0.0, 5.0, 5.0, 5.0, -5.0])])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def test_padding_does_not_count_in_the_scores_of_an_ensemble(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.integers(1, 4, (20, 6))
    x[:, 2:] *= rng.random((20, 1)) < 0.5
    y = np.where(x > 0, x, 4)
    model = tagger()
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    stacked = [np.stack([numpy(v)] * 2) for v in model.weights]
    ensemble = ensemble_of(model, stacked, np.ones(2), None)
    found = ensemble.evaluate(x, y, verbose=0, return_dict=True)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name
    ensemble.save(tmp_path / "ensemble.keras")
    again = keras.saving.load_model(tmp_path / "ensemble.keras")
    found = again.evaluate(x, y, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    everywhere = keras.losses.SparseCategoricalCrossentropy()
    plain = float(everywhere(y, ensemble.predict(x, verbose=0)))
    assert plain > expected["loss"] + 1.0  # the padding would be seen


@pytest.mark.slow
def test_a_pruned_network_with_a_loss_of_the_users_own_is_saved(tmp_path):
    def own_loss(y, p):
        return keras.losses.sparse_categorical_crossentropy(y, p)

    model = network("softmax")
    prior = mh.priors.SpikeSlab("kernel", v0=1e-2, v1=1.0)
    sampler = mh.SGHMCSA(0.01, train_size=len(X), prior=prior, seed=0)
    model.compile(sampler, own_loss, metrics=["accuracy"])
    model.fit(X, Y, batch_size=16, verbose=0)
    pruned = mh.prune(model, sampler)
    assert pruned.evaluate(X, Y, verbose=0)[1] >= 0.0
    pruned.save(tmp_path / "pruned.keras")
    keras.saving.load_model(
        tmp_path / "pruned.keras", custom_objects={"own_loss": own_loss}
    )


def test_samples_of_unequal_weight_are_told():
    model = network("softmax")
    rates = keras.optimizers.schedules.PiecewiseConstantDecay([6], [0.1, 0.01])
    sampler = mh.SGLD(rates, train_size=len(X), seed=0)
    model.compile(sampler, "sparse_categorical_crossentropy")
    posterior = mh.PosteriorSamples(every=2, weight_by="learning_rate")
    model.fit(X, Y, batch_size=16, epochs=4, verbose=0, callbacks=[posterior])
    (found,) = warnings_of(lambda: posterior.predictions(model, X))
    assert "all count alike" in found and "posterior.weights" in found
    posterior = mh.PosteriorSamples(every=2)
    model.fit(X, Y, batch_size=16, epochs=1, verbose=0, callbacks=[posterior])
    assert warnings_of(lambda: posterior.predictions(model, X)) == []


def test_the_next_run_may_be_of_another_network():
    posterior = mh.PosteriorSamples(every=1)
    inputs, last = keras.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")
    for middle in ([keras.layers.BatchNormalization()], []):
        model = keras.Sequential([inputs, *middle, keras.layers.Dense(4), last])
        model.compile(
            mh.SGLD(0.01, train_size=len(X), seed=0), "sparse_categorical_crossentropy"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, Y, batch_size=16, verbose=0, callbacks=[posterior])
        last = keras.layers.Dense(CLASSES, "softmax")
    ensemble = posterior.ensemble(model)
    assert ensemble.num_members == len(posterior)


# Outputs that are no means, such as a log variance: their average is told.

INPUTS = np.random.default_rng(0).normal(size=(16, 2)).astype("float32")
TARGETS = INPUTS[:, :1] + 0.3


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


def regression(loss, units=2):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
    model.compile("sgd", loss)
    return model


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize("loss", OWN)
def test_a_mean_of_unknown_outputs_is_warnings_of(loss):
    model = regression(loss)
    (found,) = warnings_of(lambda: two_members(model))
    assert 'or "linear" if they are means' in found
    ensemble = two_members(model, "linear")
    (found,) = warnings_of(lambda: ensemble.evaluate(INPUTS, TARGETS, verbose=0))
    assert "2 for each 1 of the targets" in found
    assert "`mh.losses`" in found and "`predict_members`" in found
    assert warnings_of(lambda: ensemble.evaluate(INPUTS, TARGETS, verbose=0)) == []


@pytest.mark.eager_and_compiled
def test_the_outputs_of_a_likelihood_are_parameters_too():
    """The number of `evaluate` is not that of the mixture, which `mh.evaluate` has."""
    loss = mh.losses.GaussianNLL()
    ensemble = two_members(regression(loss))
    (found,) = warnings_of(lambda: ensemble.evaluate(INPUTS, TARGETS, verbose=0))
    assert "score it with `mh.evaluate`" in found
    members = [numpy(loss.call(TARGETS, p)) for p in ensemble.predict_members(INPUTS)]
    right = -np.mean(np.logaddexp(*np.negative(members)) - np.log(2.0))
    assert abs(ensemble.evaluate(INPUTS, TARGETS, verbose=0) - right) > 0.1
    table = mh.evaluate({"ensemble": ensemble}, INPUTS, TARGETS)
    assert table.column("nll")[0] == pytest.approx(right, rel=1e-4)


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize(
    ("loss", "units", "y"),
    [
        ("mse", 1, TARGETS),
        (OfOne(), 1, TARGETS),
        (OfOne(), 2, np.concatenate([TARGETS, TARGETS], 1)),
        (mh.losses.GaussianNLL(0.3), 1, TARGETS),
        (WithSmoothing(from_logits=True), 2, np.arange(16) % 2),
    ],
)
def test_means_of_means_are_not_warnings_of(loss, units, y):
    ensemble = two_members(regression(loss, units), "linear")
    assert warnings_of(lambda: ensemble.evaluate(INPUTS, y, verbose=0)) == []


@pytest.mark.eager_and_compiled
def test_logits_of_a_subclass_are_known():
    model = regression(WithSmoothing(from_logits=True))
    assert warnings_of(lambda: two_members(model)) == []


@pytest.mark.eager_and_compiled
def test_scores_of_unknown_outputs_say_what_to_do():
    ensemble = two_members(regression(nats), "linear")
    remedy = pytest.raises(ValueError, match="`mh.losses`")
    with remedy:
        mh.evaluate({"ensemble": ensemble}, INPUTS, TARGETS)
    with remedy:
        mh.evaluate({"ensemble": ensemble}, INPUTS, TARGETS, noise_std=0.3)
    with remedy:
        mh.predict_distribution(ensemble, INPUTS)
    with remedy:
        mh.conformal_intervals(ensemble, INPUTS, TARGETS)
