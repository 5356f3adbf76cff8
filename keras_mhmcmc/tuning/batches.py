"""Mini-batches for short runs: full ones, and the same for every run from arrays."""

import itertools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

Batch = tuple[Any, Any, Any]  # x, y and sample weights, as `train_on_batch` takes them


def batches_of(
    x: Any, y: Any, batch_size: int, seed: int
) -> Callable[[], Iterator[Batch]]:
    """Return a function that starts an endless stream of mini-batches.

    Args:
        x: arrays, shape (N, ...), in any structure; or an iterable of batches.
        y: arrays of the targets, or None.
        batch_size: examples in a mini-batch of arrays.
        seed: of the order of examples in arrays.

    Raises:
        ValueError: the arrays do not fit together, or `x` can be read only once.
    """
    if isinstance(x, keras.utils.PyDataset):
        _refuse_targets(y, x)
        return lambda: _repeated(lambda: _of_dataset(x))
    leaves = keras.tree.flatten(x)
    if len(leaves) == 1 and leaves[0] is x and not _is_array(x):
        if not isinstance(x, Iterable) or iter(x) is x or isinstance(x, str | bytes):
            raise ValueError(
                "Argument `x` must be arrays, or a data set that can be read again "
                "for each rate, such as a `tf.data.Dataset`, a `DataLoader` or a "
                "`keras.utils.PyDataset`. A generator can be read only once: make a "
                f"`PyDataset` of it. Received: x={_validate.shown(x)}"
            )
        _refuse_targets(y, x)
        return lambda: _repeated(lambda: iter(x))
    x, y = _as_arrays("x", x), _as_arrays("y", y)
    count = _examples(x, y)
    size = min(batch_size, count)
    return lambda: _of_arrays(x, y, count, size, seed)


def _of_arrays(x: Any, y: Any, count: int, size: int, seed: int) -> Iterator[Batch]:
    rng = np.random.default_rng(seed)  # not the user's generator
    while True:
        order = rng.permutation(count)
        for first in range(0, count - size + 1, size):
            chosen = order[first : first + size]
            yield _rows(x, chosen), _rows(y, chosen), None


def _rows(values: Any, chosen: Array) -> Any:
    """Return some rows of each array. None stays."""
    return keras.tree.map_structure(
        lambda array: None if array is None else array[chosen], values
    )


def _of_dataset(dataset: keras.utils.PyDataset) -> Iterator[Any]:
    count = dataset.num_batches
    indices = itertools.count() if count is None else range(count)
    return (dataset[index] for index in indices)


def _repeated(start: Callable[[], Iterator[Any]]) -> Iterator[Batch]:
    while True:
        is_empty = True
        for batch in start():
            is_empty = False
            parts = keras.utils.unpack_x_y_sample_weight(batch)
            yield tuple(keras.tree.map_structure(_as_array, part) for part in parts)
        if is_empty:
            raise ValueError(
                "Argument `x` must have at least one mini-batch. Received: none"
            )


def _is_array(value: Any) -> bool:
    """Return whether Keras takes `value` for an array of examples."""
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def _as_arrays(name: str, values: Any) -> Any:
    """Return a structure of arrays with an axis of examples, or raise."""
    arrays = keras.tree.map_structure(_as_array, values)
    kinds = "OcUS" if name == "y" else "Oc"  # a layer may take strings, and no loss
    for array in keras.tree.flatten(arrays):
        if array is not None and (array.ndim == 0 or array.dtype.kind in kinds):
            raise ValueError(
                f"Argument `{name}` must be arrays of the shape (N, ...), or a list or "
                f"dict of them. Received: {name}={_validate.shown(values)}"
            )
    return arrays


def _as_array(value: Any) -> Any:
    """Return `value` as an array, floats in the precision of Keras. None stays."""
    if value is None:
        return None
    if not isinstance(value, np.ndarray):
        value = np.asarray(value if _is_host(value) else ops.convert_to_numpy(value))
    return value.astype(keras.config.floatx()) if value.dtype.kind == "f" else value


def _is_host(value: Any) -> bool:
    return isinstance(value, int | float | str | bytes | complex | np.generic)


def _examples(x: Any, y: Any) -> int:
    """Return N, the length of all arrays, or raise a `ValueError`."""
    arrays = keras.tree.flatten((x, y))
    lengths = [len(array) for array in arrays if array is not None]
    if not lengths or min(lengths) < 1 or min(lengths) != max(lengths):
        raise ValueError(
            "Arguments `x` and `y` must be arrays of the same number of examples, at "
            f"least one. Received: arrays of the lengths {lengths}"
        )
    return lengths[0]


def _refuse_targets(y: Any, x: Any) -> None:
    if y is not None:
        raise ValueError(
            "Argument `y` must be None if `x` is a data set, which has the targets in "
            f"its batches. Received: y={_validate.shown(y)} with x={type(x).__name__}"
        )
