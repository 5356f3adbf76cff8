"""Checks of arguments; the check and its sentence come from one object."""

import math
import numbers
from dataclasses import dataclass


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

POSITIVE = Interval(0.0, low_open=True)
NOT_NEGATIVE = Interval(0.0)


def number(name, value, interval, hint=""):
    """`value` as a float in `interval`, or a `ValueError` that names it."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not interval.holds(value) or abs(value) > _LARGEST:
        raise ValueError(
            f"Argument `{name}` must be a number that is {interval}.{_space(hint)} "
            f"Received: {name}={value!r}"
        )
    return float(value)


def integer(name, value, low, hint=""):
    """`value` as an int that is at least `low`, or a `ValueError` that names it."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < low:
        raise ValueError(
            f"Argument `{name}` must be an integer that is at least {low}."
            f"{_space(hint)} Received: {name}={value!r}"
        )
    return int(value)


def seed(value):
    """A seed that every backend takes."""
    value = integer("seed", value, 0)
    if value >= 2**31:
        raise ValueError(
            f"Argument `seed` must be less than 2**31. Received: seed={value}"
        )
    return value


def choice(name, value, options):
    """`value` if it is one of `options`, or a `ValueError` that lists them."""
    if not any(value is option or value == option for option in options):
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(
            f"Argument `{name}` must be one of {listed}. Received: {name}={value!r}"
        )
    return value


def instance(name, value, types, examples):
    """`value` if it has one of `types`, or a `ValueError` with `examples`."""
    if not isinstance(value, types):
        raise ValueError(
            f"Argument `{name}` must be {examples}. Received: {name}={value!r}"
        )
    return value


def batch_size(value, train_size):
    """A batch size that a data set of `train_size` examples can fill."""
    value = integer("batch_size", value, 1)
    if value > train_size:
        raise ValueError(
            "Argument `batch_size` must be at most `train_size`, the number of "
            f"training examples. Received: batch_size={value}, train_size={train_size}"
        )
    return value


def _space(hint):
    return f" {hint}" if hint else ""
