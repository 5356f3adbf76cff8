"""Quality of predictive probabilities: accuracy, scores, calibration, uncertainty.

The functions compute in float64 with NumPy. `probabilities` have the shape (N, C) for
N examples and C classes. The shapes (N,) and (N, 1) stand for the probability of class
1 of two classes. `labels` are integers of shape (N,) or (N, 1), or one-hot rows of
shape (N, C).

Papers: Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural
networks", for `reliability` and `ece`; Depeweg, Hernandez-Lobato, Doshi-Velez and
Udluft (2018), "Decomposition of uncertainty in Bayesian deep learning for efficient
and risk-sensitive learning", for `mutual_information`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.checks import as_probabilities

__all__ = [
    "Reliability",
    "accuracy",
    "auroc",
    "brier",
    "ece",
    "mutual_information",
    "nll",
    "predictive_entropy",
    "reliability",
]


def __dir__() -> list[str]:
    return __all__


class Reliability(NamedTuple):
    """The bins of a reliability diagram, three arrays of shape (bins,)."""

    confidence: Array  # mean probability of the predicted class; NaN if empty
    accuracy: Array  # share of right predictions; NaN if empty
    count: Array  # type: ignore[assignment]  # examples; replaces `tuple.count`


def accuracy(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the share of examples whose most probable class is the label.

    If several classes are equally probable, the first one is predicted.

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

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    0.5
    """
    rows, classes = _read(probabilities, labels)
    return float(np.mean(np.argmax(rows, axis=1) == classes))


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the mean negative log-likelihood of the labels, in nats per example.

    Probabilities are raised to at least 1.2e-38, the smallest normal float32. So an
    example costs at most 87.3 nats, and the result is finite.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

    Returns:
        A float, at least 0.

    Raises:
        ValueError: `probabilities` do not hold probabilities, or `labels` do not match
            them.

    Example:

    >>> round(nll([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.5108
    """
    rows, classes = _read(probabilities, labels)
    likelihood = rows[np.arange(len(classes)), classes]
    return float(-np.mean(np.log(np.clip(likelihood, SMALLEST, 1.0))))


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the Brier score, the squared distance from the one-hot labels.

    It is the mean over examples of the sum over classes of (p - one-hot)^2. For two
    classes it is twice the binary score (p - y)^2.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

    Returns:
        A float in [0, 2].

    Raises:
        ValueError: `probabilities` do not hold probabilities, or `labels` do not match
            them.

    Example:

    >>> round(brier([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.37

    Reference: Brier (1950), "Verification of forecasts expressed in terms of
    probability".
    """
    rows, classes = _read(probabilities, labels)
    one_hot = np.eye(rows.shape[1])[classes]
    return float(np.mean(np.sum((rows - one_hot) ** 2, axis=1)))


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
    rows, classes = _read(probabilities, labels)
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


def predictive_entropy(probabilities: npt.ArrayLike) -> Array:
    """Return the entropy of each example's class probabilities, in nats.

    Args:
        probabilities: class probabilities, shape (N, C); or the probability of class 1
            of two, shape (N,) or (N, 1).

    Returns:
        A float64 array of shape (N,), between 0 and log C.

    Raises:
        ValueError: `probabilities` do not hold probabilities.

    Example:

    >>> predictive_entropy([[0.5, 0.5], [1.0, 0.0]]).round(4)
    array([0.6931, 0.    ])
    """
    return _entropy(as_probabilities("Argument `probabilities`", probabilities))


def mutual_information(
    member_probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> Array:
    """Return each example's mutual information of label and member, in nats.

    It is the entropy of the members' weighted mean probability minus the weighted mean
    of their entropies. It measures how much the members disagree, the epistemic
    uncertainty. Values below 0, which are rounding errors, become 0.

    Args:
        member_probabilities: class probabilities of S members, shape (S, N, C); or the
            probability of class 1 of two, shape (S, N, 1).
        weights: S numbers, at least 0 and not all 0, or None for equal weights. They
            are divided by their sum.

    Returns:
        A float64 array of shape (N,), between 0 and log C.

    Raises:
        ValueError: `member_probabilities` do not hold probabilities of such a shape,
            or `weights` do not match them.

    Example:

    >>> opposite = [[[1.0, 0.0]], [[0.0, 1.0]]]
    >>> mutual_information(opposite).round(4)
    array([0.6931])
    >>> mutual_information(opposite, weights=[1.0, 0.0])
    array([0.])

    Reference: Depeweg et al. (2018), eq. (3).
    """
    subject = "Argument `member_probabilities`"
    values = _validate.array(subject, member_probabilities)
    if values.ndim != 3 or values.size == 0:
        raise ValueError(
            f"{subject} must have the shape (members, examples, classes), with no "
            "length of 0. Stack the members' probabilities along a new first axis. "
            f"Received: shape {values.shape}"
        )
    members, examples, columns = values.shape
    flat = as_probabilities(subject, values.reshape(-1, columns))
    values = flat.reshape(members, examples, -1)
    shares = _normalized(weights, members)
    entropy_of_mean = _entropy(np.tensordot(shares, values, axes=1))
    mean_entropy = np.tensordot(shares, _entropy(values), axes=1)
    return np.maximum(entropy_of_mean - mean_entropy, 0.0)


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
    is_positive = flags == 1.0
    _, group, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    ranks = (ends - 0.5 * (sizes - 1))[group]  # equal scores share their mean rank
    count = int(np.sum(is_positive))
    above = np.sum(ranks[is_positive]) - 0.5 * count * (count + 1)
    return float(above / (count * (len(numbers) - count)))


def _read(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Array]:
    rows = as_probabilities("Argument `probabilities`", probabilities)
    return rows, as_labels("labels", labels, *rows.shape)


def _normalized(weights: npt.ArrayLike | None, members: int) -> Array:
    """Return the members' weights divided by their sum, shape (members,)."""
    if weights is None:
        return np.full(members, 1.0 / members)
    values = _validate.array("Argument `weights`", weights)
    with np.errstate(over="ignore"):  # refused below
        total = np.sum(values)
    if values.shape != (members,) or not (np.all(values >= 0) and 0 < total < np.inf):
        raise ValueError(
            f"Argument `weights` must be {members} numbers, one for each member, at "
            "least 0 and not all 0. Omit it for equal weights. "
            f"Received: weights={weights!r}"
        )
    return values / total


def _entropy(probabilities: Array) -> Array:
    """Return the entropy over the last axis, with 0 log 0 = 0."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    return np.maximum(-np.sum(probabilities * logs, axis=-1), 0.0)
