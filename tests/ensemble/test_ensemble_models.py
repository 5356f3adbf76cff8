"""Ensembles of models with masks, several inputs or outputs, and models inside."""

import functools

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh
from tests.support.models import numpy

COUNT = 24
WORDS = 11


def normal(*shape):
    return np.random.default_rng(1).normal(size=(COUNT, *shape)).astype("float32")


def words():
    """Lines of up to 6 words; the rest is 0."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 7, (COUNT, 1))
    return rng.integers(1, WORDS, (COUNT, 6)) * (np.arange(6) < lengths)


def masked():
    source = keras.Input((6,), dtype="int32")
    x = layers.Embedding(WORDS, 4, mask_zero=True)(source)
    x = layers.GlobalAveragePooling1D()(layers.LSTM(3, return_sequences=True)(x))
    return keras.Model(source, layers.Dense(2)(x)), words()


class Masked(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(WORDS, 4, mask_zero=True)
        self.mean = layers.GlobalAveragePooling1D()

    def call(self, x):
        return self.mean(self.embedding(x))


def attention():
    source = keras.Input((6,), dtype="int32")
    x = layers.Embedding(WORDS, 4, mask_zero=True)(source)
    x = layers.MultiHeadAttention(2, 3)(x, x)
    return keras.Model(source, layers.Flatten()(x)), words()


def nested():
    source = keras.Input((4,))
    inner = keras.Model(source, layers.Dense(4, "tanh")(source))
    stack = keras.Sequential([keras.Input((4,)), layers.BatchNormalization(), inner])
    outer = keras.Input((4,))
    # The inner model is shared: called twice with the same weights.
    return keras.Model(outer, layers.Dense(2)(stack(inner(outer)))), normal(4)


def dict_inputs():
    sources = {name: keras.Input((n,), name=name) for name, n in (("a", 3), ("b", 2))}
    x = layers.Concatenate()(list(sources.values()))
    model = keras.Model(sources, layers.Dense(2)(x))
    return model, {"a": normal(3), "b": normal(2)}


def list_inputs():
    sources = [keras.Input((3,)), keras.Input((2,))]
    model = keras.Model(sources, layers.Dense(2)(layers.Concatenate()(sources)))
    return model, [normal(3), normal(2)]


class Dicts(keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.two = layers.Dense(2), layers.Dense(1)

    def call(self, x):
        return {"one": self.one(x["a"]), "two": self.two(x["b"])}


def list_outputs():
    source = keras.Input((3,))
    return keras.Model(source, [layers.Dense(2)(source), source]), normal(3)


FORMS = {
    "masked": masked,
    "masked subclass": lambda: (Masked(), words()),
    "attention": attention,
    "nested": nested,
    "dict inputs": dict_inputs,
    "list inputs": list_inputs,
    "dicts": lambda: (Dicts(), {"a": normal(3), "b": normal(2)}),
    "list outputs": list_outputs,
}


@pytest.mark.parametrize("form", FORMS)
def test_members_are_the_model_with_their_weights(form):
    keras.utils.set_random_seed(0)
    model, x = FORMS[form]()
    model(keras.tree.map_structure(keras.ops.convert_to_tensor, x))
    rng = np.random.default_rng(0)
    stacked = [np.abs(rng.normal(size=(2, *v.shape))) for v in model.weights]
    weights = np.array([1.0, 3.0])
    members = []
    for i in range(2):
        model.set_weights([value[i] for value in stacked])
        members.append(model.predict(x, verbose=0))
    for chunk in (1, 2):
        ensemble = mh.Ensemble(model, 2, chunk=chunk)
        ensemble.set_members(stacked, weights)
        found = ensemble.predict_members(x)
        expected = keras.tree.map_structure(lambda *a: np.stack(a), *members)
        keras.tree.map_structure(close, found, expected)
        mean = keras.tree.map_structure(
            lambda a: np.tensordot(weights / 4.0, a, axes=1), expected
        )
        keras.tree.map_structure(close, ensemble.predict(x, verbose=0), mean)


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5)


def two_outputs():
    """A model that is compiled by the names of its outputs."""
    keras.utils.set_random_seed(0)
    source = keras.Input((3,))
    names = {"one": 3, "two": 1}
    outputs = [layers.Dense(n, name=name)(source) for name, n in names.items()]
    model = keras.Model(source, outputs)
    model.compile(
        keras.optimizers.SGD(0.0),
        loss={
            "one": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "two": "mse",
        },
        loss_weights={"one": 1.0, "two": 3.0},
        metrics={"one": ["accuracy"]},
        weighted_metrics={"two": ["mae"]},
    )
    return model


def targets():
    rng = np.random.default_rng(3)
    return {"one": rng.integers(0, 3, COUNT), "two": rng.normal(size=(COUNT, 1))}


def test_outputs_that_need_different_activations_get_them():
    model = two_outputs()
    posterior = mh.PosteriorSamples()
    x, y = normal(3), targets()
    model.fit(x, y, epochs=2, verbose=0, callbacks=[posterior])
    ensemble = posterior.ensemble(model)
    members = [numpy(part) for part in ensemble.predict_members(x)]
    logits = model.predict(x, verbose=0)
    for one, raw, name in zip(members, logits, ["one", "two"], strict=True):
        last = numpy(keras.ops.softmax(raw)) if name == "one" else raw
        np.testing.assert_allclose(one[-1], last, rtol=1e-4, atol=1e-6)
    copy = type(ensemble).from_config(ensemble.get_config())
    copy.set_weights(ensemble.get_weights())
    for one, other in zip(members, copy.predict_members(x), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="one entry for each of the 2 outputs"):
        posterior.ensemble(model, activation=["softmax"])
    # Means of logits, of which the loss knows.
    ensemble = posterior.ensemble(model, activation="linear")
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    found = ensemble.evaluate(x, y, verbose=0, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-5)


def test_functions_and_subclasses_of_losses_of_logits():
    class Mine(keras.losses.SparseCategoricalCrossentropy):
        pass

    function = keras.losses.sparse_categorical_crossentropy
    x, y = normal(3), targets()["one"]
    for loss, name in (
        (Mine(from_logits=True), "softmax"),
        (functools.partial(function, from_logits=True), "softmax"),
        (function, "linear"),
    ):
        model = keras.Sequential([keras.Input((3,)), layers.Dense(3)])
        model.compile(mh.SGLD(0.0, train_size=COUNT, seed=0), loss)
        posterior = mh.PosteriorSamples()
        model.fit(x, y, batch_size=COUNT, epochs=1, verbose=0, callbacks=[posterior])
        ensemble = posterior.ensemble(model)
        assert ensemble.activation.__name__ == name
        expected = model.evaluate(x, y, verbose=0)
        if name == "softmax":
            found = ensemble.evaluate(x, y, verbose=0)
            assert found == pytest.approx(expected, rel=1e-4)
            with pytest.raises(ValueError, match="`from_logits` must be False"):
                mh.Classifier(ensemble, from_logits=True)
    model.loss = lambda y, p: function(y, p, from_logits=True)
    with pytest.warns(UserWarning, match="does not say whether"):
        posterior.ensemble(model)


class OwnLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, True)


class SaysIt(OwnLoss):
    def __init__(self, from_logits):
        super().__init__()
        self.from_logits = from_logits

    def get_config(self):
        return super().get_config() | {"from_logits": self.from_logits}


class Mean(keras.losses.MeanSquaredError):
    pass


OWN = [(OwnLoss(), True), (SaysIt(True), True), (SaysIt(False), False), (Mean(), False)]


@pytest.mark.parametrize(("loss", "warns"), OWN)
def test_a_loss_class_that_may_take_logits_is_warned_of(loss, warns, recwarn):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(3)])
    model.compile(mh.SGLD(0.0, train_size=COUNT, seed=0), loss)
    posterior = mh.PosteriorSamples()
    x, y = normal(3), targets()["one"][:, None]
    model.fit(x, y, batch_size=COUNT, epochs=1, verbose=0, callbacks=[posterior])
    for activation in (None, "softmax"):
        recwarn.clear()
        posterior.ensemble(model, activation=activation)
        said = ["does not say whether" in str(each.message) for each in recwarn]
        assert any(said) == (warns and activation is None)
