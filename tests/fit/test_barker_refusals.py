"""What `mh.Barker` and `mh.BarkerChain` refuse: losses, models, other optimizers."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.support.barker_chains import FEATURES
from tests.support.barker_chains import NOISE
from tests.support.barker_chains import SIZE
from tests.support.barker_chains import compiled
from tests.support.barker_chains import data
from tests.support.barker_chains import fit
from tests.support.barker_chains import linear
from tests.support.barker_chains import sampler


def two_outputs():
    inputs = keras.Input((FEATURES,))
    outputs = [keras.layers.Dense(1, name=name)(inputs) for name in "ab"]
    return keras.Model(inputs, outputs)


def regularised():
    layer = keras.layers.Dense(1, kernel_regularizer="l2")
    return keras.Sequential([keras.Input((FEATURES,)), layer])


def three():
    layer = keras.layers.Dense(3, "sigmoid")
    return keras.Sequential([keras.Input((FEATURES,)), layer])


def positions():
    layers = [keras.Input((FEATURES,)), keras.layers.Dense(12)]
    return keras.Sequential([*layers, keras.layers.Reshape((4, 3))])


def mean_loss(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred))


@pytest.mark.parametrize(
    ("model", "loss", "options", "message"),
    [
        (two_outputs, ["mse", "mse"], {"y": [data()[1]] * 2}, "one loss"),
        (linear, mean_loss, {}, "one number for each example"),
        (positions, "mse", {"y": np.zeros((SIZE, 4, 3))}, "one number for each"),
        (three, "binary_crossentropy", {"y": np.ones((SIZE, 3))}, "its 3 labels"),
        (regularised, None, {}, "no regularisers"),
        (linear, None, {"sample_weight": np.ones(SIZE)}, "must be left out"),
        (linear, keras.losses.MeanSquaredError(reduction="sum"), {}, "mean over the"),
    ],
)
def test_what_gives_no_losses_of_examples_is_refused(model, loss, options, message):
    chain = compiled(model(), loss=loss)
    x, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=message):
            fit(chain, 1, x, **{"y": y} | options)


def test_other_optimizers_and_models_are_refused():
    with pytest.raises(ValueError, match="mh.Barker"):
        mh.BarkerChain(linear()).compile("adam", "mse")
    plain = linear()
    plain.compile(sampler(), mh.losses.GaussianNLL(NOISE))
    with pytest.raises(ValueError, match="mh.BarkerChain"):
        plain.fit(*data(), verbose=0)
    chains = mh.ParallelChains(linear(), 2)
    with pytest.raises(ValueError, match="Barker"):
        chains.compile(sampler(), mh.losses.GaussianNLL(NOISE))
    frozen = linear()
    frozen.trainable = False
    with pytest.raises(ValueError, match="trainable weights"):
        mh.BarkerChain(frozen)
    with pytest.raises(ValueError, match="a `keras.Model`"):
        mh.BarkerChain("model")
