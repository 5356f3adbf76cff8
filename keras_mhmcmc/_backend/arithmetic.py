"""Arithmetic that JAX and TensorFlow write alike; XLA fuses it."""

from typing import Any
from typing import NamedTuple


class Difference(NamedTuple):
    """A difference x - y that is not computed yet."""

    x: Any
    y: Any


def lazy_difference(xs, ys):
    """Return x - y for lists of tensors, for `sum_products` alone."""
    return [Difference(x, y) for x, y in zip(xs, ys, strict=True)]


def affine(x, slope, constant):
    """Return slope x + constant."""
    return slope * x + constant


def add_product(x, y, z):
    """Return x + y z."""
    return x + y * z


def between(x, y, share):
    """Return x + share (y - x)."""
    return x + share * (y - x)
