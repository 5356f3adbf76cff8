"""Check arguments. Each check and its error message share one definition."""

import math
import numbers
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypeVar

import keras
import numpy as np
from keras import activations
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor

Value = TypeVar("Value")


@dataclass(frozen=True)
class Interval:
    """An interval of numbers; each end is open (excluded) or closed (included)."""

    low: float
    high: float = math.inf
    low_open: bool = False
    high_open: bool = True

    def holds(self, value: float) -> bool:
        """Return whether `value` lies in the interval. NaN lies in none."""
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        if self.high == math.inf:
            sign = "greater than" if self.low_open else "at least"
            return f"finite and {sign} {self.low:g}"
        left = "(" if self.low_open else "["
        right = ")" if self.high_open else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


LARGEST_NUMBER = 3e38  # near the largest float32; the samplers compute in float32
_SMALLEST = float(np.finfo("float32").tiny)  # the frameworks round smaller values to 0
LARGEST_INTEGER = 2**31 - 1  # the largest int32; the backends count in int32
_SHOWN = 500  # characters of a value that an error shows

POSITIVE = Interval(0.0, low_open=True)
NOT_NEGATIVE = Interval(0.0)


def number(name: str, value: Any, interval: Interval, hint: str = "") -> float:
    """Return `value` as a float, or raise: `interval` lacks it, or its float32."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # Half precision would overflow in a comparison with the largest number.
    plain = value.item() if isinstance(value, np.floating) else value
    if not is_number or not interval.holds(plain) or abs(plain) > LARGEST_NUMBER:
        raise ValueError(
            f"Argument `{name}` must be a number that is {interval}.{_space(hint)} "
            f"Received: {name}={shown(value)}"
        )
    rounded = float(np.float32(value)) if abs(value) >= _SMALLEST else 0.0
    if not interval.holds(rounded):
        raise ValueError(
            f"Argument `{name}` must be a number that is {interval}, also after it is "
            f"rounded to float32, in which the samplers compute.{_space(hint)} "
            f"Received: {name}={value!r}, which rounds to {rounded:g}"
        )
    return float(value)


# Names that TensorFlow accepts. After an invalid name it would fail for all later
# layers, too, because it keeps the name as their prefix.
_NAME = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_.-]*)?")


def scope_name(value: Any) -> Any:
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise ValueError(
            "Argument `name` must start with a letter, a digit or a dot and contain "
            "only letters, digits, dots, underscores and hyphens. Received: "
            f"name={shown(value)}"
        )
    return value  # Keras replaces None, and refuses any other type


def integer(
    name: str, value: Any, low: int, hint: str = "", high: int = LARGEST_INTEGER
) -> int:
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


def seed(value: Any) -> int:
    return integer("seed", value, 0, hint="It must be less than 2**31.")


def choice(name: str, value: Any, options: Sequence[Value]) -> Value:
    """Return the option that equals `value`, or raise a `ValueError`."""
    for option in options:
        if _is_same(value, option):
            return option
    listed = ", ".join(repr(option) for option in options)
    raise ValueError(
        f"Argument `{name}` must be one of {listed}. Received: {name}={shown(value)}"
    )


def _is_same(value: Any, option: Any) -> bool:
    # Compare values of like types only: comparing an array would return an array.
    if isinstance(value, np.generic):
        value = value.item()
    are_numbers = all(isinstance(x, numbers.Number) for x in (value, option))
    alike = are_numbers or isinstance(value, type(option))
    return value is option or (alike and value == option)


def instance(
    name: str, value: Value, types: type | tuple[type, ...], examples: str
) -> Value:
    """Return `value` if it has one of the types, or raise: it must be `examples`."""
    if not isinstance(value, types):
        raise ValueError(
            f"Argument `{name}` must be {examples}. Received: {name}={shown(value)}"
        )
    return value


def array(subject: str, values: Any, dtype: str | None = "float64") -> Array:
    """Return `values` as an array of floats, or raise a `ValueError`.

    `subject` begins the error. If `dtype` is None, the array keeps its own.
    """
    result = values
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.getmaskarray(values).any():
            raise ValueError(
                f"{subject} must have no masked values. Drop these rows, or fill in "
                f"numbers. Received: {np.ma.count_masked(values)} masked values"
            )
        result = values.data
    elif not isinstance(values, np.ndarray):
        try:
            result = np.asarray(ops.convert_to_numpy(values))
        except (TypeError, ValueError):  # rows of different lengths
            result = np.asarray(None)
    if result.dtype.kind in "OSUMmc" or result.dtype.names:
        raise ValueError(
            f"{subject} must be an array of numbers, with rows of equal lengths."
            f"{_way_to_numbers(values, result)} Received: {shown(values)}"
        )
    with np.errstate(over="ignore"):  # the caller decides about infinite values
        return result if dtype is None else result.astype(dtype)


def _way_to_numbers(values: Any, array: Array) -> str:
    """Return what makes numbers of what users have in their place."""
    is_text = array.dtype.kind == "O" and isinstance(next(iter(array.flat), 0), bytes)
    if array.dtype.kind in "SU" or is_text:
        return (
            " Number the names of classes with "
            "`np.unique(names, return_inverse=True)[1]`, and the words of texts with "
            "`keras.layers.TextVectorization`."
        )
    is_data = isinstance(values, (str, list, tuple, Mapping, np.ndarray))
    if isinstance(values, Iterable) and not is_data:
        return " Collect the batches of a pipeline with `np.concatenate` first."
    return ""


def matrix(name: str, values: Any) -> Array:
    rows = array(f"Argument `{name}`", values)
    finite = np.abs(rows) <= LARGEST_NUMBER
    if rows.ndim != 2 or not finite.all():
        raise ValueError(
            f"Argument `{name}` must be a matrix of finite numbers, with one row for "
            f"each example. Received: shape {rows.shape}, with "
            f"{int(np.sum(~finite))} numbers that are not finite in float32"
        )
    return rows


def batch_size(value: Any, train_size: int) -> int:
    value = integer("batch_size", value, 1)
    if value > train_size:
        raise ValueError(
            "Argument `batch_size` must be at most `train_size`, the number of "
            f"training examples. Received: batch_size={value}, train_size={train_size}"
        )
    return value


def examples(name: str, shape: Sequence[int], model: keras.Model) -> None:
    """Raise a `ValueError` if the model cannot take examples of an array's shape."""
    if not isinstance(model, keras.Sequential | keras.Function):
        return
    if len(model.inputs) != 1:
        return
    taken, given = tuple(model.inputs[0].shape[1:]), tuple(shape[1:])
    # Keras adds or drops a last axis of length 1.
    if len(given) == len(taken) + 1 and given[-1] == 1:
        given = given[:-1]
    elif len(taken) == len(given) + 1 and taken[-1] == 1:
        given = (*given, 1)
    fit = len(given) == len(taken)
    if not fit or any(b not in (None, a) for a, b in zip(given, taken, strict=True)):
        raise ValueError(
            f"Argument `{name}` must have the shape (N, ...) of N examples, each of "
            f"the model's input shape {taken}. Received: shape {tuple(shape)}"
        )


def positions(name: str, value: Any, count: int, owner: str) -> tuple[int, ...]:
    """Return sorted positions in a list of length `count`, at least one left out."""
    instance(name, value, (list, tuple), "a list or tuple of positions")
    chosen = tuple(sorted({integer(name, i, 0) for i in value}))
    if len(chosen) >= count or (chosen and chosen[-1] >= count):
        raise ValueError(
            f"Argument `{name}` must list positions below {count}, the number of "
            f"weights of `{owner}`, and leave at least one position out. Received: "
            f"{name}={value!r}"
        )
    return chosen


def activation(value: Any) -> Callable[[Tensor], Tensor]:
    try:
        return activations.get(value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "Argument `activation` must be the name of one of `keras.activations`, a "
            f"function, or None. Received: activation={shown(value)}"
        ) from error


def shown(value: object) -> str:
    """Return `repr(value)` for an error, shortened if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        return f"{type(value).__name__} with an integer of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _space(hint: str) -> str:
    return f" {hint}" if hint else ""


def own_methods(model: keras.Model, names: Sequence[str]) -> list[str]:
    """Return those of the methods that the model's class defines in place of Keras."""
    kind = type(model)
    return [n for n in names if getattr(kind, n) is not getattr(keras.Model, n)]
