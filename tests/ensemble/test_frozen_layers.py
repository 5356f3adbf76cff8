"""What members share before their own layers is computed once, and is the same."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh

pytestmark = pytest.mark.every_backend
MEMBERS = 5


@keras.saving.register_keras_serializable("frozen_layers")
class Counted(layers.Dense):
    """A dense layer that counts the programs or calls that run it."""

    calls = 0

    def call(self, x, training=None):
        type(self).calls += 1
        return super().call(x, training=training)


def body(trainable=False):
    inputs = keras.Input((6,))
    x = Counted(8, activation="relu")(inputs)
    x = layers.BatchNormalization()(layers.Dropout(0.3)(x))
    outputs = layers.Add()([x, Counted(8)(x)])
    model = keras.Model(inputs, outputs, name="body")
    model.trainable = trainable
    return model


def nested():
    inputs = keras.Input((6,))
    x = body()(layers.Rescaling(0.5)(inputs), training=False)
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(4, "tanh")(x)))


def flat():
    features = body()
    return keras.Model(features.input, layers.Dense(3)(features.output))


def sequential():
    return keras.Sequential([keras.Input((6,)), body(), layers.Dense(3)])


def two_branches():
    inputs = {name: keras.Input((6,), name=name) for name in "ab"}
    shared, own = body(), layers.Dense(8)
    x = layers.Concatenate()([shared(inputs["a"]), shared(inputs["b"])])
    outputs = {
        "features": x,
        "classes": layers.Dense(3)(layers.Add()([own(inputs["b"]), x[:, :8]])),
    }
    return keras.Model(inputs, outputs)


def thawed_first():
    """The layer that is sampled comes before the frozen ones."""
    inputs = keras.Input((6,))
    return keras.Model(inputs, body()(layers.Dense(6)(inputs)))


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.body, self.head = body(), layers.Dense(3)

    def call(self, x):
        return self.head(self.body(x))


def ensemble_of(model):
    """Members that share what is frozen, and one list of weights for each."""
    rng = np.random.default_rng(0)
    own = set(map(id, model.trainable_weights))
    shared = [k for k, w in enumerate(model.weights) if id(w) not in own]
    stacked = [
        np.stack([w + (id(v) in own) * rng.normal(size=w.shape)] * MEMBERS)
        for v, w in zip(model.weights, model.get_weights(), strict=True)
    ]
    for k in set(range(len(stacked))) - set(shared):
        stacked[k] = rng.normal(size=stacked[k].shape)
    ensemble = mh.Ensemble(model, MEMBERS, shared=shared)
    ensemble.set_members(stacked, np.ones(MEMBERS) / MEMBERS)
    return ensemble, stacked


@pytest.mark.parametrize(
    "make", [nested, flat, sequential, two_branches, thawed_first, Subclass]
)
def test_members_predict_as_models_with_their_weights(make):
    keras.utils.set_random_seed(0)
    model = make()
    x = np.random.default_rng(1).normal(size=(7, 6)).astype("float32")
    if make is two_branches:
        x = {"a": x, "b": x[::-1]}
    model(x)
    ensemble, stacked = ensemble_of(model)
    found = ensemble.predict_members(x)
    for k in range(MEMBERS):
        model.set_weights([array[k] for array in stacked])
        expected = model.predict(x, verbose=0)
        keras.tree.map_structure(
            lambda one, other, k=k: np.testing.assert_allclose(
                one[k], other, rtol=1e-5, atol=1e-5
            ),
            found,
            expected,
        )


@pytest.mark.parametrize("make", [nested, flat, sequential])
def test_frozen_layers_run_once_for_all_members(make):
    model = make()
    ensemble, _ = ensemble_of(model)
    outputs = [layer.output for layer in model.layers]
    x = np.ones((4, 6), "float32")
    ensemble(x)
    Counted.calls = 0
    ensemble(x)
    assert Counted.calls == 2  # of the body, in its one run
    # The user's layers have no new nodes.
    assert all(a is b.output for a, b in zip(outputs, model.layers, strict=True))


def test_a_wrong_input_is_told_as_by_the_member():
    ensemble, _ = ensemble_of(nested())
    with pytest.raises(ValueError, match="6"):
        ensemble.predict(np.ones((4, 5)), verbose=0)
