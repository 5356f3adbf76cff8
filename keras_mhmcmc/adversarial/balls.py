"""The balls in which attacks stay: steps, projections and random points.

The L-infinity ball limits the change of each number of an input, and the L2 ball the
Euclidean length of the change of the whole input.
"""

from typing import Literal

import numpy as np
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import Limits

Norm = Literal["linf", "l2"]
NORMS: tuple[Norm, ...] = ("linf", "l2")


def direction(gradient: Tensor, norm: Norm) -> Tensor:
    """Return the steepest step of length 1: the sign, or the gradient over its length.

    Where the gradient is zero, the step is zero.
    """
    if norm == "linf":
        return ops.sign(gradient)
    # The squares of small gradients would underflow in float32.
    axes = feature_axes(gradient)
    largest = ops.max(ops.abs(gradient), axis=axes, keepdims=True)
    scaled = gradient / ops.maximum(largest, SMALLEST)
    return scaled / ops.maximum(_length(scaled), 1.0)


def project(
    moved: Tensor, x: Tensor, epsilon: Tensor, low: Tensor, high: Tensor, norm: Norm
) -> Tensor:
    """Return the points moved into the ball around `x`, and then into the limits.

    The second move leaves the points in the ball, because `x` is within the limits.
    """
    if norm == "linf":
        moved = x + ops.clip(moved - x, -epsilon, epsilon)
    else:
        change = moved - x
        moved = x + change * ops.minimum(
            1.0, epsilon / ops.maximum(_length(change), SMALLEST)
        )
    return ops.clip(moved, low, high)


def random_start(
    rng: np.random.Generator, x: Array, epsilon: float, limits: Limits, norm: Norm
) -> Array:
    """Return points that are drawn uniformly from the balls, within the limits."""
    if norm == "linf":
        noise = rng.uniform(-1.0, 1.0, x.shape)
    else:
        noise = rng.normal(size=x.shape)
        rows = (-1, *[1] * (x.ndim - 1))
        flat = noise.reshape(len(x), -1)
        # The share of the ball within the radius r is r^d.
        radii = rng.uniform(size=len(x)) ** (1.0 / flat.shape[1])
        lengths = np.linalg.norm(flat, axis=1)
        noise = noise * (radii / lengths).reshape(rows)
    return objective.move(x, epsilon, noise.astype("float32"), limits)


def feature_axes(x: Tensor) -> tuple[int, ...]:
    """Return all axes but that of the examples.

    They count from the last on: on PyTorch, Keras 3.10 reduces one axis after the
    other.
    """
    return tuple(range(len(x.shape) - 1, 0, -1))


def _length(change: Tensor) -> Tensor:
    """Return the Euclidean length of each example, shape (n, 1, ...)."""
    squares = ops.sum(ops.square(change), axis=feature_axes(change), keepdims=True)
    return ops.sqrt(squares)
