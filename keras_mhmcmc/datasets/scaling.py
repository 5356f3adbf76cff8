"""Inputs of mean 0 and standard deviation 1, by what the training part says."""

import numpy as np


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
        ValueError: the arrays do not fit each other, or `train` is empty.

    Example:

    >>> import numpy as np
    >>> train, test = standardized(np.array([[1.0, 5.0], [3.0, 5.0]]), [[4.0, 6.0]])
    >>> train.tolist(), test.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[2.0, 1.0]])
    """
    train, test = np.asarray(train), np.asarray(test)
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


def _fit(train, test, axis):
    """Whether both have the same axes, of equal lengths but for `axis`."""
    if train.ndim != test.ndim:
        return False
    free = {int(a) % train.ndim for a in np.atleast_1d(axis)}
    lengths = zip(train.shape, test.shape, strict=True)
    return all(a == b for i, (a, b) in enumerate(lengths) if i not in free)
