"""Losses, priors and sizes that would give another posterior than was asked for."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import data

X, Y = data()
SIZE = len(X)
TARGETS = np.asarray(X[:, :1], "float32")


def network(units=CLASSES, activation="softmax", **options):
    keras.utils.set_random_seed(0)
    last = keras.layers.Dense(units, activation, name="last", **options)
    first = keras.layers.Dense(4, name="first")
    return keras.Sequential([keras.Input((FEATURES,)), first, last])


def told(model, y, pattern, size=16, **options):
    """The warnings of a fit that hold a pattern."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, batch_size=size, epochs=2, verbose=0, **options)
    return [str(w.message) for w in caught if pattern in str(w.message)]


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.CategoricalFocalCrossentropy(),
        "categorical_focal_crossentropy",
        keras.losses.Dice(),
        keras.losses.Tversky(),
        keras.losses.CategoricalGeneralizedCrossEntropy(),
    ],
)
def test_losses_that_are_no_likelihood(loss):
    model = network()
    model.compile(mh.SGLD(0.01, train_size=SIZE, seed=0), loss)
    one_hot = keras.utils.to_categorical(Y, CLASSES)
    is_of_labels = "GeneralizedCross" in type(loss).__name__
    (message,) = told(model, Y if is_of_labels else one_hot, "no negative log-lik")
    assert "use a cross-entropy" in message


def test_a_pattern_behind_a_general_one_is_refused():
    scales = {"kernel": 1.0, "bias": 2.0, "last/kernel": 0.01}
    model = network()
    model.compile(
        mh.SGLD(0.01, train_size=SIZE, prior=mh.priors.Gaussian(scales)),
        "sparse_categorical_crossentropy",
    )
    with pytest.raises(ValueError, match=r"special patterns before.*'last/kernel'"):
        model.fit(X, Y, verbose=0)
    prior = mh.priors.Gaussian({"last/kernel": 0.01, **scales})
    bound = prior.bind(network().trainable_variables)
    assert list(bound.precisions) == pytest.approx([1.0, 0.25, 1e4, 0.25])


@pytest.mark.parametrize("prior", [None, mh.priors.Gaussian(1.0)])
def test_a_regularizer_beside_a_prior_is_told(prior):
    model = network(kernel_regularizer="l2")
    model.compile(
        mh.SGLD(0.01, train_size=SIZE, prior=prior, seed=0),
        "sparse_categorical_crossentropy",
    )
    found = told(model, Y, "second prior")
    assert len(found) == (prior is not None)
    assert all("last/kernel" in message for message in found)


def sparse():
    prior = mh.priors.SpikeSlab("kernel", v0=1e-2, v1=1.0)
    return mh.SGLDSA(0.01, train_size=SIZE, prior=prior, likelihood="gaussian", seed=0)


def test_a_noise_that_would_be_learned_from_other_terms_is_refused():
    model = network(1, None)
    model.compile(sparse(), "mse", loss_weights=[25.0])
    with pytest.raises(ValueError, match=r'"categorical".*with `loss_weights`'):
        model.fit(X, TARGETS, verbose=0)
    model = network(1, None, kernel_regularizer="l2")
    model.compile(sparse(), "mse")
    with pytest.raises(ValueError, match=r"a regularizer of '.*last/kernel'"):
        model.fit(X, TARGETS, verbose=0)
    inputs = keras.Input((FEATURES,))
    heads = [keras.layers.Dense(1)(inputs) for _ in range(2)]
    model = keras.Model(inputs, heads)
    model.compile(sparse(), ["mse", "mse"])
    with pytest.raises(ValueError, match=r"mean squared error of one output.*2 losses"):
        model.fit(X, [TARGETS, TARGETS], verbose=0)
    model = network(1, None)
    model.compile(sparse(), "mse")
    model.fit(X, TARGETS, verbose=0)


@pytest.mark.parametrize("batch", [16, SIZE])
def test_a_train_size_that_is_not_the_length_is_told(batch):
    """With full batches as well, where a batch is no measure of the difference."""
    for size, options in (
        (SIZE // 2, {}),
        (100 * SIZE, {}),
        (SIZE + 1, {}),
        (SIZE, {"validation_split": 0.25}),
    ):
        model = network()
        sampler = mh.SGLD(0.01, train_size=size, seed=0)
        model.compile(sampler, "sparse_categorical_crossentropy")
        options["callbacks"] = [mh.PosteriorSamples(every=1)]
        (message,) = told(model, Y, "sets the width", size=batch, **options)
        seen = SIZE * 3 // 4 if "validation_split" in options else SIZE
        assert f"has {seen} examples" in message
    model.compile(
        mh.SGLD(0.01, train_size=SIZE, seed=0), "sparse_categorical_crossentropy"
    )
    callbacks = [mh.PosteriorSamples(every=1)]
    assert told(model, Y, "sets the width", size=batch, callbacks=callbacks) == []


@pytest.mark.parametrize("examples", [8, 5])
def test_the_gaussian_likelihood_adds_positions_without_padding(examples):
    """With as many positions as examples Keras would multiply by the mask's columns."""
    layers = [
        keras.layers.Embedding(4, 3, mask_zero=True),
        keras.layers.LSTM(3, return_sequences=True),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((5,), dtype="int32"), *layers])
    x = np.tile([1, 2, 3, 0, 0], (examples, 1))
    sampler = mh.SGLD(0.01, train_size=examples, seed=0)
    model.compile(sampler, mh.losses.GaussianNLL(1.0))
    y = np.zeros((examples, 5, 1))
    outputs = model.predict(x, verbose=0)[:, :3]
    nats = np.sum(0.5 * outputs**2 + 0.5 * np.log(2 * np.pi), axis=(1, 2))
    loss = model.fit(x, y, batch_size=examples, verbose=0).history["loss"]
    assert loss[0] == pytest.approx(np.mean(nats), rel=1e-5)
