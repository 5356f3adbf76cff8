"""What the tests of hostile input share: bad values by kind, rows, small models."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
from argument_tools import NOT_A_COUNT
from argument_tools import NOT_A_NUMBER
from argument_tools import NOT_A_SHARE
from argument_tools import NOT_AN_INTEGER
from argument_tools import NOT_FINITE

import keras_mhmcmc as mh

HUGE = 10**400
PRINTLESS = 10**5000  # Python refuses to print it


class Row(NamedTuple):
    """A public callable, arguments it takes, and values of each that it must refuse."""

    call: Callable
    good: Callable  # gives a dict of all arguments that are varied or required
    bad: dict  # argument -> values
    usable: Callable = lambda result: None  # raises where the result is of no use
    # Other names by which an error may call an argument, such as one that must fit it.
    also: dict = {}
    needs: tuple = ()  # packages that the extras bring
    is_quick: bool = True  # whether a call that works does so within a second
    is_drawn: bool = True  # whether values that are not listed are drawn as well


# Values that are refused, by what an argument must be.

ODD = [
    b"1",
    {},
    {"a": 1},
    {1.0},
    float,
    object(),
    lambda x: x,
    range(3),
    np.bool_(True),
]
NUMBER = [
    *NOT_A_NUMBER,
    *NOT_FINITE,
    *ODD,
    HUGE,
    -HUGE,
    PRINTLESS,
    np.datetime64("now"),
]
POSITIVE = [*NUMBER, 0, 0.0, -1.0, 5e-324, 1e-50]
NOT_NEGATIVE = [*NUMBER, -0.1, -1]
SHARE = [*NOT_A_SHARE, *ODD, HUGE, 1.0 - 1e-12]  # of [0, 1)
OPEN_SHARE = [*SHARE, 0.0]
AT_LEAST_ONE = [*NUMBER, 0.99, -1.0, 0]
COUNT = [*NOT_A_COUNT, *ODD, [1], np.array([1]), math.inf, 2**31, HUGE, PRINTLESS, 1j]
INTEGER = [*NOT_AN_INTEGER, *ODD, -1, [1], math.inf, 2**31, HUGE, 1j]
SEED = [*INTEGER, 2**40, np.float64(0)]
FLAG = ["yes", None, 2, [True], np.array([True, False]), {}, math.nan, "True", 0.5]
STRICT_FLAG = [*FLAG, 0, 1]
NO_NUMBERS = [
    "0.5",
    ["0.5"],
    None,
    [None],
    {},
    {"a": 1.0},
    np.array([0.5, "a"], object),
    np.array(["0.5"]),
    [[1.0], [1.0, 2.0]],
    1j,
    [1j, 0.5],
    [HUGE],
    [PRINTLESS],
    np.array(["2020-01-01"], "datetime64[D]"),
    {0.5},
    lambda x: x,
    float,
    b"0.5",
]
PROBABILITIES = [  # of 4 examples and 2 classes
    *NO_NUMBERS,
    [],
    0.5,
    np.zeros((0, 2)),
    np.zeros((4, 0)),
    np.full((4, 2), 0.25),
    np.full((4, 2), np.nan),
    np.array([[0.5, 0.5]] * 3 + [[np.nan, 0.5]]),
    np.array([[0.5, 0.5]] * 3 + [[np.inf, 0.0]]),
    np.array([[0.5, 0.5]] * 3 + [[-0.5, 1.5]]),
    np.array([[5.0, -5.0]] * 4),
    np.full((2, 2, 2), 0.5),
]
LABELS = [  # of 4 examples and 2 classes
    *NO_NUMBERS,
    [],
    0,
    [0, 1, 0],
    [0, 1, 0, 1, 0],
    [0, 1, 0, 2],
    [0, 1, 0, -1],
    [0, 1, 0, 0.5],
    [0, 1, 0, math.nan],
    [0, 1, 0, math.inf],
    [0, 1, 0, 2**40],
    np.zeros((4, 2)),
    np.ones((4, 2)),
    np.full((4, 2), 0.5),
    np.full((4, 2), np.nan),
    np.zeros((4, 3)),
    np.zeros((4, 1, 1)),
]
INPUTS = [  # of 4 examples shaped (3,), in [0, 1]
    *NO_NUMBERS,
    [],
    0.5,
    np.zeros((0, 3)),
    np.zeros((4, 0)),
    np.full((4, 3), np.nan),
    np.array([[0.5, 0.5, np.inf]] * 4),
    np.array([[0.5, 0.5, 1e300]] * 4),  # not finite in float32
    np.full((4, 2), 0.5),
    np.full((4, 3, 3), 0.5),
    np.full((4,), 0.5),
]
TEXT = [None, 1, b"digits", ["digits"], "", "Digits", math.nan, object, np.array(["a"])]
FUNCTION = ["f", 1, 0.5, [1], {}, np.ones(2), True]


class Unbuilt(keras.Model):
    """A model without an input shape."""

    def call(self, inputs):
        return inputs


X4 = np.full((4, 3), 0.5)
Y4 = [0, 1, 0, 1]
P4 = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2]])


@functools.cache
def network(*layers):
    """A built model from inputs of shape (3,) to two probabilities."""
    head = keras.layers.Dense(2, activation="softmax")
    return keras.Sequential([keras.Input((3,)), *(make() for make in layers), head])


@functools.cache
def classifier():
    """Compiled once for all tests."""
    return mh.Classifier(network())


@functools.cache
def ensemble(*layers):
    """Two members that are not the same."""
    model = network(*layers)
    made = mh.Ensemble(model, 2)
    values = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    made.set_members([np.stack([v, v + 0.5]) for v in values], [1.0, 1.0])
    return made


MODEL = [
    None,
    "model",
    1,
    math.nan,
    {},
    [1],
    keras.Model,
    keras.Sequential,
    lambda x: x,
    np.zeros((3, 2)),
    keras.layers.Dense(2),
    keras.Sequential([keras.layers.Dense(2)]),
    Unbuilt(),
]


# What a refusal must look like.


def faults_of(error, names):
    """What is wrong with a refusal: it names one of `names`, and what it received."""
    message = str(error)
    # Of a dict an entry may be named, such as `models['a']`.
    if not any(f"`{name}`" in message or f"`{name}[" in message for name in names):
        yield f"no name: {type(error).__name__}: {message[:200]}"
    if "eceived" not in message:
        yield f"nothing received: {message[:200]}"
    if len(message) > 3000:
        yield f"too long: {message[:200]}"
