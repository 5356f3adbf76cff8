"""How many examples there are in what `fit` takes as `x`."""

import sys
from collections.abc import Sized
from typing import Any

import keras

from keras_mhmcmc._data import is_dataset
from keras_mhmcmc._types import SupportsArray


def count_examples(x: Any) -> int | None:
    """Return the number of examples in `x`, or None if only an epoch would tell.

    A `tf.data.Dataset` whose batches have no fixed size is read once.
    """
    if not is_dataset(x):
        leaves = keras.tree.flatten(x)
        are_arrays = leaves and isinstance(leaves[0], SupportsArray)
        return _rows(leaves) if are_arrays else None
    if isinstance(x, keras.utils.PyDataset):
        last = x.num_batches
        return last and (last - 1) * _rows(x[0]) + _rows(x[last - 1])
    # A data set of a framework is there only if somebody has imported the framework.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(x, tensorflow.data.Dataset):
        with tensorflow.init_scope():  # Keras may be tracing a step
            batches = int(x.cardinality())
            if batches < 0:  # unknown, or infinite
                return None
            size = _rows(x.element_spec)
            return sum(map(_rows, x)) if size is None else size * batches
    torch = sys.modules.get("torch.utils.data")
    if torch is not None and isinstance(x, torch.DataLoader):
        return len(x.sampler) if isinstance(x.sampler, Sized) else None
    return None


def _rows(batch: Any) -> Any:
    """Return the length of the arrays of a batch, None if it is not fixed."""
    return keras.tree.flatten(batch)[0].shape[0]
