"""`temperature_scaling`: one number that calibrates a classifier."""

import math

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _data
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifiers import as_classifier
from keras_mhmcmc.evaluation.scaled import TemperatureScaled

LOWEST, HIGHEST = 1e-4, 1e4
_HALVINGS = 50  # of the logarithm of the range: the result is exact to 2e-14


def temperature_scaling(
    model: keras.Model | Classifier,
    x: DataLike,
    y: npt.ArrayLike | None = None,
    *,
    from_logits: bool = False,
    batch_size: int = BATCH_SIZE,
) -> TemperatureScaled:
    """Return the model at the temperature that is best on held-out data.

    The temperature minimises the mean negative log-likelihood of the labels. This
    function of 1 / temperature is convex. So its slope is bisected, and the minimum is
    the global one. Use data that the model was not trained on, and score the result on
    other data again.

    Args:
        model: built `keras.Model` that maps inputs to class probabilities, shape
            (N, C), or to the probability of class 1 of two, shape (N, 1); for example
            an `mh.Ensemble`. It may also be an `mh.Classifier`.
        x: finite held-out inputs, shape (N, ...), or a dict or list of them; or a data
            set that `fit` takes, of pairs (x, y).
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None for a data set.
        from_logits: whether the model outputs logits instead of probabilities.
            Defaults to False.
        batch_size: number of examples computed at a time, at least 1. Defaults to 256.

    Returns:
        An `mh.TemperatureScaled`, a `keras.Model` that outputs probabilities. Its
        attribute `temperature` is the number. `mh.evaluate` and the attacks take it.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, or no temperature between 1e-4 and 1e4 is best: the model is
            right for all examples, or no better than chance.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> x = np.array([[3.0, 0.0]] * 4)  # a confidence of 95%, right in 3 of 4 cases
    >>> scaled = temperature_scaling(model, x, [0, 0, 0, 1], from_logits=True)
    >>> round(scaled.temperature, 4), scaled.predict(x[:1], verbose=0).round(4)
    (2.7307, array([[0.75, 0.25]], dtype=float32))

    Reference: Guo et al. (2017), "On calibration of modern neural networks", section
    4.2.
    """
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    outputs, y = _data.predicted(classifier.mean_outputs, x, y)
    logits = classifier.as_logits(outputs)
    labels = as_labels("y", y, *logits.shape)
    temperature = best_temperature(logits, labels)
    return TemperatureScaled(classifier.model, temperature, classifier.from_logits)


def best_temperature(logits: Array, labels: Array) -> float:
    """Return the temperature that minimises the negative log-likelihood.

    Args:
        logits: finite numbers, shape (N, C).
        labels: integers, shape (N,).
    """
    # Relative to the label. Without errors no number is positive, nor is the slope.
    excess = logits - logits[np.arange(len(labels)), labels][:, None]
    if _slope(excess, 1.0 / LOWEST) <= 0.0:
        raise ValueError(
            "Arguments `x` and `y` must have an example that the model classifies "
            "wrongly. Otherwise the likelihood rises until the temperature is 0. Pass "
            f"more held-out examples. Received: {len(labels)} examples without an error"
        )
    if _slope(excess, 1.0 / HIGHEST) >= 0.0:
        raise ValueError(
            "Arguments `x` and `y` must be data on which the model is better than "
            "chance. Otherwise the likelihood rises until all classes are equally "
            "probable. Check that the labels belong to the inputs. Received: a "
            f"temperature above {HIGHEST:g}"
        )
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_too_low = _slope(excess, math.exp(-middle)) > 0.0
        low, high = (middle, high) if is_too_low else (low, middle)
    return math.exp(0.5 * (low + high))


def _slope(excess: Array, inverse: float) -> float:
    """Return the derivative of the mean NLL with respect to 1 / temperature."""
    scaled = inverse * excess
    powers = np.exp(scaled - np.max(scaled, axis=1, keepdims=True))
    means = np.sum(powers * excess, axis=1) / np.sum(powers, axis=1)
    return float(np.mean(means))
