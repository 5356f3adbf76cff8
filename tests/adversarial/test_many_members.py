"""Gradients of ensembles do not depend on how the members are evaluated.

TensorFlow differentiates up to 32 members in a graph of each, and more in a loop.
"""

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.gradient_attacks import gradients_of

MEMBERS = 4


def small_convolutions():
    return keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(3, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )


def gradient_of(model, stacked, repeats, x, y):
    """Of the loss of an ensemble that has each member `repeats` times."""
    ensemble = mh.Ensemble(model, MEMBERS * repeats, activation="softmax")
    values = [np.concatenate([array] * repeats) for array in stacked]
    ensemble.set_members(values, np.ones(MEMBERS * repeats))
    shared = None, False, (0.0, 1.0), 256
    return gradients_of(objective.given(ensemble, x, 0.1, y, *shared))


@pytest.mark.parametrize("repeats", [8, 9])  # 32 members and 36
def test_repeated_members_have_the_gradient_of_the_members(repeats):
    rng = np.random.default_rng(0)
    x = rng.random((5, 6, 6, 1), dtype="float32")
    y = rng.integers(0, 4, 5)
    model = small_convolutions()
    shapes = [weight.shape for weight in model.weights]
    stacked = [rng.normal(size=(MEMBERS, *shape)) for shape in shapes]
    once = gradient_of(model, stacked, 1, x, y)
    assert np.abs(once).max() > 0.01
    many = gradient_of(model, stacked, repeats, x, y)
    np.testing.assert_allclose(many, once, atol=1e-5 * np.abs(once).max())
