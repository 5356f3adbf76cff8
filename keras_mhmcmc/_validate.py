"""Checks of arguments; the check and its sentence come from one object."""

import math
import numbers
import re
from dataclasses import dataclass

import keras
import numpy as np
from keras import activations
from keras import ops


@dataclass(frozen=True)
class Interval:
    """Numbers between two ends, each of which belongs to it or not."""

    low: float
    high: float = math.inf
    low_open: bool = False
    high_open: bool = True

    def holds(self, value):
        """Whether the interval has `value` in it; NaN is in no interval."""
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self):
        if self.high == math.inf:
            sign = "greater than" if self.low_open else "at least"
            return f"finite and {sign} {self.low:g}"
        left = "(" if self.low_open else "["
        right = ")" if self.high_open else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


_LARGEST = 3e38  # of float32, in which the samplers compute
_SMALLEST = float(np.finfo("float32").tiny)  # below, the frameworks count it as 0
LARGEST_INTEGER = 2**31 - 1  # of int32, in which the backends count
_SHOWN = 500  # characters of a value in an error

POSITIVE = Interval(0.0, low_open=True)
NOT_NEGATIVE = Interval(0.0)


def number(name, value, interval, hint=""):
    """`value` as a float in `interval`, or a `ValueError` that names it.

    It must lie there in float32 as well: 1e-50 is not greater than 0.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # Half precision would overflow in a comparison with the largest number.
    plain = value.item() if isinstance(value, np.floating) else value
    if not is_number or not interval.holds(plain) or abs(plain) > _LARGEST:
        raise ValueError(
            f"Argument `{name}` must be a number that is {interval}.{_space(hint)} "
            f"Received: {name}={shown(value)}"
        )
    rounded = float(np.float32(value)) if abs(value) >= _SMALLEST else 0.0
    if not interval.holds(rounded):
        raise ValueError(
            f"Argument `{name}` must be a number that is {interval}, in float32, too, "
            f"in which the samplers compute.{_space(hint)} "
            f"Received: {name}={value!r}, which is {rounded:g} there"
        )
    return float(value)


# What TensorFlow takes; one that it refuses stays in the names of all later layers.
_NAME = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_.-]*)?")


def scope_name(value):
    """`value`, the name of a model or an optimizer, or a `ValueError`."""
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise ValueError(
            "Argument `name` must begin with a letter, a digit or a dot, and go on "
            "with these, underscores and hyphens, as every backend takes them. "
            f"Received: name={shown(value)}"
        )
    return value  # Keras makes one for None, and refuses what is no text


def integer(name, value, low, hint="", high=LARGEST_INTEGER):
    """`value` as an int in [low, high], or a `ValueError` that names it."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < low:
        raise ValueError(
            f"Argument `{name}` must be an integer that is at least {low}."
            f"{_space(hint)} Received: {name}={shown(value)}"
        )
    if value > high:
        raise ValueError(
            f"Argument `{name}` must be an integer that is at most {high}."
            f"{_space(hint)} Received: {name}={shown(value)}"
        )
    return int(value)


def seed(value):
    """A seed that every backend takes."""
    return integer("seed", value, 0, hint="It must be less than 2**31.")


def choice(name, value, options):
    """The one of `options` that is `value`, or a `ValueError` that lists them."""
    for option in options:
        if _is_same(value, option):
            return option
    listed = ", ".join(repr(option) for option in options)
    raise ValueError(
        f"Argument `{name}` must be one of {listed}. Received: {name}={shown(value)}"
    )


def _is_same(value, option):
    # Only what is alike is compared: an array would give an array.
    if isinstance(value, np.generic):
        value = value.item()
    are_numbers = all(isinstance(x, numbers.Number) for x in (value, option))
    alike = are_numbers or isinstance(value, type(option))
    return value is option or (alike and value == option)


def instance(name, value, types, examples):
    """`value` if it has one of `types`, or a `ValueError` with `examples`."""
    if not isinstance(value, types):
        raise ValueError(
            f"Argument `{name}` must be {examples}. Received: {name}={shown(value)}"
        )
    return value


def array(subject, values, dtype="float64"):
    """An array of floats from one of numbers, or a `ValueError` about `subject`.

    Text is not read as numbers, and no part of a complex number is dropped. With None
    as `dtype` the array keeps its own.
    """
    result = values
    if not isinstance(values, np.ndarray):
        try:
            result = np.asarray(ops.convert_to_numpy(values))
        except (TypeError, ValueError):  # rows of different lengths
            result = np.asarray(None)
    if result.dtype.kind in "OSUMmc" or result.dtype.names:
        raise ValueError(
            f"{subject} must be an array of numbers, with rows of equal lengths. "
            f"Received: {shown(values)}"
        )
    with np.errstate(over="ignore"):  # infinite values are for the caller to refuse
        return result if dtype is None else result.astype(dtype)


def batch_size(value, train_size):
    """A batch size that a data set of `train_size` examples can fill."""
    value = integer("batch_size", value, 1)
    if value > train_size:
        raise ValueError(
            "Argument `batch_size` must be at most `train_size`, the number of "
            f"training examples. Received: batch_size={value}, train_size={train_size}"
        )
    return value


def examples(name, shape, model):
    """Raises unless an array of this shape has examples that `model` takes.

    Of a subclass of `keras.Model` what it takes is not known.
    """
    if not isinstance(model, keras.Sequential | keras.Function):
        return
    if len(model.inputs) != 1:
        return
    taken, given = tuple(model.inputs[0].shape[1:]), tuple(shape[1:])
    # Keras adds and drops a last axis of length 1.
    if len(given) == len(taken) + 1 and given[-1] == 1:
        given = given[:-1]
    elif len(taken) == len(given) + 1 and taken[-1] == 1:
        given = (*given, 1)
    fit = len(given) == len(taken)
    if not fit or any(b not in (None, a) for a, b in zip(given, taken, strict=True)):
        raise ValueError(
            f"Argument `{name}` must have examples of the shape that the model takes, "
            f"{taken}, along its first axis. Received: shape {tuple(shape)}"
        )


def positions(name, value, count, owner):
    """Positions in a list of length `count`, in order, without some of them."""
    instance(name, value, (list, tuple), "a list or tuple of positions")
    chosen = tuple(sorted({integer(name, i, 0) for i in value}))
    if len(chosen) >= count or (chosen and chosen[-1] >= count):
        raise ValueError(
            f"Argument `{name}` must be positions below {count}, for the weights of "
            f"`{owner}`, and leave one of them out. Received: {name}={value!r}"
        )
    return chosen


def activation(value):
    """A function from what `keras.activations.get` takes, or a `ValueError`."""
    try:
        return activations.get(value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "Argument `activation` must be the name of one of `keras.activations`, a "
            f"function, or None. Received: activation={shown(value)}"
        ) from error


def shown(value):
    """`repr(value)` for an error, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        return f"{type(value).__name__} with an integer of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _space(hint):
    return f" {hint}" if hint else ""
