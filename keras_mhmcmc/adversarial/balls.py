"""The balls in which attacks stay, and the strongest point that a run has met.

The L-infinity ball limits the change of each number of an input, and the L2 ball the
Euclidean length of the change of the whole input.
"""

from typing import Literal
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import Limits

Norm = Literal["linf", "l2"]
NORMS: tuple[Norm, ...] = ("linf", "l2")
# Of `nearest`. 7 were enough for each of 500 images of digits, of MNIST and of
# Fashion-MNIST, and for changes three times as long as the radius.
ROUNDS = 7


def direction(gradient: Tensor, norm: Norm) -> Tensor:
    """Return the steepest step of length 1: the sign, or gradient over length."""
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
    """Return the points moved into the ball around `x`, and then into the limits."""
    change = moved - x
    if norm == "linf":
        change = ops.clip(change, -epsilon, epsilon)
    else:
        longest = epsilon / ops.maximum(_length(change), SMALLEST)
        change = change * ops.minimum(1.0, longest)
    return ops.clip(x + change, low, high)


def nearest(
    moved: Tensor, x: Tensor, epsilon: Tensor, low: Tensor, high: Tensor, norm: Norm
) -> Tensor:
    """Return the points of the ball and the limits that are nearest to `moved`.

    In the L2 ball, the limits may bring a point of `project` nearer to `x` than it has
    to be. The nearest is clip(x + t d), d = moved - x, with the largest t <= 1 that

        t = min(1, sqrt((epsilon^2 - sum_C b^2) / sum_F d^2))

    allows: C are the numbers that the limits stop, b their changes, F the others. The
    loop begins at the t of no limits. So t only rises, until C stays the same.
    """
    if norm == "linf":
        return project(moved, x, epsilon, low, high, norm)
    axes = feature_axes(x)
    change = moved - x
    shares = change / epsilon  # the squares of small changes would underflow
    t = ops.minimum(1.0, 1.0 / ops.maximum(_length(shares), SMALLEST))
    for _ in range(ROUNDS):
        point = ops.clip(x + t * change, low, high)
        is_stopped = ops.logical_or(point <= low, point >= high)
        stopped = ops.where(is_stopped, (point - x) / epsilon, 0.0)
        free = ops.where(is_stopped, 0.0, shares)
        left = 1.0 - ops.sum(ops.square(stopped), axis=axes, keepdims=True)
        length = ops.maximum(_length(free), SMALLEST)
        wider = ops.sqrt(ops.maximum(left, 0.0)) / length
        t = ops.minimum(1.0, ops.maximum(t, wider))
    # The projection takes away what rounding has added to the length.
    point = ops.clip(x + t * change, low, high)
    return project(point, x, epsilon, low, high, norm)


def move(x: Array, epsilon: float, signs: Array, limits: Limits) -> Array:
    """Return x + epsilon * signs, clipped to the limits."""
    moved = x + np.float32(epsilon) * signs
    return moved if limits is None else np.clip(moved, *limits)


def random_start(
    rng: np.random.Generator, x: Array, epsilon: float, limits: Limits, norm: Norm
) -> Array:
    """Return points that are drawn uniformly from the balls, within the limits."""
    if norm == "linf":
        noise = rng.uniform(-1.0, 1.0, x.shape)
    else:
        noise = rng.normal(size=x.shape)
        flat = noise.reshape(len(x), -1)
        # The share of the ball within the radius r is r^d.
        radii = rng.uniform(size=len(x)) ** (1.0 / flat.shape[1])
        lengths = radii / np.linalg.norm(flat, axis=1)
        noise = noise * lengths.reshape(-1, *[1] * (x.ndim - 1))
    return move(x, epsilon, noise.astype("float32"), limits)


def feature_axes(x: Tensor) -> tuple[int, ...]:
    """Return all axes but that of the examples, the last one first."""
    # On PyTorch, Keras 3.10 reduces one axis after the other.
    return tuple(range(len(x.shape) - 1, 0, -1))


def _length(change: Tensor) -> Tensor:
    """Return the Euclidean length of each example, shape (n, 1, ...)."""
    squares = ops.sum(ops.square(change), axis=feature_axes(change), keepdims=True)
    return ops.sqrt(squares)


class Best(NamedTuple):
    """What an attack remembers of each example, as tensors or arrays."""

    point: Tensor  # (n, ...): the strongest point so far
    score: Tensor  # (n,): its loss
    fooled: Tensor  # (n,): whether it fools the model, 0 or 1
    stuck: Tensor  # (n,): whether all gradients were zero
    broken: Tensor  # (n,): how many numbers of the gradients were not finite


def start(x: Array) -> Best:
    """Return what is known before the first evaluation: any point is stronger."""
    count = len(x)
    none, zeros = np.full(count, -np.inf, "float32"), np.zeros(count, "int32")
    return Best(x, none, zeros, np.ones(count, "bool"), zeros)


def is_stronger(
    fooled: Tensor, score: Tensor, best_fooled: Tensor, best_score: Tensor
) -> Tensor:
    """Return which points are stronger (n,): they fool, or have the higher loss."""
    higher = ops.logical_and(fooled == best_fooled, score > best_score)
    return ops.logical_or(fooled > best_fooled, higher)


def remember(
    best: Best, point: Tensor, gradient: Tensor, score: Tensor, fooled: Tensor
) -> Best:
    """Return the strongest points after one more evaluation."""
    fooled = ops.cast(fooled, "int32")
    better = is_stronger(fooled, score, best.fooled, best.score)
    axes = feature_axes(point)
    return Best(
        choose(better, point, best.point),
        ops.where(better, score, best.score),
        ops.maximum(fooled, best.fooled),
        ops.logical_and(best.stuck, ops.logical_not(ops.any(gradient != 0, axis=axes))),
        best.broken + ops.sum(ops.cast(~ops.isfinite(gradient), "int32"), axis=axes),
    )


def choose(condition: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the first (n, ...) where a condition (n,) holds, else the second."""
    return ops.where(as_rows(condition, first), first, second)


def as_rows(values: Tensor, x: Tensor) -> Tensor:
    """Return tensors of shape (n,) in the shape (n, 1, ...), to go with `x`."""
    return ops.reshape(values, (-1, *[1] * (len(x.shape) - 1)))
