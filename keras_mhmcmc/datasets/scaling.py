"""Scale inputs by the mean and standard deviation of the training part."""

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array


def standardized(
    train: npt.ArrayLike, test: npt.ArrayLike, axis: int | tuple[int, ...] = 0
) -> tuple[Array, Array]:
    """Scale both parts so that the training part has mean 0 and deviation 1.

    Args:
        train: array, such as features of shape (N, D).
        test: array with the shape of `train`, except for its lengths along `axis`.
        axis: axes of the mean and the standard deviation, as for `numpy.mean`: 0 for
            features, (0, 1, 2) for the channels of images. Defaults to 0.

    Returns:
        `(train, test)` in float32. A feature that is constant in `train` becomes 0
        there.

    Raises:
        ValueError: the arrays are not finite or do not match, or `train` is empty.
        IndexError, TypeError: `axis` names no axis of `train`.

    Example:

    >>> import numpy as np
    >>> train, test = standardized(np.array([[1.0, 5.0], [3.0, 5.0]]), [[4.0, 6.0]])
    >>> train.tolist(), test.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[2.0, 1.0]])
    """
    train, test = _finite("train", train), _finite("test", test)
    if (
        train.size == 0
        or train.ndim != test.ndim
        or np.any(np.delete(train.shape, axis) != np.delete(test.shape, axis))
    ):
        raise ValueError(
            "Argument `test` must have the shape of `train`, except along `axis`, and "
            f"`train` must not be empty. Received: shapes {train.shape} and "
            f"{test.shape}, {axis=}"
        )
    if train.dtype.kind != "f" or train.dtype == "float16":
        train = train.astype("float64")
    # Sums in float64: a float32 sum of millions of pixels stops growing.
    mean = train.mean(axis, dtype="float64", keepdims=True).astype(train.dtype)
    # The mean of equal numbers may be rounded.
    is_constant = train.max(axis, keepdims=True) == train.min(axis, keepdims=True)
    mean = np.where(is_constant, train.max(axis, keepdims=True), mean)
    centred = train - mean
    std = np.sqrt(np.square(centred, dtype="float64").mean(axis, keepdims=True))
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
