"""A network on digits for the attacks of other libraries, and what misleads it."""

import warnings

import keras
import numpy as np
from sklearn.neural_network import MLPClassifier

import keras_mhmcmc as mh

IMAGES = 200
EPSILON = 0.08


def digits_network(seed=0):
    """A classifier with logits, 200 test images and their labels.

    scikit-learn trains it from the seed, so that it is the same on all backends.
    """
    (x, y), (x_test, y_test) = mh.datasets.load("digits")
    options = {"max_iter": 10, "learning_rate_init": 0.01, "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        trained = MLPClassifier(32, **options).fit(x.reshape(len(x), -1), y)
    layers = [keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), *layers])
    pairs = zip(trained.coefs_, trained.intercepts_, strict=True)
    model.set_weights([values for pair in pairs for values in pair])
    return model, x_test[:IMAGES].astype("float32"), y_test[:IMAGES]


class Curved:
    """Logits sin(6 x) W + b of 5 classes, and everything about them in float64."""

    def __init__(self, activation=None, scale=1.0):
        rng = np.random.default_rng(0)
        weights = (scale * rng.normal(size=(8, 5))).astype("float32")
        bias = (0.3 * rng.normal(size=5)).astype("float32")
        self.x = rng.uniform(0.2, 0.8, size=(12, 8)).astype("float32")
        self.y = rng.integers(0, 5, 12)
        inputs = keras.Input((8,))
        layer = keras.layers.Dense(5, activation=activation)
        self.model = keras.Model(inputs, layer(keras.ops.sin(6.0 * inputs)))
        layer.set_weights([weights, bias])
        points = self.x.astype("float64")
        self.z = np.sin(6.0 * points) @ weights.astype("float64") + bias
        slopes = 6.0 * np.cos(6.0 * points)
        # (n, C, 8): the gradient of each logit
        self.of_logits = slopes[:, None] * weights.T.astype("float64")
        shifted = self.z - self.z.max(axis=1, keepdims=True)
        self.log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        self.p = np.exp(self.log_p)
        mean = np.einsum("nc,ncd->nd", self.p, self.of_logits)
        self.of_log_p = self.of_logits - mean[:, None]
