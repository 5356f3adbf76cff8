"""Linear classifiers whose gradients are known exactly, for the tests of attacks."""

import keras
import numpy as np


def softmax(z):
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def linear(weights, bias, activation="softmax"):
    """softmax(x @ weights + bias) as a model."""
    features, units = np.shape(weights)
    layer = keras.layers.Dense(units, activation=activation)
    model = keras.Sequential([keras.Input((features,)), layer])
    model.set_weights([np.asarray(weights), np.asarray(bias)])
    return model


def linear_case(seed=0):
    """Inputs, labels, weights and bias of a linear classifier of 5 classes."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.3, 0.7, size=(40, 12)).astype("float32")
    weights = rng.normal(size=(12, 5)).astype("float32")
    bias = rng.normal(size=5).astype("float32")
    return x, rng.integers(0, 5, size=40), weights, bias


def exact_direction(x, y, weights, bias):
    """The gradient of -log p_y over 1 - p_y: mean of w_k - w_y over the p_k, k != y."""
    weights = np.asarray(weights, "float64")
    z = np.asarray(x, "float64") @ weights + np.asarray(bias, "float64")
    z[np.arange(len(y)), y] = -np.inf
    return softmax(z) @ weights.T - weights.T[y]
