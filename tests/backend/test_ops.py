"""The operations of a step: single numbers and rows, alone and together.

On PyTorch they are functions of our own. They give what numpy gives, as `keras.ops`
does on the other backends.
"""

import math

import keras
import numpy as np
import pytest

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc.samplers.parts import tensors

pytestmark = pytest.mark.every_backend

ROW = np.array([-1.5, 0.0, 0.25, 3.0], "float32")
VALUES = [-2.5, 0.0, 0.3, 4.0, math.inf, -math.inf, math.nan]


def tensor(x, dtype="float32"):
    return keras.ops.convert_to_tensor(np.asarray(x, dtype))


def assert_is(actual, expected):
    expected = np.asarray(expected)
    actual = ops.convert_to_numpy(actual)
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=2e-6)


ONE = {
    "exp": np.exp,
    "isfinite": np.isfinite,
    "log": np.log,
    "sqrt": np.sqrt,
    "square": np.square,
    "zeros_like": np.zeros_like,
}
TWO = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
}


@pytest.mark.parametrize("name", ONE)
@np.errstate(all="ignore")
def test_of_one(name):
    function = getattr(ops, name)
    assert_is(function(tensor(ROW)), ONE[name](ROW))
    for value in np.array(VALUES, "float32"):
        assert_is(function(tensor(value)), ONE[name](value))


@pytest.mark.parametrize("name", TWO)
@np.errstate(all="ignore")
def test_of_two(name):
    function, oracle = getattr(ops, name), TWO[name]
    for value in np.array([0.5, 2.0, math.inf], "float32"):
        for other in np.array([0.25, 3.0], "float32"):
            assert_is(function(tensor(value), tensor(other)), oracle(value, other))
        assert_is(function(tensor(abs(ROW)), tensor(value)), oracle(abs(ROW), value))
        assert_is(function(tensor(value), tensor(abs(ROW))), oracle(value, abs(ROW)))


@pytest.mark.parametrize("name", ["maximum", "minimum", "power"])
def test_with_a_number_of_python(name):
    function, oracle = getattr(ops, name), TWO[name]
    assert_is(function(tensor(2.0), 3.0), oracle(np.float32(2.0), np.float32(3.0)))
    assert_is(function(tensor(ROW), 2.0), oracle(ROW, np.float32(2.0)))


def test_clip():
    for x in (ROW, ROW[0], ROW[3]):
        for low, high in ((-1.0, 2.0), (tensor(-1.0), tensor(2.0))):
            given = tensor(x)
            assert_is(ops.clip(given, low, high), np.clip(x, -1.0, 2.0).astype("f4"))


@pytest.mark.parametrize("holds", [True, False])
def test_where(holds):
    condition = tensor(holds, "bool")
    for x, y in ((ROW, 2 * ROW), (ROW, np.float32(7)), (np.float32(7), ROW)):
        given = [tensor(x), tensor(y)]
        assert_is(ops.where(condition, *given), np.where(holds, x, y))
    assert_is(ops.where(condition, tensor(1.0), 2.0), np.float32(1 if holds else 2))
    assert_is(ops.where(condition, tensor(ROW), 0.0), np.float32(holds) * ROW)
    several = tensor(ROW > 0, "bool")
    chosen = ops.where(several, tensor(5.0), tensor(ROW))
    assert_is(chosen, np.where(ROW > 0, np.float32(5), ROW))


def test_stacks_and_their_parts():
    parts = ops.unstack(tensor(ROW), 4, axis=-1)
    assert_is(ops.stack(parts, axis=-1), ROW)
    for part, value in zip(parts, ROW, strict=True):
        assert_is(part, value)
    truths = [tensor(True, "bool"), tensor(False, "bool")]
    assert_is(ops.stack(truths, axis=-1), np.array([True, False]))
    assert_is(ops.cast(ops.stack(truths), "float32"), np.array([1, 0], "float32"))
    mixed = [tensor(2.0), keras.ops.sum(tensor(ROW))]
    assert_is(ops.stack(mixed), np.array([2.0, ROW.sum()], "float32"))


def test_numbers_and_rows_together():
    row, number = tensor(ROW), tensor(2.0)
    assert_is(row + ops.expand_dims(number, -1), ROW + np.float32(2))
    assert_is(number * row - number / row[2], 2 * ROW - np.float32(8))
    assert_is(ops.cast(number, "int32"), np.int32(2))
    assert_is(ops.reshape(number, (1,)), np.array([2.0], "float32"))
    assert_is(tensors.pick(row, tensor(2, "int32")), ROW[2])


def test_what_is_assigned():
    truth = keras.Variable(True, trainable=False, dtype="bool")
    variables = [keras.Variable(1.0), keras.Variable(ROW), truth]
    _backend.write(variables, [tensor(3.0), tensor(2 * ROW), tensor(False, "bool")])
    for variable, value in zip(variables, (3.0, 2 * ROW, False), strict=True):
        assert_is(variable.value, np.asarray(value, variable.dtype))


@pytest.mark.parametrize("name", ["mean", "sin", "std", "argmax"])
def test_what_no_step_calls_is_that_of_keras(name):
    assert getattr(ops, name) is getattr(keras.ops, name)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no_such_function"):
        ops.no_such_function
