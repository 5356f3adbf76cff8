"""Examples of a `BayesianEnsemble`: read from loaders, checked, divided."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

tree = keras.tree

LEAST_HELD_OUT = 10  # examples


def rows(data: Any, chosen: Array) -> Any:
    """Return these examples of arrays in a structure."""
    return tree.map_structure(lambda a: None if a is None else a[chosen], data)


def checked_size(data: Any) -> int:
    sizes = {len(array) for array in tree.flatten(data)}
    if len(sizes) != 1 or min(sizes) < 2 * LEAST_HELD_OUT:
        raise ValueError(
            "Arguments `x` and `y` must have as many examples as one another, at "
            f"least {2 * LEAST_HELD_OUT}. Received: {sorted(sizes)}"
        )
    return sizes.pop()


def check_finite(data: dict[str, Any]) -> None:
    for name, value in data.items():
        for array in tree.flatten(value):
            if array is None or array.dtype.kind != "f":
                continue
            bad = int(np.sum(~np.isfinite(array)))
            if bad:
                raise ValueError(
                    f"Argument `{name}` must be finite: leave out these examples, or "
                    f"fill in the values. Received: {bad} of {array.size} values that "
                    "are NaN or infinite"
                )


def read(loader: Any) -> tuple[Any, Any, Any]:
    """Return the arrays of a loader, which must end."""
    if isinstance(loader, keras.utils.PyDataset):
        batches = (loader[number] for number in range(len(loader)))
    else:
        batches = iter(loader)
    parts = [keras.utils.unpack_x_y_sample_weight(batch) for batch in batches]
    if not parts or parts[0][1] is None:
        raise ValueError(
            "Argument `x` must be given with `y`, or be a loader whose batches are "
            f"pairs (x, y). Received: x={_validate.shown(loader)}, y=None"
        )

    def joined(*arrays: Any) -> Array | None:
        if arrays[0] is None:
            return None
        return np.concatenate([ops.convert_to_numpy(a) for a in arrays])

    return tree.map_structure(joined, *parts)
