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


def judged(points, y, logits):
    """Of each point whether it fools the model, and the loss -log p_y, in float64."""
    p = softmax(logits(np.asarray(points, "float64")))
    return p.argmax(axis=1) != y, -np.log(p[np.arange(len(y)), y])


def lengths(change, norm):
    """The length of each example's change."""
    flat = np.asarray(change, "float64").reshape(len(change), -1)
    return np.abs(flat).max(1) if norm == "linf" else np.linalg.norm(flat, axis=1)


def two_classes(seed=0):
    """A linear classifier of 2 classes, and inputs that no small attack turns."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(12, 2)).astype("float32")
    x = rng.uniform(0.4, 0.6, size=(20, 12)).astype("float32")
    slope = weights[:, 1].astype("float64") - weights[:, 0]
    bias = np.array([0.0, -float(x.mean(axis=0) @ slope)])
    y = (x @ slope + bias[1] > 0).astype(int)
    return x, y, weights, bias, slope


def farthest(x, y, slope, epsilon, norm):
    """The points of the balls where a linear model's margin against y is largest."""
    step = np.sign(slope) if norm == "linf" else slope / np.linalg.norm(slope)
    return x + epsilon * np.where(y == 1, -1.0, 1.0)[:, None] * step
