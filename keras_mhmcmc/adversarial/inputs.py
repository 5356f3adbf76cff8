"""Checks of the arguments that all attacks share."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.evaluation.checks import as_inputs
from keras_mhmcmc.evaluation.checks import as_labels


def inputs_and_limits(x, clip):
    """The inputs in float32, and the limits as a pair of float32 or None."""
    x = as_inputs("x", x)
    if clip is None:
        return x, None
    try:
        ends = _validate.array("Argument `clip`", clip, "float32")
    except ValueError:
        ends = np.zeros(0)  # refused below, which says more
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise ValueError(
            "Argument `clip` must be a pair of numbers in increasing order, or None "
            f"for no limits. Received: clip={_validate.shown(clip)}"
        )
    low, high = ends
    if np.min(x) < low or np.max(x) > high:
        raise ValueError(
            f"Argument `x` must lie in `clip`, here [{low:g}, {high:g}]. Scale `x` to "
            "it, or pass the limits of your inputs as `clip`, or None. "
            f"Received: values between {np.min(x):g} and {np.max(x):g}"
        )
    return x, (low, high)


def attacked_labels(classifier, x, y):
    """The labels whose loss an attack raises: `y`, or the model's own predictions."""
    clean = classifier.probabilities(x)
    if y is None:
        return np.argmax(clean, axis=1)
    return as_labels("y", y, *clean.shape)
