"""Checks of the arguments that all attacks share."""

from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _data
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import Classifier


def examples(
    x: DataLike, y: Any, clip: Any, *, needs_targets: bool = False
) -> tuple[Array, Any, checks.Limits]:
    """Return inputs in float32, labels as they are given, and the limits of inputs.

    A data set is read into memory, with its labels if it has some.
    """
    x, y, _ = _data.read(x, y, needs_targets=needs_targets)
    x, limits = checks.inputs_and_limits(x, clip)
    return x, y, limits


def attacked_labels(classifier: Classifier, x: Array, y: npt.ArrayLike | None) -> Array:
    """Return the labels whose loss an attack raises, shape (N,).

    They are `y`, or the model's own predictions if `y` is None.
    """
    return clean_and_labels(classifier, x, y)[1]


def clean_and_labels(
    classifier: Classifier, x: Array, y: npt.ArrayLike | None
) -> tuple[Array, Array]:
    """Return the probabilities of clean inputs (N, C), and the labels (N,)."""
    refuse_integers(classifier)
    clean = classifier.probabilities(x)
    if y is None:
        return clean, np.argmax(clean, axis=1)
    return clean, as_labels("y", y, *clean.shape)


def refuse_integers(classifier: Classifier) -> None:
    """Raise a `ValueError` if the model takes integers, which attacks cannot move."""
    if classifier.takes_integers:
        raise ValueError(
            f"{classifier.subject} must take floating-point numbers, because an attack "
            "moves an input by a fraction. It takes integers, such as numbers of words "
            "or pixels in bytes. For words attack the model after its embedding. For "
            "images build it with a floating-point `keras.Input`. Received: an input "
            "of integers"
        )
