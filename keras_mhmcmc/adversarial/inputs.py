"""Checks of the arguments that all attacks share."""

import numpy as np
import numpy.typing as npt

from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import Classifier


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
