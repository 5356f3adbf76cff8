"""Networks whose last layer is a head, and targets, for last-layer posteriors."""

import keras
import numpy as np
from keras import layers

from tests.support.models import FEATURES

SCALE, NOISE, WIDTH = 0.8, 0.3, 4


def data(outputs=2, count=30):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, FEATURES)).astype("float32")
    return x, x[:, :outputs] + NOISE * rng.normal(size=(count, outputs))


def network(units, activation=None, *last, seed=0, use_bias=True):
    keras.utils.set_random_seed(seed)
    head = layers.Dense(units, activation, use_bias=use_bias, bias_initializer="normal")
    hidden = layers.Dense(WIDTH, "tanh")
    return keras.Sequential([keras.Input((FEATURES,)), hidden, head, *last])
