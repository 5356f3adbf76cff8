"""Scale inputs by the mean and standard deviation of the training part."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array


def standardized(
    train: npt.ArrayLike, test: npt.ArrayLike, axis: int | Sequence[int] = 0
) -> tuple[Array, Array]:
    """Scale both parts so that the training part has mean 0 and deviation 1.

    Args:
        train: array, such as features of shape (N, D).
        test: array with the shape of `train`, except for its lengths along `axis`.
        axis: axes of the mean and the standard deviation: 0 for features, (0, 1, 2)
            for the channels of images. Defaults to 0.

    Returns:
        `(train, test)` in float32. A feature that is constant in `train` becomes 0
        there.

    Raises:
        ValueError: the arrays are not finite or do not match, `train` is empty, or
            `axis` names no axis of `train`.

    Example:

    >>> import numpy as np
    >>> train, test = standardized(np.array([[1.0, 5.0], [3.0, 5.0]]), [[4.0, 6.0]])
    >>> train.tolist(), test.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[2.0, 1.0]])
    """
    train, test = _finite("train", train), _finite("test", test)
    axes = _axes(axis, train.ndim)
    others = [
        [length for i, length in enumerate(part.shape) if i not in axes]
        for part in (train, test)
    ]
    if train.size == 0 or train.ndim != test.ndim or others[0] != others[1]:
        raise ValueError(
            "Argument `test` must have the shape of `train`, except along `axis`, and "
            f"`train` must not be empty. Received: shapes {train.shape} and "
            f"{test.shape}, axis={axes}"
        )
    if train.dtype.kind != "f":
        train = train.astype("float64")
    if train.dtype == "float16":  # whose differences may not fit
        train = train.astype("float32")
    # Sums in float64: a float32 sum of millions of pixels stops growing.
    mean = train.mean(axes, dtype="float64", keepdims=True).astype(train.dtype)
    # The mean of equal numbers may be rounded.
    is_constant = train.max(axes, keepdims=True) == train.min(axes, keepdims=True)
    mean = np.where(is_constant, train.max(axes, keepdims=True), mean)
    centred = train - mean
    std = np.sqrt(np.square(centred, dtype="float64").mean(axes, keepdims=True))
    std = np.where(std > 0.0, std, 1.0).astype(train.dtype)
    return (centred / std).astype("float32"), ((test - mean) / std).astype("float32")


def _finite(name: str, values: npt.ArrayLike) -> Array:
    array = _validate.array(f"Argument `{name}`", values, dtype=None)
    if not np.isfinite(array).all():
        raise ValueError(
            f"Argument `{name}` must be finite. Remove or repair the other rows. "
            f"Received: {np.sum(~np.isfinite(array))} values that are NaN or infinite"
        )
    return array


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Return the axes as sorted integers in [0, rank), or raise a `ValueError`."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if all(isinstance(a, numbers.Integral) and not isinstance(a, bool) for a in axes):
        counted = {int(a) % rank for a in axes if -rank <= a < rank}
        if len(counted) == len(axes) > 0:
            return tuple(sorted(counted))
    raise ValueError(
        f"Argument `axis` must be one or more of the {rank} axes of `train`, integers "
        f"in [-{rank}, {rank}). Received: axis={_validate.shown(axis)}"
    )
