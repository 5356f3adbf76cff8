"""One walk over data: arrays, or a data set that `fit` takes, batch by batch."""

import itertools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import SupportsArray

# As Keras does, take for arrays what NumPy can read, such as a `pandas.DataFrame`.
_ARRAYS = (Mapping, list, tuple, str, bytes, memoryview, SupportsArray)


class Batch(NamedTuple):
    """What `fit` takes: arrays in any structure, or in `x` a data set."""

    x: Any
    y: Any = None
    sample_weight: Any = None


def is_dataset(x: Any) -> bool:
    """Return whether `x` is a `DataLike` that holds batches, and no arrays."""
    is_iterable = isinstance(x, Iterable | keras.utils.PyDataset)
    return is_iterable and not isinstance(x, _ARRAYS)


def batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    needs_targets: bool = False,
) -> Iterator[Batch]:
    """Yield the batches of data as NumPy arrays, in their own order.

    Arrays in any structure are one batch without `batch_size`.
    """
    if not is_dataset(x):
        arrays = as_arrays((x, y, sample_weight))
        count = len(keras.tree.flatten(arrays)[0])
        for start in range(0, count, batch_size or count):
            yield Batch(*rows(arrays, slice(start, start + (batch_size or count))))
        return
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(
                f"Argument `{name}` must be None if `x` is a data set, which has "
                f"`{name}` in its batches. "
                f"Received: {name}={_validate.shown(value)} with x={type(x).__name__}"
            )
    is_empty = True
    for given in _given(x):
        is_empty = False
        batch = Batch(*as_arrays(keras.utils.unpack_x_y_sample_weight(given)))
        if any(a is not None and a.ndim == 0 for a in keras.tree.flatten(tuple(batch))):
            raise ValueError(
                "Argument `x` must be a data set of batches, arrays with a row for "
                "each example. Make batches of single examples first, such as "
                "`dataset.batch(32)` or `DataLoader(dataset, batch_size=32)`. "
                f"Received: x={_validate.shown(x)}, with a number in place of an array"
            )
        if needs_targets and batch.y is None:
            raise ValueError(
                "Argument `x` must be a data set whose batches are pairs (x, y), since "
                "the targets are needed. Put them in, such as by `tf.data.Dataset.zip("
                "(inputs, targets))`, or pass arrays as `x` and `y`. "
                f"Received: x={_validate.shown(x)}, with batches without targets"
            )
        # A loader makes a list of several inputs, and never of examples.
        yield batch._replace(x=tuple(batch.x) if type(batch.x) is list else batch.x)
    if is_empty:
        raise ValueError(
            "Argument `x` must be a data set with at least one batch. A generator can "
            "be read only once: make it again, or pass a data set that can be read "
            f"again. Received: x={_validate.shown(x)}, without batches"
        )


def _given(x: Any) -> Iterator[Any]:
    """Return the batches of a data set as it gives them."""
    if not isinstance(x, keras.utils.PyDataset):
        return iter(x)
    count = x.num_batches  # None if it has no end
    return (x[i] for i in (itertools.count() if count is None else range(count)))


def read(
    x: Any, y: Any = None, sample_weight: Any = None, *, needs_targets: bool = False
) -> Batch:
    """Return arrays as they are, and the batches of a data set joined in memory."""
    if not is_dataset(x):
        return Batch(x, y, sample_weight)
    parts = batches(x, y, sample_weight, needs_targets=needs_targets)
    return Batch(*joined(map(tuple, parts)))


def peeked(x: Any, y: Any = None, *, needs_targets: bool = False) -> tuple[Any, Any]:
    """Return the first inputs, and data in place of `x`, of which nothing is lost."""
    if not is_dataset(x):
        return x, x
    walk = batches(x, y, needs_targets=needs_targets)
    first = next(walk)
    return first.x, itertools.chain([first], walk)


def predicted(
    predict: Callable[[Any], Any], x: Any, y: Any = None, *, needs_targets: bool = True
) -> tuple[Any, Any]:
    """Return what `predict` makes of inputs, batch by batch, and needed targets."""
    if not is_dataset(x):
        return predict(x), y
    walk = batches(x, y, needs_targets=needs_targets)
    found: tuple[Any, Any] = joined(
        (predict(batch.x), batch.y if needs_targets else None) for batch in walk
    )
    return found


def joined(parts: Iterable[Any]) -> Any:
    """Return arrays in a structure, joined along their first axes. None stays."""
    return keras.tree.map_structure(
        lambda *arrays: None if arrays[0] is None else np.concatenate(arrays), *parts
    )


def rows(structure: Any, chosen: Any) -> Any:
    """Return some rows of each array. None stays."""
    return keras.tree.map_structure(
        lambda array: None if array is None else array[chosen], structure
    )


def as_arrays(structure: Any) -> Any:
    """Return NumPy arrays in a structure. None stays."""

    def as_array(value: Any) -> Any:
        if value is None:
            return None
        is_tensor = ops.is_tensor(value)
        return ops.convert_to_numpy(value) if is_tensor else np.asarray(value)

    return keras.tree.map_structure(as_array, structure)


def in_floatx(structure: Any) -> Any:
    """Return arrays with floats in the precision of Keras. None stays."""
    return keras.tree.map_structure(
        lambda array: (
            array
            if array is None or array.dtype.kind != "f"
            else array.astype(keras.config.floatx(), copy=False)
        ),
        structure,
    )


def stream_of(
    x: Any, y: Any, batch_size: int, seed: int
) -> Callable[[], Iterator[Batch]]:
    """Return a function that starts an endless stream of mini-batches, for short runs.

    `batch_size`, and the `seed` of the order, are for arrays (N, ...).
    """
    if isinstance(x, Iterator):
        raise ValueError(
            "Argument `x` must be arrays, or a data set that can be read again for "
            "each rate, such as a `tf.data.Dataset`, a `DataLoader` or a "
            "`keras.utils.PyDataset`. A generator can be read only once: make a "
            f"`PyDataset` of it. Received: x={_validate.shown(x)}"
        )
    if is_dataset(x):
        return lambda: _endless(x, y)
    x, y = _checked_arrays("x", x), _checked_arrays("y", y)
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
            yield Batch(rows(x, chosen), rows(y, chosen))


def _endless(x: Any, y: Any) -> Iterator[Batch]:
    while True:
        for batch in batches(x, y):
            yield Batch(*in_floatx(tuple(batch)))


def _checked_arrays(name: str, values: Any) -> Any:
    """Return a structure of arrays with an axis of examples, or raise."""
    arrays = in_floatx(as_arrays(values))
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
