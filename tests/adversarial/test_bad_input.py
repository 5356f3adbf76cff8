"""What FGSM and the table of attacks refuse."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import adversarial
from keras_mhmcmc.adversarial import apgd
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.adversarial import strongest
from tests.support.attack_tools import linear

NAN = float("nan")
X = np.full((4, 2), 0.5, "float32")
SHARED = [
    ("x", [np.where(X, NAN, X)], "must be finite.*: 8 of 8 values"),
    ("x", [255 * X], r"must lie in `clip`, here \[0, 1\]. Scale.*127.5 and 127.5"),
    ("y", [[0, 1, 2, 3]], r"must be integers in \[0, 3"),
    ("y", [np.ones((4, 3))], "must be one-hot"),
    ("clip", [(1, 0), (0, NAN)], "must be a pair of"),
    ("member", [1], "must be None for a model without members"),
]
CURVE = [
    ("from_logits", [{"other": True}], "must be.*the names of `models`"),
    ("attack", ["cw"], "must be 'fgsm', 'pgd', .*'strongest' or a function"),
    ("steps", [3], "must be omitted: attack='fgsm' takes no options"),
    ("member", [0], "must be None for a model without members"),
]


def each(cases):
    rows = [(name, value, text) for name, values, text in cases for value in values]
    return pytest.mark.parametrize("name, value, text", rows)


@each(SHARED)
def test_bad_input_of_fgsm(name, value, text):
    good = {"model": linear(np.eye(2, 3), np.zeros(3)), "x": X, "epsilon": 0.1}
    with pytest.raises(ValueError, match=f"Argument `{name}` {text}"):
        fgsm(**{**good, name: value})


@each(CURVE)
def test_bad_input_of_robustness_curve(name, value, text):
    models = {"one": linear(np.eye(2, 3), np.zeros(3))}
    good = {"models": models, "x": X, "y": [0] * 4, "epsilons": [0.0]}
    with pytest.raises(ValueError, match=f"`{name}` {text}"):
        robustness_curve(**{**good, name: value})


@pytest.mark.parametrize(
    "build, logits, message",
    [
        (keras.layers.Reshape((2, 1)), False, "must output one tensor of shape"),
        (
            lambda x: {"a": 1.0 * x, "b": 2.0 * x},
            False,
            "must output one tensor of shape",
        ),
        (lambda x: x - 2.0, False, r"must be numbers in .*Pass from_logits=True"),
        (lambda x: 0.1 * x, False, "must have rows that sum.*end in a softmax"),
        (lambda x: NAN * x, False, "must be numbers in .*without NaN"),
        (lambda x: x / 0.0, True, "must output finite logits"),
        (lambda x: ops.sqrt(x - 0.5), True, "must have finite gradients"),
    ],
)
def test_bad_models(build, logits, message):
    inputs = keras.Input((2,))
    model = keras.Model(inputs, build(inputs))
    with pytest.raises(ValueError, match="Argument `model` .*" + message):
        fgsm(model, X, 0.1, y=[0] * 4, from_logits=logits)


ATTACKS = {
    "fgsm": fgsm,
    "pgd": adversarial.pgd,
    "apgd": apgd,
    "square": adversarial.square,
    "strongest": lambda model, x, epsilon, y: strongest(model, x, y, epsilon),
    "curve": lambda model, x, epsilon, y: robustness_curve(
        {"m": model}, x, y, [epsilon]
    ),
    "art": lambda model, *args, **options: adversarial.art_classifier(model),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_numbers_of_words_are_not_attacked(name):
    layers = [keras.layers.Embedding(2, 4), keras.layers.Flatten()]
    last = keras.layers.Dense(2, "softmax")
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *layers, last])
    x, y = np.arange(24).reshape(4, 6) % 2, [0, 1, 0, 1]
    with pytest.raises(ValueError, match="must take floating-point numbers"):
        ATTACKS[name](model, x, 0.3, y=y)


def beyond(classifier, x, epsilon, y, clip):
    return x + 0.3


def test_an_attack_of_a_user_that_leaves_the_ball_or_the_limits():
    models = {"m": linear(np.eye(2, 3), np.zeros(3))}
    y = np.zeros(len(X), int)
    with pytest.warns(UserWarning, match="by more than epsilon=0.1.*0.3.*0.424"):
        robustness_curve(models, X, y, [0.1], attack=beyond)
    with pytest.raises(ValueError, match=r"within.*`clip`.*\[0, 1\].*with 8 values"):
        robustness_curve(models, X + 0.4, y, [0.1], attack=beyond)


def test_attacks_of_two_norms_are_not_mixed():
    model = linear(np.eye(2, 3), np.zeros(3))
    attacks = [functools.partial(apgd, norm="l2"), "square"]
    with pytest.raises(ValueError, match="`attacks`.*one norm.*l2, linf"):
        strongest(model, X, np.zeros(len(X), int), 0.1, attacks=attacks)
