"""Examples of a `BayesianEnsemble`: checked before they are divided."""

from typing import Any

import keras
import numpy as np

tree = keras.tree

LEAST_HELD_OUT = 10  # examples


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
