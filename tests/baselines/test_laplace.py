"""Last-layer Laplace: against the Gaussian process of the features, and differences."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh
from keras_mhmcmc.baselines import head as heads
from keras_mhmcmc.baselines import last_layer
from tests.support import models_people_write
from tests.support.heads import NOISE
from tests.support.heads import SCALE
from tests.support.heads import WIDTH
from tests.support.heads import data
from tests.support.heads import network
from tests.support.models import CLASSES
from tests.support.models import numpy


def features_of(model, x):
    """With a column of ones, from the weights of the first layer."""
    kernel, bias = (w.astype("float64") for w in model.get_weights()[:2])
    hidden = np.tanh(x @ kernel + bias)
    return np.concatenate([hidden, np.ones((len(x), 1))], axis=1)


def scales():
    return mh.priors.Gaussian({"kernel": SCALE, "bias": 2.0})


def precisions():
    return np.array([SCALE**-2] * WIDTH + [0.25])


# Regression.


def process(model, x, y, x_new):
    """Mean (n, C) and covariance (n, n) of the Gaussian process with these features."""
    phi, new = features_of(model, x), features_of(model, x_new)
    kernel = lambda a, b: (a / precisions()) @ b.T
    gain = kernel(new, phi) @ np.linalg.inv(
        kernel(phi, phi) + NOISE**2 * np.eye(len(x))
    )
    return gain @ y, kernel(new, new) - gain @ kernel(phi, new)


def check_regression_is_exact():
    """To the accuracy of the float32 features."""
    model, (x, y), (x_new, _) = network(2), data(), data(count=7)
    head = heads.head_of(model, x, batch_size=8)
    tau = head.precisions(scales().bind(head.variables).precisions)
    mean, columns = last_layer.posterior_of_regression(head, tau, y, NOISE)
    expected_mean, expected_covariance = process(model, x, y, x_new)
    new = features_of(model, x_new)
    np.testing.assert_allclose(new @ mean, expected_mean, atol=1e-5)
    for precision in columns:
        covariance = new @ np.linalg.solve(precision, new.T)
        np.testing.assert_allclose(covariance, expected_covariance, atol=1e-6)


def test_the_posterior_of_a_regression_is_exact():
    check_regression_is_exact()


def test_members_of_a_regression_follow_the_gaussian_process():
    model, (x, y), (x_new, _) = network(2), data(), data(count=3)
    members = 3000
    ensemble = mh.last_layer_laplace(
        model, x, y, prior=scales(), noise_std=NOISE, members=members, seed=2
    )
    found = ensemble.predict_members(x_new).astype("float64")
    mean, covariance = process(model, x, y, x_new)
    variance = np.diag(covariance)[:, None]
    assert (np.abs(found.mean(0) - mean) < 4.5 * np.sqrt(variance / members)).all()
    tolerance = 4.5 * np.sqrt(2.0 / members)
    np.testing.assert_allclose(found.var(0) / variance, 1.0, atol=tolerance)
    correlation = np.corrcoef(found[:, 0].T)[0, 1]  # outputs are independent
    assert abs(correlation) < 4.5 / np.sqrt(members)


def test_the_noise_of_the_compiled_loss_is_the_default():
    """Targets of one output may be flat."""
    model, (x, y) = network(1), data(1)
    options = dict(prior=scales(), members=3)
    expected = mh.last_layer_laplace(model, x, y, noise_std=NOISE, **options)
    model.compile("sgd", mh.losses.GaussianNLL(NOISE))
    found = mh.last_layer_laplace(model, x, y[:, 0], **options)
    pair = [ensemble.predict(x, verbose=0) for ensemble in (found, expected)]
    np.testing.assert_array_equal(*pair)


# Classification.


def energy(values, phi, labels, tau):
    """-log posterior of a head in nats, float64; one column is a sigmoid."""
    logits = phi @ values
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    norm = np.log(np.exp(logits).sum(axis=1))
    nll = np.sum(norm - logits[np.arange(len(labels)), labels])
    return nll + 0.5 * np.sum(tau * values**2)


def differences(function, point, step=1e-3):
    """The matrix of second derivatives at a point, by central differences."""
    unit = step * np.eye(point.size)

    def at(move):
        return function(point + move.reshape(point.shape)) / (4 * step**2)

    def second(a, b):
        return at(a + b) - at(a - b) - at(b - a) + at(-a - b)

    return np.array([[second(a, b) for b in unit] for a in unit])


def check_hessian(units=CLASSES):
    model, (x, _) = network(units), data()
    labels = np.arange(len(x)) % max(units, 2)
    head = heads.head_of(model, x, batch_size=7)
    tau = head.precisions(scales().bind(head.variables).precisions)
    phi, values = features_of(model, x), head.values
    all_tau = np.repeat(precisions()[:, None], units, axis=1)
    expected = differences(lambda v: energy(v, phi, labels, all_tau), values)
    found = last_layer.hessian_of_classifier(head, tau)
    np.testing.assert_allclose(found, expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("units", [1, 2, CLASSES])
def test_the_hessian_is_that_of_the_energy(units):
    check_hessian(units)


def test_members_have_the_inverse_hessian_as_covariance():
    """The error of a covariance S from n draws: (S_ii S_jj + S_ij^2) / n squared."""
    model, (x, _), members = network(CLASSES), data(), 4000
    labels = np.arange(len(x)) % CLASSES
    ensemble = mh.last_layer_laplace(model, x, labels, prior=scales(), members=members)
    kernels, biases = (numpy(v).astype("float64") for v in ensemble.weights[2:4])
    draws = np.concatenate([kernels, biases[:, None]], axis=1).reshape(members, -1)
    head = heads.head_of(model, x, batch_size=100)
    tau = np.repeat(precisions()[:, None], CLASSES, axis=1)
    covariance = np.linalg.inv(last_layer.hessian_of_classifier(head, tau))
    variance = np.diag(covariance)
    errors = (draws.mean(0) - head.values.ravel()) / np.sqrt(variance / members)
    assert np.abs(errors).max() < 4.5
    tolerance = np.sqrt((np.outer(variance, variance) + covariance**2) / members)
    assert (np.abs(np.cov(draws.T) - covariance) < 4.5 * tolerance).all()


@pytest.mark.parametrize(
    ("units", "last", "activation"),
    [(3, (), "softmax"), (3, (layers.Softmax,), None), (1, (), "sigmoid")],
)
def test_a_softmax_or_sigmoid_may_be_in_the_model(units, last, activation):
    """The posterior is the same as of the logits."""
    x, _ = data()
    labels = np.arange(len(x)) % max(units, 2)
    options = dict(prior=mh.priors.Gaussian(1.0), members=4)
    logits = mh.last_layer_laplace(network(units), x, labels, **options)
    model = network(units, activation, *(make() for make in last))
    if units > 1:  # by mistake: the outputs tell better
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
    found = mh.last_layer_laplace(model, x, labels, **options)
    expected = logits.predict(x, verbose=0)
    np.testing.assert_allclose(found.predict(x, verbose=0), expected, atol=1e-5)
    assert expected.min() >= 0.0 and expected.max() <= 1.0


def the_kernels_prior_for_the_bias(self, of_variables):
    return np.full_like(self.values, of_variables[0])


def independent_classes(head, tau):
    hessian = REAL_HESSIAN(head, tau)
    classes = np.arange(len(hessian)) % head.values.shape[1]
    return np.where(classes[:, None] == classes, hessian, 0.0)


REAL_HESSIAN = last_layer.hessian_of_classifier
BIAS = heads.Head, "precisions", the_kernels_prior_for_the_bias
CLASSES_ALONE = last_layer, "hessian_of_classifier", independent_classes


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (BIAS, check_hessian),
        (BIAS, check_regression_is_exact),
        (CLASSES_ALONE, check_hessian),
    ],
)
def test_a_planted_fault_is_caught(monkeypatch, fault, check):
    monkeypatch.setattr(*fault)
    with pytest.raises(AssertionError):
        check()


# Models.


@pytest.mark.parametrize(
    "name",
    ["unbuilt", "functional", "subclass", "nested", "two_inputs", "added", "one_hot"],
)
def test_models_as_people_write_them(name):
    written = models_people_write.MODELS[name]
    model, (x, y) = written.build(), written.data()
    loss = written.loss if isinstance(written.loss, str) else written.loss()
    model.compile("adam", loss, metrics=["accuracy"])
    model.fit(x, y, verbose=0)
    before = [numpy(v) for v in model.weights]
    ensemble = mh.last_layer_laplace(
        model, x, y, prior=mh.priors.Gaussian(1.0), members=4
    )
    assert len(ensemble.shared) == len(model.weights) - 2
    assert np.isfinite(ensemble.evaluate(x, y, verbose=0)).all()
    for old, variable in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, numpy(variable))
    assert "call" not in vars(model.layers[-1])  # what recorded its inputs is gone


class HeadBeforeBody(keras.Model):
    """Lists its head before the body, which is a `Dense` layer as well."""

    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(3, "softmax")
        self.body = keras.layers.Dense(4, "relu")

    def call(self, inputs):
        return self.head(self.body(inputs))


def test_the_head_is_the_layer_that_is_called_last():
    x, model = data()[0], HeadBeforeBody()
    model(x)
    options = dict(prior=mh.priors.Gaussian(1.0), members=4)
    ensemble = mh.last_layer_laplace(model, x, np.arange(30) % 3, **options)
    kept = set(ensemble.shared)
    moved = [tuple(v.shape) for i, v in enumerate(model.weights) if i not in kept]
    assert moved == [(4, 3), (3,)]


def test_a_head_without_a_bias():
    model, (x, y) = network(2, use_bias=False), data()
    options = dict(prior=mh.priors.Gaussian(1.0), noise_std=NOISE, members=4)
    ensemble = mh.last_layer_laplace(model, x, y, **options)
    assert numpy(ensemble.weights[2]).shape == (4, WIDTH, 2)


# Refusals.


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: keras.Sequential([keras.Input((5,)), layers.ReLU()]),
            "no `Dense`",
        ),
        (lambda: network(3, "relu"), "the activation 'relu'"),
        (lambda: network(3, None, layers.BatchNormalization()), "outputs differ"),
        (lambda: network(3, "sigmoid"), "a sigmoid of 3 units"),
        (models_people_write.of_two_outputs, "several outputs"),
        (lambda: network(2000, seed=1), "at most 6000 rows.*narrower"),
    ],
)
def test_models_that_are_refused(build, message):
    x, _ = data()
    labels = np.arange(len(x)) % 3
    model = build()
    if "BatchNorm" in type(model.layers[-1]).__name__:
        model.layers[-1].set_weights([np.full(3, v) for v in (2.0, 0.5, 0.1, 4.0)])
    with pytest.raises(ValueError, match=f"`model` must.*{message}"):
        mh.last_layer_laplace(model, x, labels, prior=mh.priors.Gaussian(1.0))


def test_a_wide_regression_has_small_matrices():
    options = dict(prior=mh.priors.Gaussian(1.0), noise_std=1.0, members=1)
    mh.last_layer_laplace(network(2000), data()[0], np.zeros((30, 2000)), **options)


def test_a_prior_that_leaves_a_direction_free_is_refused():
    x, _ = data()
    prior = mh.priors.Gaussian({"bias": 1.0})
    with pytest.raises(ValueError, match="`prior` must determine all directions"):
        mh.last_layer_laplace(network(3), x[:3], np.arange(3), prior=prior)


def test_a_noise_of_probabilities():
    x, y = data(3)
    options = dict(prior=mh.priors.Gaussian(1.0), noise_std=1.0)
    with pytest.raises(ValueError, match="`noise_std` must be None"):
        mh.last_layer_laplace(network(3, "softmax"), x, y, **options)


def test_a_regression_without_its_noise():
    x, y = data(1)
    with pytest.raises(ValueError, match="`y` must be integers.*pass `noise_std`"):
        mh.last_layer_laplace(network(1), x, y[:, 0], prior=mh.priors.Gaussian(1.0))


@pytest.mark.parametrize("function", [mh.last_layer_laplace, mh.sample_last_layer])
@pytest.mark.parametrize(
    "units, loss, message",
    [
        (3, keras.losses.BinaryCrossentropy(from_logits=True), "of 3 units"),
        (1, "mse", "loss of a classification.*'mse'"),
        (3, keras.losses.MeanAbsoluteError(), "'meanabsoluteerror'"),
    ],
)
def test_a_loss_of_another_task(function, units, loss, message):
    """Labels of 0 and 1 do not tell a softmax from sigmoids or a regression."""
    x, y = data()[0], np.arange(30) % 2
    model = network(units)
    model.compile("sgd", loss)
    with pytest.raises(ValueError, match=message):
        function(model, x, y, prior=mh.priors.Gaussian(1.0))


@pytest.mark.parametrize("fault", [np.zeros((30, 3)), np.full((30, 2), np.nan)])
def test_targets_that_are_refused(fault):
    options = dict(prior=mh.priors.Gaussian(1.0), noise_std=1.0)
    with pytest.raises(ValueError, match=r"`y` must (have one target|be finite)"):
        mh.last_layer_laplace(network(2), data()[0], fault, **options)
