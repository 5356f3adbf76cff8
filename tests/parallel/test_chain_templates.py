"""`ParallelChains` of networks with frozen layers, constraints and own steps."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import data
from tests.support.models import numpy

X, Y = data()
SCCE = "sparse_categorical_crossentropy"


def transferred():
    """A frozen base of known weights, adapted statistics, dropout and a new head."""
    keras.utils.set_random_seed(0)
    normalised = keras.layers.Normalization()
    normalised.adapt(3.0 + 2.0 * X)
    base = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(4, "tanh"),
            keras.layers.BatchNormalization(),
        ]
    )
    base.layers[0].set_weights([np.full((FEATURES, 4), 0.25), np.arange(4.0)])
    base.layers[1].set_weights([np.full(4, value) for value in (1.5, 0.5, 0.1, 2.0)])
    base.trainable = False
    head = keras.layers.Dense(CLASSES, "softmax", name="head")
    dropout = keras.layers.Dropout(0.5)
    return keras.Sequential([keras.Input((FEATURES,)), normalised, base, dropout, head])


def equal_layers():
    """Three layers of one shape: an exchange of two would not be an error of shapes."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(4, "tanh") for _ in range(3)]
    return keras.Sequential([keras.Input((4,)), *layers])


def sgld(size):
    return mh.SGLD(0.01, train_size=size, seed=0)


def test_all_chains_have_the_frozen_weights_and_the_statistics():
    model = transferred()
    chains = mh.ParallelChains(model, 3, seed=0)
    rows = chains.member_weights([numpy(v) for v in chains.weights])
    for variable, row in zip(model.weights, rows, strict=True):
        if variable.trainable:
            np.testing.assert_array_equal(row[0], numpy(variable))
            if "kernel" in variable.path:
                assert np.ptp(row, axis=0).min() > 0.0, variable.path
        else:
            np.testing.assert_array_equal(row, 3 * [numpy(variable)], variable.path)
    generators = [v for v in chains.variables if "seed_generator" in v.path]
    assert generators and all(len(np.unique(numpy(v), axis=0)) == 3 for v in generators)


def test_frozen_weights_stay_when_the_chains_are_sampled():
    model = transferred()
    chains = mh.ParallelChains(model, 2, seed=0)
    chains.compile(sgld(len(X)), SCCE)
    before = chains.member_weights([numpy(v) for v in chains.weights])
    chains.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    after = chains.member_weights([numpy(v) for v in chains.weights])
    for variable, old, new in zip(model.weights, before, after, strict=True):
        assert np.any(old != new) == variable.trainable, variable.path


def test_frozen_later_the_chains_predict_as_before_and_go_on_as_new_ones(tmp_path):
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    model = equal_layers()
    chains = mh.ParallelChains(model, 2, seed=0)
    chains.compile(sgld(32), "mse")
    chains.fit(x, x, batch_size=16, verbose=0)
    expected = chains.predict(x, verbose=0)
    model.layers[1].trainable = False
    np.testing.assert_array_equal(chains.predict(x, verbose=0), expected)
    with pytest.raises(ValueError, match=r"must stay the same.*start=chains.*2 var"):
        chains.fit(x, x, batch_size=16, verbose=0)
    with pytest.raises(ValueError, match=r"must stay the same"):
        chains.compile(sgld(32), "mse")
    with pytest.raises(ValueError, match=r"must stay the same"):
        chains.save(tmp_path / "chains.keras")
    further = mh.ParallelChains(model, 2, start=chains)
    np.testing.assert_allclose(further.predict(x, verbose=0), expected, atol=1e-6)
    further.compile(sgld(32), "mse")
    further.fit(x, x, batch_size=16, verbose=0)
    assert len(further.trainable_variables) == 4
    model.layers[1].trainable = True
    chains.fit(x, x, batch_size=16, verbose=0)


def test_constraints_are_refused():
    layer = keras.layers.Dense(2, kernel_constraint="non_neg")
    model = keras.Sequential([keras.Input((4,)), layer])
    with pytest.raises(ValueError, match=r"`model`.*no weights with a constraint.*Non"):
        mh.ParallelChains(model, 2)
    layer.trainable = False
    mh.ParallelChains(model, 2)


@pytest.mark.parametrize("name", ["train_step", "test_step"])
def test_a_step_of_the_models_own_is_refused(name):
    def step(self, *args):
        raise AssertionError("never called")

    own = type("Mixup", (keras.Model,), {name: step})
    inputs = keras.Input((4,))
    model = own(inputs, keras.layers.Dense(2)(inputs))
    with pytest.raises(ValueError, match=rf"`model`.*compute_loss.*Mixup.*has {name}"):
        mh.ParallelChains(model, 2)
