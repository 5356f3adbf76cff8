"""What last layers refuse: models, priors, losses and targets."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh
from tests.support import models_people_write
from tests.support.heads import data
from tests.support.heads import network


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
def test_models(build, message):
    x, _ = data()
    labels = np.arange(len(x)) % 3
    model = build()
    if "BatchNorm" in type(model.layers[-1]).__name__:
        model.layers[-1].set_weights([np.full(3, v) for v in (2.0, 0.5, 0.1, 4.0)])
    with pytest.raises(ValueError, match=f"`model` must.*{message}"):
        mh.last_layer_laplace(model, x, labels, prior=mh.priors.Gaussian(1.0))


def test_a_wide_regression_has_small_matrices():
    x, _ = data()
    mh.last_layer_laplace(
        network(2000),
        x,
        np.zeros((30, 2000)),
        prior=mh.priors.Gaussian(1.0),
        noise_std=1.0,
        members=1,
    )


def test_a_prior_that_leaves_a_direction_free():
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
def test_targets(fault):
    options = dict(prior=mh.priors.Gaussian(1.0), noise_std=1.0)
    with pytest.raises(ValueError, match=r"`y` must be finite and have the shape"):
        mh.last_layer_laplace(network(2), data()[0], fault, **options)
