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


def network(*layers, units=2, activation="softmax", **options):
    """A built model from inputs of shape (3,) to `units` probabilities."""
    head = keras.layers.Dense(units, activation=activation, **options)
    return keras.Sequential([keras.Input((3,)), *layers, head])


@functools.cache
def small_model():
    return network()


@functools.cache
def dropout_model():
    return network(keras.layers.Dropout(0.5))


def not_built():
    return keras.Sequential([keras.layers.Dense(2)])


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
    not_built(),
    Unbuilt(),
]


# What a refusal must look like.


def assert_names(error, names):
    """The message of a refusal names one of `names` and what it received."""
    message = str(error)
    assert any(f"`{name}`" in message for name in names), message
    assert len(message) < 3000, message[:300]


def refusal(call, arguments):
    """The error that a call raises if it is a refusal; None where it works."""
    try:
        call(**arguments)
    except (ValueError, TypeError) as error:
        return error
    return None


def described(value):
    """A short name of a bad value, for ids."""
    try:
        text = repr(value)
    except ValueError:
        return "printless"
    return f"{type(value).__name__}-{text[:24]}"
