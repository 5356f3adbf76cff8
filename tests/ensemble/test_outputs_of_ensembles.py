"""Several outputs: each has its own activation, loss and metrics, against numpy."""

import functools
import warnings

import keras
import numpy as np
import pytest
from keras import layers
from keras import losses
from keras import metrics

from keras_mhmcmc.ensemble.ensemble import ensemble_of
from tests.support.models import KERAS_VERSION
from tests.support.models import numpy

COUNT, CLASSES, SHARES = 16, 3, np.array([0.25, 0.75])
X = np.random.default_rng(0).normal(size=(COUNT, 4)).astype("float32")
Y = {
    name: np.random.default_rng(i).integers(0, CLASSES, COUNT)
    for i, name in enumerate("abc", 1)
}
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 0.5}
# What makes an argument of `compile` or the targets from values by output.
FORMS = {
    "one": lambda v: v["a"],
    "list": lambda v: [v["a"], v["b"]],
    "dict": lambda v: {"b": v["b"], "a": v["a"]},
    "nested": lambda v: [v["a"], {"c": v["c"], "b": v["b"]}],
    "subclass": lambda v: {"b": v["b"], "a": v["a"]},
}
ORDER = {"one": "a", "list": "ab", "dict": "ab", "nested": "abc", "subclass": "ab"}
OLDEST = [form for form in FORMS if form != "nested"]  # Keras 3.10 has flat metrics
ACTIVATIONS = (None, "linear", "softmax", "mixed")
# Nothing says which output of a subclass has which name, and they differ.
NAMELESS = [(kind, "subclass", "mixed") for kind in ("one for all", "flat list")]


class Heads(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = layers.Dense(CLASSES), layers.Dense(CLASSES)

    def call(self, x):
        return {"b": self.b(x), "a": self.a(x)}


def network(form):
    keras.utils.set_random_seed(1)
    if form == "subclass":
        model = Heads()
        model(X)
        return model
    source = keras.Input((4,))
    outputs = {name: layers.Dense(CLASSES, name=name)(source) for name in "abc"}
    return keras.Model(source, FORMS[form](outputs))


def cross_entropy():
    return losses.SparseCategoricalCrossentropy(from_logits=True)


def function_of_logits():
    function = losses.sparse_categorical_crossentropy
    return functools.partial(function, from_logits=True)


def scores():
    return [
        metrics.SparseCategoricalCrossentropy(from_logits=True, name="ce"),
        metrics.SparseCategoricalAccuracy(name="accuracy"),
    ]


def two_members(model, activation):
    stacked = [np.stack([numpy(v), -1.5 * numpy(v) + 0.1]) for v in model.weights]
    return ensemble_of(model, stacked, SHARES, activation)


def expected(raw, activations, weights, sample_weight):
    """The numbers of `evaluate`: raw has the members' logits of each output."""
    found, total = {}, 0.0
    share = np.ones(COUNT) if sample_weight is None else sample_weight
    for name, activation in activations.items():
        logits = raw[name].astype("float64")
        if activation == "softmax":
            p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            log_p = np.log(np.tensordot(SHARES, p, 1))
        else:
            log_p = np.tensordot(SHARES, logits, 1)
            log_p -= np.log(np.exp(log_p).sum(-1, keepdims=True))
        nats = -log_p[np.arange(COUNT), Y[name]]
        found[f"{name}_loss"] = np.mean(share * nats)
        found[f"{name}_ce"] = np.mean(nats)
        found[f"{name}_accuracy"] = np.mean(log_p.argmax(-1) == Y[name])
        found[f"{name}_weighted_ce"] = np.sum(share * nats) / np.sum(share)
        total += (weights or dict.fromkeys("abc", 1.0))[name] * np.mean(share * nats)
    return found | {"loss": total}


def compile_as(model, form, kind, weights):
    """Compile `model` with losses of this kind, and metrics of their own."""
    make = function_of_logits if kind == "function" else cross_entropy
    shared = make()
    values = {name: make() if kind == "separate" else shared for name in "abc"}
    loss = shared if kind == "one for all" else FORMS[form](values)
    if kind == "flat list":
        loss = [values[name] for name in ORDER[form]]
    weighted = scores()[0]
    weighted.name = "weighted_ce"
    model.compile(
        "sgd",
        loss=loss,
        loss_weights=weights and FORMS[form](weights),
        metrics=FORMS[form]({name: scores() for name in "abc"}),
        weighted_metrics=FORMS[form](dict.fromkeys("abc", [weighted])),
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("form", [*FORMS] if KERAS_VERSION > (3, 10) else OLDEST)
@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("one for all", None),
        ("shared", WEIGHTS),
        ("separate", WEIGHTS),
        ("flat list", None),
        ("function", None),
    ],
)
def test_each_output_is_scored_after_its_activation(activation, form, kind, weights):
    model, names = network(form), ORDER[form]
    compile_as(model, form, kind, weights)
    mixed = ["softmax" if name == "b" else "linear" for name in names]
    used = {None: ["softmax"] * 3, "mixed": mixed}.get(activation, [activation] * 3)
    given = mixed if activation == "mixed" else activation
    if (kind, form, activation) in NAMELESS:
        with pytest.raises(ValueError, match="to which output they belong"):
            two_members(model, given)
        return
    ensemble = two_members(model, given)
    logits = two_members(model, "linear").predict_members(X)
    raw = dict(zip(names, keras.tree.flatten(logits), strict=True))
    sample_weight = np.linspace(0.5, 1.5, COUNT) if weights else None
    activations = dict(zip(names, used, strict=False))
    right = expected(raw, activations, weights, sample_weight)
    found = ensemble.evaluate(
        X,
        FORMS[form](Y),
        sample_weight=sample_weight,
        batch_size=COUNT,
        verbose=0,
        return_dict=True,
    )
    assert len(found) == (4 if form == "one" else 1 + 4 * len(names))
    for name, value in found.items():
        name = name.rpartition("/")[-1]  # Keras names a loss by its path
        if form == "one" and name != "loss":
            name = f"a_{name}"
        assert value == pytest.approx(right[name], abs=1e-5), name


class NeedsAnArgument(metrics.Mean):
    def __init__(self, scale):
        super().__init__()


def test_a_metric_stays_with_its_output():
    model = network("list")
    of_logits = functools.partial(
        metrics.sparse_categorical_crossentropy, from_logits=True
    )
    for lost in (None, NeedsAnArgument(2.0)):
        model.compile("sgd", cross_entropy(), metrics=[lost, of_logits])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ensemble = two_members(model, ["linear", "softmax"])
        found = ensemble.evaluate(
            X, FORMS["list"](Y), batch_size=COUNT, verbose=0, return_dict=True
        )
        (name,) = set(found) - {"loss", "a_loss", "b_loss"}
        assert name.startswith("b_")
        assert found[name] == pytest.approx(found["b_loss"], rel=1e-5)


def test_a_second_softmax_is_told_of_its_output_alone(recwarn):
    source = keras.Input((4,))
    heads = [layers.Dense(CLASSES, "softmax"), layers.Dense(CLASSES)]
    model = keras.Model(source, [head(source) for head in heads])
    model.compile("sgd", ["sparse_categorical_crossentropy", cross_entropy()])
    two_members(model, ["linear", "softmax"])
    assert not [w for w in recwarn if "second softmax" in str(w.message)]
    with pytest.warns(UserWarning, match="second softmax"):
        two_members(model, ["softmax", "linear"])
