"""Split conformal prediction: sets of classes and intervals with a guaranteed coverage.

Papers: Vovk, Gammerman and Shafer (2005), "Algorithmic learning in a random world";
Sadinle, Lei and Wasserman (2019), "Least ambiguous set-valued classifiers with bounded
error levels", for the score of sets; Angelopoulos and Bates (2021), "A gentle
introduction to conformal prediction and distribution-free uncertainty quantification",
arXiv:2107.07511, for the finite-sample quantile.
"""

import math

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import InputsLike
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.checks import as_targets
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifiers import as_classifier
from keras_mhmcmc.evaluation.metrics.regression import LEVEL
from keras_mhmcmc.evaluation.regression import member_means

_LAST_DIGITS = 1e-5  # of a prediction, which depend on the size of the batch
_ROUNDING = 1e-9  # of (n + 1) * level: 0.9 is not exact in binary


class ConformalSets:
    """Sets of classes that hold the label with a given probability.

    `mh.conformal_sets` makes it.

    Args:
        classifier: the classifier that was calibrated.
        level: least probability of the label in the set.
        threshold: a class is in the set if 1 minus its probability is at most this, or
            0.00001 more: in another batch a probability has other last digits.
    """

    def __init__(self, classifier: Classifier, level: float, threshold: float) -> None:
        self.classifier = classifier
        self.level = level
        self.threshold = threshold

    def predict(self, x: InputsLike) -> Array:
        """Return the sets of classes of inputs.

        Args:
            x: finite inputs, shape (N, ...), or a dict or list of them.

        Returns:
            A boolean array of shape (N, C), True for the classes in the set. A set may
            have no class, if all classes are improbable.

        Raises:
            ValueError: `x` has another type or shape, or the model's outputs are not
                probabilities.
        """
        return 1.0 - self.classifier.probabilities(x) <= self.threshold + _LAST_DIGITS


class ConformalIntervals:
    """Intervals that hold the target with a given probability.

    `mh.conformal_intervals` makes it.

    Args:
        classifier: the compiled regression that was calibrated.
        level: least probability of the target in the interval.
        threshold: half the width of the intervals, in units of the target. They are
            wider by 0.001% of the prediction, whose last digits depend on the batch.
    """

    def __init__(self, classifier: Classifier, level: float, threshold: float) -> None:
        self.classifier = classifier
        self.level = level
        self.threshold = threshold

    def predict(self, x: InputsLike) -> tuple[Array, Array]:
        """Return the ends of the intervals of inputs.

        Args:
            x: finite inputs, shape (N, ...), or a dict or list of them.

        Returns:
            `(low, high)`, two float64 arrays of shape (N,).

        Raises:
            ValueError: `x` has another type or shape, or the outputs are not finite.
        """
        mean = _one_output(self.classifier, x)
        width = self.threshold + _LAST_DIGITS * np.maximum(abs(mean), self.threshold)
        return mean - width, mean + width


def conformal_sets(
    model: keras.Model | Classifier,
    x: InputsLike,
    y: npt.ArrayLike,
    *,
    level: float = 0.9,
    from_logits: bool = False,
    batch_size: int = BATCH_SIZE,
) -> ConformalSets:
    """Return sets of classes that hold the label with a probability of `level`.

    The score of an example is 1 minus the probability of its label. The threshold is
    the ceil((n + 1) level)-th smallest score of n calibration examples. A set has all
    classes whose score is at most the threshold.

    The guarantee: if the calibration examples and a new example are exchangeable, for
    example independent draws from one distribution, the set of the new example holds
    its label with a probability of at least `level`, however bad the model is. The
    guarantee is weak. It is an average over calibration data, inputs and labels. It
    does not hold for each class or each kind of input, nor for data from another
    distribution. The share in one test set varies, with a standard deviation of about
    sqrt(level (1 - level) / n).

    Args:
        model: built `keras.Model` that maps inputs to class probabilities, shape
            (N, C), or to the probability of class 1 of two, shape (N, 1); for example
            an `mh.Ensemble`. It may also be an `mh.Classifier`.
        x: finite calibration inputs, shape (n, ...), that neither trained the model
            nor chose its settings.
        y: labels, integers of shape (n,) or (n, 1), or one-hot rows of shape (n, C).
        level: probability in (0, 1). It needs at least level / (1 - level) examples.
            Defaults to 0.9.
        from_logits: whether the model outputs logits instead of probabilities.
            Defaults to False.
        batch_size: number of examples computed at a time, at least 1. Defaults to 256.

    Returns:
        A `ConformalSets`. Call its `predict(x)` for booleans of shape (N, C).

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, or there are too few examples for the level.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> x, y = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), [0, 1, 1]
    >>> sets = conformal_sets(model, x, y, level=0.7)
    >>> round(sets.threshold, 4)  # the third smallest of 0.1, 0.6 and 0.2
    0.6
    >>> sets.predict([[0.5, 0.5], [0.7, 0.3]])
    array([[ True,  True],
           [ True, False]])

    Reference: Sadinle et al. (2019), and Angelopoulos and Bates (2021), section 1.
    """
    level = _validate.number("level", level, LEVEL)
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    probabilities = classifier.probabilities(x)
    labels = as_labels("y", y, *probabilities.shape)
    scores = 1.0 - probabilities[np.arange(len(labels)), labels]
    return ConformalSets(classifier, level, _threshold(scores, level))


def conformal_intervals(
    model: keras.Model,
    x: InputsLike,
    y: npt.ArrayLike,
    *,
    level: float = 0.9,
    batch_size: int = BATCH_SIZE,
) -> ConformalIntervals:
    """Return intervals that hold the target with a probability of `level`.

    The score of an example is the absolute residual of the model's prediction; for an
    ensemble that is the weighted mean. Half the width of all intervals is the
    ceil((n + 1) level)-th smallest residual of n calibration examples. The noise of
    the likelihood does not matter.

    The guarantee is that of `mh.conformal_sets`: at least `level` on average over
    calibration data, inputs and targets, if all of them are exchangeable. All
    intervals have the same width. So they hold the target too often where the noise is
    small, and too rarely where it is large.

    Args:
        model: built `keras.Model` that maps inputs to one mean, shape (N, 1); for
            example an `mh.Ensemble`.
        x: finite calibration inputs, shape (n, ...), that neither trained the model
            nor chose its settings.
        y: finite targets, shape (n,) or (n, 1).
        level: probability in (0, 1). It needs at least level / (1 - level) examples.
            Defaults to 0.9.
        batch_size: number of examples computed at a time, at least 1. Defaults to 256.

    Returns:
        A `ConformalIntervals`. Call its `predict(x)` for two arrays of shape (N,).

    Raises:
        ValueError: an argument is outside its range, the model has several outputs, or
            there are too few examples for the level.

    Example:

    >>> import keras
    >>> layer = keras.layers.Dense(1, kernel_initializer="ones")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> x, y = [[0.0], [1.0], [2.0]], [0.5, 1.25, 1.0]
    >>> intervals = conformal_intervals(model, x, y, level=0.5)
    >>> intervals.threshold  # the second smallest of 0.5, 0.25 and 1
    0.5
    >>> low, high = intervals.predict([[3.0]])
    >>> print(low.round(2), high.round(2))
    [2.5] [3.5]

    Reference: Angelopoulos and Bates (2021), section 2.3, with a constant scale; Lei
    et al. (2018), "Distribution-free predictive inference for regression", section 2.
    """
    level = _validate.number("level", level, LEVEL)
    classifier = Classifier(model, batch_size=batch_size)
    mean = _one_output(classifier, x)
    residuals = np.abs(as_targets("y", y, mean.shape) - mean)
    return ConformalIntervals(classifier, level, _threshold(residuals, level))


def _threshold(scores: Array, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores, or raise."""
    rank = math.ceil((len(scores) + 1) * level - _ROUNDING)
    if rank > len(scores):
        least = math.ceil(level / (1.0 - level) - _ROUNDING)
        raise ValueError(
            f"Argument `x` must have at least {least} calibration examples for a level "
            f"of {level:g}. Pass more examples, or choose a lower level. "
            f"Received: {len(scores)} examples"
        )
    return float(np.sort(scores)[rank - 1])


def _one_output(classifier: Classifier, x: InputsLike) -> Array:
    """Return the weighted mean of the members' means, shape (N,)."""
    means, weights = member_means(classifier, x)
    if means.ndim != 2:
        raise ValueError(
            f"{classifier.subject} must output one number for each example. Calibrate "
            f"each output by itself. Received: {means.shape[2]} outputs"
        )
    return np.tensordot(weights, means, axes=1)
