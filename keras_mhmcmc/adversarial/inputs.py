"""Checks of the arguments that all attacks share."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import as_inputs
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import Classifier

Limits = tuple[float, float] | None  # smallest and largest valid input


def inputs_and_limits(
    x: npt.ArrayLike, clip: Sequence[float] | None
) -> tuple[Array, Limits]:
    """Return the inputs in float32 and the limits, or raise a `ValueError`."""
    x = as_inputs("x", x)
    if clip is None:
        return x, None
    try:
        ends = _validate.array("Argument `clip`", clip, "float32")
    except ValueError:
        ends = np.zeros(0)  # refused below, with a better message
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise ValueError(
            "Argument `clip` must be a pair of numbers in increasing order, or None "
            f"for no limits. Received: clip={_validate.shown(clip)}"
        )
    low, high = float(ends[0]), float(ends[1])
    if np.min(x) < low or np.max(x) > high:
        raise ValueError(
            f"Argument `x` must lie in `clip`, here [{low:g}, {high:g}]. Scale `x` to "
            "this range, or pass the range of your inputs as `clip`, or clip=None. "
            f"Received: values between {np.min(x):g} and {np.max(x):g}"
        )
    return x, (low, high)


def attacked_labels(classifier: Classifier, x: Array, y: npt.ArrayLike | None) -> Array:
    """Return the labels whose loss an attack raises, shape (N,).

    They are `y`, or the model's own predictions if `y` is None.
    """
    return clean_and_labels(classifier, x, y)[1]


def clean_and_labels(
    classifier: Classifier, x: Array, y: npt.ArrayLike | None
) -> tuple[Array, Array]:
    """Return the probabilities of clean inputs (N, C), and the labels (N,)."""
    clean = classifier.probabilities(x)
    if y is None:
        return clean, np.argmax(clean, axis=1)
    return clean, as_labels("y", y, *clean.shape)
