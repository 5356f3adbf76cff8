"""The strongest point that an attack has met, of each example."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import balls


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
    return Best(
        x,
        np.full(count, -np.inf, "float32"),
        np.zeros(count, "int32"),
        np.ones(count, "bool"),
        np.zeros(count, "int32"),
    )


def is_stronger(
    fooled: Tensor, score: Tensor, best_fooled: Tensor, best_score: Tensor
) -> Tensor:
    """Return whether points are stronger than the best ones, shape (n,).

    A point that fools the model is stronger than one that does not. Otherwise the
    higher loss is stronger.
    """
    higher = ops.logical_and(fooled == best_fooled, score > best_score)
    return ops.logical_or(fooled > best_fooled, higher)


def remember(
    best: Best, point: Tensor, gradient: Tensor, score: Tensor, fooled: Tensor
) -> Best:
    """Return the strongest points after one more evaluation."""
    fooled = ops.cast(fooled, "int32")
    better = is_stronger(fooled, score, best.fooled, best.score)
    axes = balls.feature_axes(point)
    return Best(
        choose(better, point, best.point),
        ops.where(better, score, best.score),
        ops.maximum(fooled, best.fooled),
        ops.logical_and(best.stuck, ops.logical_not(ops.any(gradient != 0, axis=axes))),
        best.broken + ops.sum(ops.cast(~ops.isfinite(gradient), "int32"), axis=axes),
    )


def choose(condition: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the first (n, ...) where a condition (n,) holds, else the second."""
    rows = (-1, *[1] * (len(first.shape) - 1))
    return ops.where(ops.reshape(condition, rows), first, second)
