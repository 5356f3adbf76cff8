"""A loss that is no negative log-likelihood is warned of, once, with the remedy."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh


def fit(loss, optimizer=None, epochs=2, outputs=1, about="no negative log", **options):
    """The warnings of a fit of a linear model."""
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
    layers = [keras.layers.Dense(1) for _ in range(outputs)]
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [layer(inputs) for layer in layers])
    model.compile(optimizer or mh.SGLD(1e-3, train_size=32, seed=0), loss, **options)
    targets = [np.ones((32, 1), "float32")] * outputs
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(x, targets, batch_size=8, epochs=epochs, verbose=0)
    texts = [str(warning.message) for warning in found]
    return [text for text in texts if about in text]


@pytest.mark.parametrize(
    "loss, name",
    [
        ("mse", "'mse'"),
        (keras.losses.MeanSquaredError(), "'MeanSquaredError'"),
        (keras.losses.mean_squared_error, "'mean_squared_error'"),
        ("mae", "'mae'"),
        (keras.losses.Huber(delta=0.5), "'Huber'"),
    ],
    ids=["mse", "object", "function", "mae", "huber"],
)
def test_a_loss_without_a_likelihood(loss, name):
    (text,) = fit(loss)
    assert f"The loss {name} is" in text
    assert ("0.71" in text) == ("mse" in name or "quared" in name)
    assert "mh.losses.GaussianNLL(noise_std)" in text


def half_squares(y, prediction):
    return 0.5 * keras.ops.mean(keras.ops.square(y - prediction), axis=-1)


@pytest.mark.parametrize(
    "loss",
    [
        mh.losses.GaussianNLL(0.5),
        "binary_crossentropy",
        keras.losses.BinaryCrossentropy(from_logits=True),
        keras.losses.Poisson(),
        half_squares,
    ],
    ids=["gaussian", "cross_entropy", "object", "poisson", "own"],
)
def test_other_losses(loss):
    assert fit(loss, epochs=1) == []


def test_one_of_two_losses():
    assert len(fit([mh.losses.GaussianNLL(1.0), "mse"], epochs=1, outputs=2)) == 1


def test_a_sampler_that_learns_the_noise_takes_squares():
    prior = mh.priors.SpikeSlab("kernel", v0=1e-3, v1=1.0)
    options = {"train_size": 32, "prior": prior, "seed": 0}
    learns = mh.SGLDSA(1e-3, likelihood="gaussian", **options)
    assert fit("mse", learns, epochs=1) == []
    assert len(fit("mse", mh.SGLDSA(1e-3, **options), epochs=1)) == 1


def test_the_standard_deviation_of_squares():
    """exp(-r^2) is a normal density with the variance 1/2."""
    stats = pytest.importorskip("scipy.stats")
    r = np.linspace(-2.0, 2.0, 9)
    ratio = np.exp(-(r**2)) / stats.norm.pdf(r, scale=0.5**0.5)
    np.testing.assert_allclose(ratio, ratio[0])
    assert round(0.5**0.5, 2) == 0.71


ANOTHER = "posterior is not that of the data"


def test_label_smoothing_is_another_likelihood():
    loss = keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1)
    (text,) = fit(loss, about=ANOTHER)
    assert text.endswith("Received: label_smoothing=0.1")
    loss = keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.0)
    assert fit(loss, epochs=1, about=ANOTHER) == []


@pytest.mark.parametrize(
    ("weights", "is_told"),
    [([1.0, 0.5], True), ([1.0, 1.0], False), ([None, 1], False), (None, False)],
)
def test_weights_of_losses_are_another_likelihood(weights, is_told):
    losses = [mh.losses.GaussianNLL(1.0)] * 2
    texts = fit(losses, epochs=1, outputs=2, about=ANOTHER, loss_weights=weights)
    assert len(texts) == is_told
