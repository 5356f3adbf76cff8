"""Calibration: confidence compared with accuracy.

Papers: Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural
networks", for `reliability` and `ece`; Nguyen and O'Connor (2015), "Posterior
calibration and exploratory analysis for natural language processing models", for bins
of equal counts; Kull et al. (2019), "Beyond temperature scaling", for `classwise_ece`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import as_scored


class Reliability(NamedTuple):
    """The bins of a reliability diagram, three arrays of shape (bins,)."""

    confidence: Array  # mean probability of the predicted class; NaN if empty
    accuracy: Array  # share of right predictions; NaN if empty
    count: Array  # type: ignore[assignment]  # examples; replaces `tuple.count`


def reliability(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15
) -> Reliability:
    """Return mean confidence and accuracy in bins of confidence.

    The confidence of an example is the probability of its predicted class. The bins
    (0, 1/bins], ..., (1 - 1/bins, 1] have equal width. `mh.plots.reliability` draws
    the diagram.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        bins: number of bins, at least 1. Defaults to 15.

    Returns:
        A named tuple of three arrays of shape (bins,): `confidence` and `accuracy`,
        which are NaN in empty bins, and `count`, the number of examples.

    Raises:
        ValueError: `probabilities` do not hold probabilities, `labels` do not match
            them, or `bins` is not a positive integer.

    Example:

    >>> table = reliability([[0.9, 0.1], [0.4, 0.6]], [0, 0], bins=2)
    >>> table.count
    array([0, 2])
    >>> float(table.confidence[1]), float(table.accuracy[1])
    (0.75, 0.5)

    Reference: Guo et al. (2017), section 2.
    """
    rows, classes = as_scored(probabilities, labels)
    bins = _validate.integer("bins", bins, 1)
    confidence = np.minimum(np.max(rows, axis=1), 1.0)
    right = np.argmax(rows, axis=1) == classes
    inner_edges = np.arange(1, bins) / bins
    index = np.digitize(confidence, inner_edges, right=True)
    count = np.bincount(index, minlength=bins)
    divisor = np.where(count > 0, count, np.nan)
    return Reliability(
        confidence=np.bincount(index, confidence, minlength=bins) / divisor,
        accuracy=np.bincount(index, right, minlength=bins) / divisor,
        count=count,
    )


def ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15) -> float:
    """Return the expected calibration error, the mean gap of accuracy and confidence.

    The gap |accuracy - confidence| of each bin of `reliability` is weighted by the
    bin's number of examples. Only the predicted class counts. The value depends on
    `bins`, and it is biased upwards for few examples.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        bins: number of bins, at least 1. Defaults to 15.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: `probabilities` do not hold probabilities, `labels` do not match
            them, or `bins` is not a positive integer.

    Example:

    >>> round(ece([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.35

    Reference: Guo et al. (2017), eq. (3).
    """
    table = reliability(probabilities, labels, bins)
    full = table.count > 0
    gap = np.abs(table.accuracy[full] - table.confidence[full])
    return float(np.sum(gap * table.count[full]) / np.sum(table.count))


def adaptive_ece(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15
) -> float:
    """Return the expected calibration error over bins with equal numbers of examples.

    Examples are sorted by the probability of their predicted class and split into
    bins whose sizes differ by 1 at most. The gap |accuracy - confidence| of each bin
    is weighted by its size. So no bin has few examples, as the bins of `ece` may have.
    Examples of equal confidence that a border of bins divides count in each bin with
    their mean accuracy. So the result does not depend on the order of the examples.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        bins: number of bins, at least 1. Bins beyond N are empty. Defaults to 15.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: `probabilities` do not hold probabilities, `labels` do not match
            them, or `bins` is not a positive integer.

    Example:

    >>> p = [[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0.9, 0.1]]
    >>> round(adaptive_ece(p, [0, 1, 0, 0], bins=2), 4)  # gaps 0.15 and 0.15
    0.15

    Reference: Nguyen and O'Connor (2015), section 3, for bins of equal counts; the
    error of the predicted class as in Guo et al. (2017), eq. (3).
    """
    rows, classes = as_scored(probabilities, labels)
    bins = _validate.integer("bins", bins, 1)
    confidence = np.minimum(np.max(rows, axis=1), 1.0)
    right = np.argmax(rows, axis=1) == classes
    levels, group, sizes = np.unique(
        confidence, return_inverse=True, return_counts=True
    )
    shares = np.bincount(group, right) / sizes
    excess = np.repeat(shares - levels, sizes)  # of the sorted examples
    count = len(excess)
    number = min(bins, count)
    # The sizes of `np.array_split`: the first bins have the examples that are left.
    starts = np.arange(number) * (count // number)
    starts += np.minimum(np.arange(number), count % number)
    return float(np.sum(np.abs(np.add.reduceat(excess, starts))) / count)


def classwise_ece(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15
) -> float:
    """Return the mean over classes of the calibration error of each class.

    For each class, examples are put into bins of equal width by the probability of
    that class. The gap between the mean probability and the share of the class in a
    bin is weighted by the bin's number of examples. All probabilities count, not only
    those of the predicted classes. With many classes most probabilities are near 0,
    and so is the result.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        bins: number of bins, at least 1. Defaults to 15.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: `probabilities` do not hold probabilities, `labels` do not match
            them, or `bins` is not a positive integer.

    Example:

    >>> round(classwise_ece([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.35

    Reference: Kull et al. (2019), section 2.
    """
    rows, labels = as_scored(probabilities, labels)
    bins = _validate.integer("bins", bins, 1)
    count, classes = rows.shape
    inner_edges = np.arange(1, bins) / bins
    index = np.digitize(rows, inner_edges, right=True)  # (N, C)
    excess = rows - np.eye(classes)[labels]
    cell = index + bins * np.arange(classes)  # a bin of its own for each class
    gaps = np.bincount(cell.ravel(), excess.ravel(), minlength=bins * classes)
    return float(np.sum(np.abs(gaps)) / (count * classes))
