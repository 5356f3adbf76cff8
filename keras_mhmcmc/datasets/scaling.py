"""Inputs of mean 0 and standard deviation 1, by what the training part says."""

import numbers

import numpy as np

from keras_mhmcmc import _validate


def standardized(train, test, axis=0):
    """Both parts on the scale of the training part: its mean 0, its deviation 1.

    Args:
        train: array, such as features of shape (N, D).
        test: array of the same shape but for `axis`.
        axis: axes that mean and standard deviation are taken over: 0 for features,
            (0, 1, 2) for the channels of images.

    Returns:
        `(train, test)` in float32. What is the same in all of `train` becomes 0 there.

    Raises:
        ValueError: the arrays are not finite or do not fit each other, `train` is
            empty, or `axis` is none of its axes.

    Example:

    >>> import numpy as np
    >>> train, test = standardized(np.array([[1.0, 5.0], [3.0, 5.0]]), [[4.0, 6.0]])
    >>> train.tolist(), test.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[2.0, 1.0]])
    """
    train, test = _finite("train", train), _finite("test", test)
    axis = _axes(axis, train.ndim)
    if train.size == 0 or not _fit(train, test, axis):
        raise ValueError(
            "Argument `test` must have the shape of `train` but for `axis`, and "
            f"`train` must not be empty. Received: shapes {train.shape} and "
            f"{test.shape}, axis={axis}"
        )
    if train.dtype.kind != "f":
        train = train.astype("float64")
    # Sums in float64, since float32 loses the later ones of millions of pixels.
    mean = train.mean(axis, dtype="float64", keepdims=True).astype(train.dtype)
    centred = train - mean
    std = np.sqrt(np.square(centred).mean(axis, dtype="float64", keepdims=True))
    std = np.where(std > 0.0, std, 1.0).astype(train.dtype)
    return (centred / std).astype("float32"), ((test - mean) / std).astype("float32")


def _finite(name, values):
    values = _validate.array(f"Argument `{name}`", values, dtype=None)
    if not np.isfinite(values).all():
        raise ValueError(
            f"Argument `{name}` must be finite. Drop or fill the rows that are not. "
            f"Received: {np.sum(~np.isfinite(values))} values that are NaN or infinite"
        )
    return values


def _axes(axis, rank):
    """The axes, counted from 0, or a `ValueError` that names them."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    integers = all(
        isinstance(a, numbers.Integral) and not isinstance(a, bool) for a in axes
    )
    if integers and all(-rank <= a < rank for a in axes):
        counted = {int(a) % rank for a in axes}
        if len(counted) == len(axes) > 0:
            return tuple(sorted(counted))
    raise ValueError(
        f"Argument `axis` must be one or several of the {rank} axes of `train`, "
        f"integers in [-{rank}, {rank}). Received: axis={_validate.shown(axis)}"
    )


def _fit(train, test, axes):
    """Whether both have the same axes, of equal lengths but for `axes`."""
    if train.ndim != test.ndim:
        return False
    lengths = zip(train.shape, test.shape, strict=True)
    return all(a == b for i, (a, b) in enumerate(lengths) if i not in axes)
