"""Samples carry statistics of batch normalisation that may lag behind."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

RNG = np.random.default_rng(0)
X = (3.0 + 2.0 * RNG.normal(size=(256, 4))).astype("float32")
Y = (X.sum(1) > 12.0).astype("int32")


def sampled(sampler, momentum, epochs=3, policy=None, has_images=False):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    first = [keras.Input((4,)), layers.Dense(16, "relu", dtype=policy)]
    if has_images:  # of two rows, with augmentation
        first = [
            keras.Input((4,)),
            layers.Reshape((2, 2, 1)),
            layers.RandomFlip("horizontal", seed=0),
            layers.Conv2D(16, 2, activation="relu", dtype=policy),
            layers.Flatten(),
        ]
    model = keras.Sequential(
        [
            *first,
            layers.BatchNormalization(momentum=momentum, dtype=policy),
            layers.Dense(2, dtype="float32"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sampler, loss, metrics=["accuracy"])
    posterior = mh.PosteriorSamples()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, Y, 32, epochs, 0, callbacks=[posterior])
    return model, posterior, [str(w.message) for w in caught]


SAMPLERS = {
    "PSGLD": lambda: mh.PSGLD(0.003, train_size=256, seed=0),
    "RSGLD": lambda: mh.RSGLD(0.2, train_size=256, batch_size=32, seed=0),
}


@pytest.mark.parametrize("has_images", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_statistics_that_lag_are_told_and_the_remedy_helps(name, has_images):
    sampler, policy = SAMPLERS[name](), "mixed_bfloat16"
    model, posterior, told = sampled(sampler, 0.999, 3, policy, has_images)
    (message,) = [text for text in told if "lag behind" in text]
    assert "in training" in message and "recalibrate=x" in message
    score = posterior.ensemble(model).evaluate(X, Y, verbose=0, return_dict=True)
    ensemble = posterior.ensemble(model, recalibrate=X)
    better = ensemble.evaluate(X, Y, verbose=0, return_dict=True)
    assert better["accuracy"] > max(score["accuracy"], 0.6)
    assert better["loss"] < score["loss"]


def test_statistics_that_follow_are_left_alone():
    _, _, told = sampled(SAMPLERS["PSGLD"](), 0.5)
    assert not any("lag behind" in text for text in told)
