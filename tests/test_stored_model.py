"""Copies of a user's network: the classes and the functions are the same."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

from keras_mhmcmc._stored_model import rebuilt

FACTOR = 2.0  # a global of the functions, which a copy of their code would lack


def scaled_tanh(x):
    return FACTOR * ops.tanh(x)


class Scale(layers.Layer):
    """A layer that is not registered with Keras."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * self.scale


def network(inner_name="inner"):
    inner = [layers.Lambda(lambda x: x - FACTOR, name=inner_name), Scale()]
    inputs = keras.Input((4, 3))
    x = layers.Lambda(lambda x: x * FACTOR, lambda shape: shape, name="outer")(inputs)
    x = layers.LSTM(3, activation=scaled_tanh)(x)
    x = keras.Sequential([keras.Input((3,)), *inner])(x)
    initializer = lambda shape, dtype=None: ops.full(shape, FACTOR, dtype)  # noqa: E731
    dense = layers.Dense(2, lambda x: FACTOR * x, kernel_initializer=initializer)
    return keras.Model(inputs, dense(x))


def test_a_copy_has_the_same_classes_and_functions():
    model = network()
    copy = rebuilt(model)
    np.testing.assert_array_equal(copy.layers[-1].kernel, 2.0 * np.ones((3, 2)))
    copy.set_weights(model.get_weights())
    x = np.random.default_rng(0).normal(size=(5, 4, 3)).astype("float32")
    np.testing.assert_array_equal(
        copy.predict(x, verbose=0), model.predict(x, verbose=0)
    )


def test_functions_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="two layers have the name 'outer'"):
        rebuilt(network(inner_name="outer"))


def block(factor):
    """A class of layers by a name that another class has, too."""

    class Block(layers.Layer):
        def __init__(self):  # takes neither `name` nor `trainable`
            super().__init__()

        def build(self, shape):
            self.kernel = self.add_weight(shape=(), initializer="ones")

        def call(self, x):
            return x * factor * self.kernel

    return Block()


def test_two_classes_of_one_name_are_refused():
    model = keras.Sequential([keras.Input((1,)), block(2.0), block(3.0)])
    with pytest.raises(ValueError, match="two classes of layers have the name 'Block'"):
        rebuilt(model)


def test_a_frozen_layer_stays_frozen():
    model = keras.Sequential([keras.Input((1,)), block(2.0), layers.Dense(1)])
    model.layers[0].trainable = False
    copy = rebuilt(model)
    assert len(copy.trainable_variables) == len(model.trainable_variables) == 2
