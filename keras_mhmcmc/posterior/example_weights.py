"""A warning about weights of examples that change how often the data count."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn

_TOLERANCE = 0.05  # of the mean, which is 1 if the data count once


def warn_of_weights(model: keras.Model) -> None:
    """Warn if the weights that `fit` was given as arrays have another mean than 1.

    Keras divides the weighted sum of the losses by the number of examples. So the mean
    of the weights multiplies the likelihood. Weights of 0 leave examples out, and may
    stay: the others count once. With the reduction "mean_with_sample_weight" Keras
    divides by the sum of the weights, and their mean does not matter.
    """
    data = _backend.fitted_data(model)
    reductions = {loss.reduction for loss, _ in _backend.compiled_losses(model)}
    if data is None or "mean_with_sample_weight" in reductions:
        return
    for name, weights in (
        ("sample_weight", _sample_weights(data["sample_weight"])),
        ("class_weight", _class_weights(data["class_weight"], data["y"])),
    ):
        used = [one[one != 0.0] for one in weights if np.any(one)]
        for mean in {float(np.mean(one)) for one in used}:
            if abs(mean - 1.0) > _TOLERANCE:
                width = "narrower" if mean > 1.0 else "wider"
                warn(
                    f"The argument `{name}` of `fit` counts an example {mean:.3g} "
                    "times on average, and the likelihood with it. The sampled "
                    f"posterior is {width} than that of the data. Divide the weights "
                    "by their mean over the examples, unless you want this likelihood."
                )


def _sample_weights(given: Any) -> list[Array]:
    """Return the weights of each output that are arrays."""
    parts = keras.tree.flatten(given)
    return [
        np.asarray(ops.convert_to_numpy(part), "float64")
        for part in parts
        if isinstance(part, np.ndarray) or ops.is_tensor(part)
    ]


def _class_weights(given: Any, y: Any) -> list[Array]:
    """Return the weight of each example's class, or none if it is not known."""
    is_array = isinstance(y, np.ndarray) or ops.is_tensor(y)
    if not isinstance(given, dict) or not is_array or len(y.shape) == 0:
        return []
    labels = np.asarray(ops.convert_to_numpy(y))
    if labels.ndim > 1 and labels.shape[-1] > 1:  # one column for each class
        labels = np.argmax(labels, axis=-1)
    kinds, counts = np.unique(labels, return_counts=True)
    weights = [float(given.get(int(kind), 1.0)) for kind in kinds]
    return [np.repeat(np.array(weights, "float64"), counts)]
