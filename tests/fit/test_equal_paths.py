"""Two weights with one path, as in two networks that one function makes."""

import keras
import numpy as np
from keras import layers

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy


def encoder():
    inputs = keras.Input((FEATURES,))
    return keras.Model(inputs, layers.Dense(3, activation="tanh", name="h")(inputs))


def two_encoders():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((FEATURES,))
    x = layers.concatenate([encoder()(inputs), encoder()(inputs)])
    return keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))


def without_noise():
    return mh.SGLD(0.05, train_size=96, temperature=0.0, seed=0)


def test_arviz_has_both():
    model, posterior = compiled(without_noise(), two_encoders()), mh.PosteriorSamples()
    fit(model, callbacks=[posterior])
    group = posterior.to_arviz()["posterior"]
    assert len(group.data_vars) == len(model.weights)
    for variable, name in [
        (model.weights[0], "h/kernel"),
        (model.weights[2], "h/kernel#2"),
    ]:
        np.testing.assert_array_equal(np.asarray(group[name])[0, -1], numpy(variable))
