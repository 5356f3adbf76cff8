"""How well scores tell examples apart: ROC, precision-recall, risk-coverage."""

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import as_scored


def auroc(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """Return the area under the ROC curve of scores that predict a label.

    It is the probability that a positive example scores higher than a negative one.
    Equal scores count one half. 1 is perfect, and 0.5 is no better than chance. The
    value is exact: it is computed from ranks.

    Args:
        scores: finite numbers of shape (N,). A higher score says "positive".
        positive: booleans of shape (N,), at least one True and one False.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: an argument has another type or shape.

    Example:

    >>> auroc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875

    Reference: Hanley and McNeil (1982), "The meaning and use of the area under a
    receiver operating characteristic (ROC) curve".
    """
    numbers, is_positive = _scored(scores, positive)
    _, group, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    ranks = (ends - 0.5 * (sizes - 1))[group]  # equal scores share their mean rank
    count = int(np.sum(is_positive))
    above = np.sum(ranks[is_positive]) - 0.5 * count * (count + 1)
    return float(above / (count * (len(numbers) - count)))


def aupr(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """Return the area under the precision-recall curve of scores of a label.

    It is the average precision: the sum over thresholds of the precision, times the
    recall that is gained. Examples of equal scores pass the threshold together. 1 is
    perfect. The share of positive examples is what scores without information reach,
    so compare only values with the same share.

    Args:
        scores: finite numbers of shape (N,). A higher score says "positive".
        positive: booleans of shape (N,), at least one True and one False.

    Returns:
        A float in (0, 1].

    Raises:
        ValueError: an argument has another type or shape.

    Example:

    >>> round(aupr([0.1, 0.4, 0.35, 0.8], [False, False, True, True]), 4)
    0.8333

    Reference: Davis and Goadrich (2006), "The relationship between precision-recall
    and ROC curves"; Hendrycks and Gimpel (2017) for the detection of other data.
    """
    numbers, is_positive = _scored(scores, positive)
    _, group = np.unique(-numbers, return_inverse=True)  # the highest score first
    passed = np.cumsum(np.bincount(group))
    found = np.cumsum(np.bincount(group, is_positive))
    gained = np.diff(found, prepend=0.0) / found[-1]
    return float(np.sum(gained * found / passed))


def aurc(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the area under the risk-coverage curve: the error with abstention.

    A model that answers only its k most confident examples has a coverage of k / N and
    the share of errors among them as its risk. The area is the mean risk over k = 1,
    ..., N. 0 is perfect. A confidence without information gives the error rate. The
    order of examples of equal confidence does not matter: each counts with the mean
    error of all of them.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: `probabilities` do not hold probabilities, or `labels` do not match
            them.

    Example:

    >>> round(aurc([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 0, 0]), 4)  # 0, 0, 1/3
    0.1111

    Reference: Geifman, Uziel and El-Yaniv (2019), "Bias-reduced uncertainty estimation
    for deep neural classifiers", section 3.
    """
    rows, classes = as_scored(probabilities, labels)
    wrong = np.argmax(rows, axis=1) != classes
    _, group, sizes = np.unique(
        -np.max(rows, axis=1), return_inverse=True, return_counts=True
    )
    errors = np.repeat(np.bincount(group, wrong) / sizes, sizes)
    return float(np.mean(np.cumsum(errors) / np.arange(1, len(errors) + 1)))


def _scored(scores: npt.ArrayLike, positive: npt.ArrayLike) -> tuple[Array, Array]:
    """Return scores and booleans of shape (N,), or raise a `ValueError`."""
    numbers = _validate.array("Argument `scores`", scores)
    flags = _validate.array("Argument `positive`", positive)
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
        raise ValueError(
            "Argument `scores` must be finite numbers of shape (N,). "
            f"Received: shape {numbers.shape}, "
            f"{np.sum(~np.isfinite(numbers))} values that are not finite"
        )
    values = np.unique(flags)
    if set(values) != {0.0, 1.0} or flags.shape != numbers.shape:
        raise ValueError(
            f"Argument `positive` must be {len(numbers)} booleans, one for each score, "
            "with at least one True and one False. The curve needs both. "
            f"Received: shape {flags.shape}, with the values {values[:5]}"
        )
    return numbers, flags == 1.0
