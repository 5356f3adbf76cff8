"""Models of the wine data: an ordinary one, and some whose attacks are in doubt."""

import functools

import keras
import pytest
from keras import ops

from tests.support.attack_tools import linear


@functools.cache
def wine():
    """Inputs of shape (178, 13) in [0, 1], labels, and the weights of two models."""
    datasets = pytest.importorskip("sklearn.datasets")
    linear_model = pytest.importorskip("sklearn.linear_model")
    neural_network = pytest.importorskip("sklearn.neural_network")
    x, y = datasets.load_wine(return_X_y=True)
    x = ((x - x.min(0)) / (x.max(0) - x.min(0))).astype("float32")
    flat = linear_model.LogisticRegression(C=10.0, max_iter=1000).fit(x, y)
    deep = neural_network.MLPClassifier(
        (16,), solver="lbfgs", alpha=0.1, random_state=0
    )
    deep.fit(x, y)
    weights = [flat.coef_.T, flat.intercept_]
    pairs = zip(deep.coefs_, deep.intercepts_, strict=True)
    return x, y, weights, [array for pair in pairs for array in pair]


def network():
    """An ordinary network that scikit-learn has trained."""
    hidden = keras.layers.Dense(16, "relu")
    layers = [hidden, keras.layers.Dense(3, "softmax")]
    model = keras.Sequential([keras.Input((13,)), *layers])
    model.set_weights(wine()[3])
    return model


def misleading():
    """A linear model that rounds its inputs, with a small gradient to the wrong side.

    The linear part that is not rounded is too small to change the predictions.
    """
    inputs = keras.Input((13,))
    logits = keras.layers.Dense(3)
    steps = ops.round(16.0 * inputs) / 16.0  # without a gradient
    model = keras.Model(inputs, ops.softmax(logits(steps - 1e-4 * (inputs - steps))))
    logits.set_weights(wine()[2])
    return model


def saturated():
    """A linear model whose softmax is so steep that float32 has only 0 and 1."""
    weights, bias = wine()[2]
    return linear(20.0 * weights, 20.0 * bias)


class Noise(keras.layers.Layer):
    """Random numbers in inference mode, with a seed, or dropout as Keras has it."""

    def __init__(self, is_dropout):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(0)
        self.dropout = keras.layers.Dropout(0.2, seed=0) if is_dropout else None

    def call(self, inputs):
        if self.dropout is not None:
            return self.dropout(inputs, training=True)
        return inputs + keras.random.normal(
            ops.shape(inputs), 0.0, 0.5, seed=self.seeds
        )


def random(is_dropout=True):
    """A linear model whose inputs are noisy in inference mode.

    Its weights are small enough that no draw saturates the softmax.
    """
    layer = keras.layers.Dense(3, "softmax")
    model = keras.Sequential([keras.Input((13,)), Noise(is_dropout), layer])
    layer.set_weights([0.5 * array for array in wine()[2]])
    return model
