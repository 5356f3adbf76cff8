"""Mini-batches for short runs: full ones, and the same for every run from arrays."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _data
from keras_mhmcmc import _validate

Batch = tuple[Any, Any, Any]  # x, y and sample weights, as `train_on_batch` takes them


def batches_of(
    x: Any, y: Any, batch_size: int, seed: int
) -> Callable[[], Iterator[Batch]]:
    """Return a function that starts an endless stream of mini-batches.

    `x` has arrays (N, ...) in any structure, or is an iterable of batches. `batch_size`
    and the `seed` of the order are for arrays.
    """
    if isinstance(x, Iterator):
        raise ValueError(
            "Argument `x` must be arrays, or a data set that can be read again for "
            "each rate, such as a `tf.data.Dataset`, a `DataLoader` or a "
            "`keras.utils.PyDataset`. A generator can be read only once: make a "
            f"`PyDataset` of it. Received: x={_validate.shown(x)}"
        )
    if _data.is_dataset(x):
        return lambda: _repeated(x, y)
    x, y = _as_arrays("x", x), _as_arrays("y", y)
    arrays = keras.tree.flatten((x, y))
    lengths = [len(array) for array in arrays if array is not None]
    if not lengths or min(lengths) < 1 or min(lengths) != max(lengths):
        raise ValueError(
            "Arguments `x` and `y` must be arrays of the same number of examples, at "
            f"least one. Received: arrays of the lengths {lengths}"
        )
    return lambda: _of_arrays(x, y, lengths[0], min(batch_size, lengths[0]), seed)


def _of_arrays(x: Any, y: Any, count: int, size: int, seed: int) -> Iterator[Batch]:
    rng = np.random.default_rng(seed)  # not the user's generator
    while True:
        order = rng.permutation(count)
        for first in range(0, count - size + 1, size):
            chosen = order[first : first + size]
            yield _data.rows(x, chosen), _data.rows(y, chosen), None


def _repeated(x: Any, y: Any) -> Iterator[Batch]:
    while True:
        for batch in _data.batches(x, y):
            yield _data.in_floatx(tuple(batch))


def _as_arrays(name: str, values: Any) -> Any:
    """Return a structure of arrays with an axis of examples, or raise."""
    arrays = _data.in_floatx(_data.as_arrays(values))
    kinds = "OcUS" if name == "y" else "Oc"  # a layer may take strings, and no loss
    for array in keras.tree.flatten(arrays):
        if array is None and name == "y":
            continue
        if array is None or array.ndim == 0 or array.dtype.kind in kinds:
            raise ValueError(
                f"Argument `{name}` must be arrays of the shape (N, ...), or a list or "
                f"dict of them. Received: {name}={_validate.shown(values)}"
            )
    return arrays
