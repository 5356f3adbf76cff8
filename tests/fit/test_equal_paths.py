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


def in_one(weights):
    """The same function of the inputs, with one layer for both encoders."""
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(6, activation="tanh"),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    kernel, bias, other, other_bias, *head = weights
    kernel, bias = np.hstack([kernel, other]), np.hstack([bias, other_bias])
    model.set_weights([kernel, bias, *head])
    return model


def without_noise():
    return mh.SGLD(0.05, train_size=96, temperature=0.0, seed=0)


def test_both_learn_from_the_gradient_of_the_step_alone():
    model = two_encoders()
    paths = [variable.path for variable in model.weights]
    assert len(set(paths)) < len(paths)
    other = in_one(model.get_weights())
    for each in (model, other):
        fit(compiled(without_noise(), each))
    kernels = [numpy(model.weights[i]) for i in (0, 2)]
    np.testing.assert_allclose(np.hstack(kernels), numpy(other.weights[0]), atol=1e-5)
    np.testing.assert_allclose(
        numpy(model.weights[-1]), numpy(other.weights[-1]), atol=1e-5
    )


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
