"""Quality of predictions: accuracy, scores, calibration, uncertainty.

The functions compute in float64 with NumPy. `probabilities` have the shape (N, C) for
N examples and C classes. The shapes (N,) and (N, 1) stand for the probability of class
1 of two classes. `labels` are integers of shape (N,) or (N, 1), or one-hot rows of
shape (N, C).

A regression has a `PredictiveMixture` as its prediction. `mh.predict_distribution`
makes it from a model.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.mixture import IntervalCalibration
from keras_mhmcmc.evaluation.mixture import NormalMixture
from keras_mhmcmc.evaluation.mixture import PredictiveMixture

__all__ = [
    "IntervalCalibration",
    "NormalMixture",
    "PredictiveMixture",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "classwise_ece",
    "ece",
    "mutual_information",
    "nll",
    "predictive_entropy",
    "reliability",
]


def __dir__() -> list[str]:
    return __all__


def accuracy(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the share of examples whose most probable class is the label, in [0, 1].

    If several classes are equally probable, the first one is predicted.

    Args:
        probabilities: shape (N, C); or of class 1 of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

    Raises:
        ValueError: `probabilities` are none, or `labels` do not match them.

    Example:

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    0.5
    """
    rows, classes = checks.as_scored(probabilities, labels)
    return float(np.mean(np.argmax(rows, axis=1) == classes))


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the mean negative log-likelihood of the labels, in nats per example.

    Probabilities are raised to at least 1.2e-38, the smallest normal float32. So an
    example costs at most 87.3 nats, and the result is finite. The arguments are those
    of `accuracy`.

    Example:

    >>> round(nll([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.5108
    """
    rows, classes = checks.as_scored(probabilities, labels)
    likelihood = rows[np.arange(len(classes)), classes]
    return float(-np.mean(np.log(np.clip(likelihood, checks.SMALLEST, 1.0))))


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the Brier score, the squared distance from the one-hot labels, in [0, 2].

    It is the mean over examples of the sum over classes of (p - one-hot)^2. For two
    classes it is twice the binary score (p - y)^2. The arguments are those of
    `accuracy`.

    Example:

    >>> round(brier([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.37

    Reference: Brier (1950), "Verification of forecasts expressed in terms of
    probability".
    """
    rows, classes = checks.as_scored(probabilities, labels)
    one_hot = np.eye(rows.shape[1])[classes]
    return float(np.mean(np.sum((rows - one_hot) ** 2, axis=1)))


class Reliability(NamedTuple):
    """The bins of a reliability diagram, three arrays of shape (bins,)."""

    confidence: Array  # mean probability of the predicted class; NaN if empty
    accuracy: Array  # share of right predictions; NaN if empty
    count: Array  # type: ignore[assignment]  # examples; replaces `tuple.count`


def reliability(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15
) -> Reliability:
    """Return a named tuple: mean confidence, accuracy and count in bins of confidence.

    The confidence of an example is the probability of its predicted class. The bins
    (0, 1/bins], ..., (1 - 1/bins, 1] have equal width. The first two are NaN in empty
    bins. `mh.plots.reliability` draws the diagram.

    Args:
        probabilities: as in `accuracy`.
        labels: as in `accuracy`.
        bins: number of bins, at least 1. Defaults to 15.

    Raises:
        ValueError: as in `accuracy`, or `bins` is not a positive integer.

    Example:

    >>> table = reliability([[0.9, 0.1], [0.4, 0.6]], [0, 0], bins=2)
    >>> table.count
    array([0, 2])
    >>> float(table.confidence[1]), float(table.accuracy[1])
    (0.75, 0.5)

    Reference: Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural
    networks", section 2.
    """
    confidence, right = _confidence(probabilities, labels)
    bins = _validate.integer("bins", bins, 1)
    index = _bin_of(confidence, bins)
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
    bin's number of examples. Only the predicted class counts. The value, in [0, 1],
    depends on `bins`, and it is biased upwards for few examples. The arguments are
    those of `reliability`.

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

    Examples are sorted by the probability of their predicted class and split into bins
    whose sizes differ by 1 at most, and which weigh the gaps as in `ece`. Examples of
    equal confidence count with their mean accuracy, in whatever order. The arguments
    are those of `reliability`. Bins beyond N are empty.

    Example:

    >>> p = [[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0.9, 0.1]]
    >>> round(adaptive_ece(p, [0, 1, 0, 0], bins=2), 4)  # gaps 0.15 and 0.15
    0.15

    Reference: Nguyen and O'Connor (2015), "Posterior calibration and exploratory
    analysis for natural language processing models", section 3, for bins of equal
    counts; the error of the predicted class as in Guo et al. (2017), eq. (3).
    """
    confidence, right = _confidence(probabilities, labels)
    bins = _validate.integer("bins", bins, 1)
    levels, shares, sizes = _shares(confidence, right)
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

    For each class, examples are put into bins of equal width by the probability of that
    class. The gap between the mean probability and the share of the class in a bin is
    weighted by the bin's number of examples. With many classes most probabilities are
    near 0, and so is the result. The arguments are those of `reliability`.

    Example:

    >>> round(classwise_ece([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.35

    Reference: Kull et al. (2019), "Beyond temperature scaling", section 2.
    """
    rows, labels = checks.as_scored(probabilities, labels)
    bins = _validate.integer("bins", bins, 1)
    count, classes = rows.shape
    excess = rows - np.eye(classes)[labels]
    cell = _bin_of(rows, bins) + bins * np.arange(classes)  # own bins for each class
    gaps = np.bincount(cell.ravel(), excess.ravel(), minlength=bins * classes)
    return float(np.sum(np.abs(gaps)) / (count * classes))


def aurc(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the area under the risk-coverage curve: the error with abstention.

    A model that answers only its k most confident examples has a coverage of k / N and
    the share of errors among them as its risk. The area is the mean risk over k = 1,
    ..., N. 0 is perfect. A confidence without information gives the error rate.
    Examples of equal confidence count with their mean error, in whatever order. The
    arguments are those of `accuracy`.

    Example:

    >>> round(aurc([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 0, 0]), 4)  # 0, 0, 1/3
    0.1111

    Reference: Geifman, Uziel and El-Yaniv (2019), "Bias-reduced uncertainty estimation
    for deep neural classifiers", section 3.
    """
    rows, classes = checks.as_scored(probabilities, labels)
    wrong = np.argmax(rows, axis=1) != classes
    _, shares, sizes = _shares(-np.max(rows, axis=1), wrong)
    errors = np.repeat(shares, sizes)
    return float(np.mean(np.cumsum(errors) / np.arange(1, len(errors) + 1)))


def auroc(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """Return the area under the ROC curve of scores that predict a label, in [0, 1].

    It is the probability that a positive example scores higher than a negative one.
    Equal scores count one half. 1 is perfect, and 0.5 is no better than chance.

    Args:
        scores: finite numbers of shape (N,). A higher score says "positive".
        positive: booleans of shape (N,), at least one True and one False.

    Raises:
        ValueError: an argument has another type or shape.

    Example:

    >>> auroc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875

    Reference: Hanley and McNeil (1982), "The meaning and use of the area under a
    receiver operating characteristic (ROC) curve".
    """
    numbers, is_positive = _ranked(scores, positive)
    _, group, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    ranks = (ends - 0.5 * (sizes - 1))[group]  # equal scores share their mean rank
    count = int(np.sum(is_positive))
    above = np.sum(ranks[is_positive]) - 0.5 * count * (count + 1)
    return float(above / (count * (len(numbers) - count)))


def aupr(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """Return the area under the precision-recall curve of scores of a label.

    It is the average precision: the sum over thresholds of the precision, times the
    recall that is gained. 1 is perfect. Scores without information reach the share of
    positive examples, so compare only values with the same share. The arguments are
    those of `auroc`.

    Example:

    >>> round(aupr([0.1, 0.4, 0.35, 0.8], [False, False, True, True]), 4)
    0.8333

    Reference: Davis and Goadrich (2006), "The relationship between precision-recall
    and ROC curves"; Hendrycks and Gimpel (2017) for the detection of other data.
    """
    numbers, is_positive = _ranked(scores, positive)
    _, group = np.unique(-numbers, return_inverse=True)  # the highest score first
    passed = np.cumsum(np.bincount(group))
    found = np.cumsum(np.bincount(group, is_positive))
    gained = np.diff(found, prepend=0.0) / found[-1]
    return float(np.sum(gained * found / passed))


def predictive_entropy(probabilities: npt.ArrayLike) -> Array:
    """Return the entropy of each example's class probabilities, shape (N,), in nats.

    `probabilities` are those of `accuracy`.

    Example:

    >>> predictive_entropy([[0.5, 0.5], [1.0, 0.0]]).round(4)
    array([0.6931, 0.    ])
    """
    return _entropy(checks.as_probabilities("Argument `probabilities`", probabilities))


def mutual_information(
    member_probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> Array:
    """Return the mutual information (N,) of label and member, in nats.

    It is the entropy of the members' weighted mean probability minus the weighted mean
    of their entropies. It measures how much the members disagree, the epistemic
    uncertainty. Values below 0, which are rounding errors, become 0.

    Args:
        member_probabilities: class probabilities of S members, shape (S, N, C); or the
            probability of class 1 of two, shape (S, N, 1).
        weights: S numbers, at least 0 and not all 0, or None for equal weights. They
            are divided by their sum.

    Raises:
        ValueError: `member_probabilities` do not hold probabilities of such a shape,
            or `weights` do not match them.

    Example:

    >>> opposite = [[[1.0, 0.0]], [[0.0, 1.0]]]
    >>> mutual_information(opposite).round(4)
    array([0.6931])
    >>> mutual_information(opposite, weights=[1.0, 0.0])
    array([0.])

    Reference: Depeweg, Hernandez-Lobato, Doshi-Velez and Udluft (2018), "Decomposition
    of uncertainty in Bayesian deep learning for efficient and risk-sensitive learning",
    eq. (3).
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
    flat = checks.as_probabilities(subject, values.reshape(-1, columns))
    values = flat.reshape(members, examples, -1)
    shares = checks.as_shares(weights, members)
    entropy_of_mean = _entropy(np.tensordot(shares, values, axes=1))
    mean_entropy = np.tensordot(shares, _entropy(values), axes=1)
    return np.maximum(entropy_of_mean - mean_entropy, 0.0)


def _entropy(probabilities: Array) -> Array:
    """Return the entropy over the last axis, with 0 log 0 = 0."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    return np.maximum(-np.sum(probabilities * logs, axis=-1), 0.0)


def _confidence(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[Array, Array]:
    """Return the probability of each predicted class, and whether it is right."""
    rows, classes = checks.as_scored(probabilities, labels)
    return np.minimum(np.max(rows, axis=1), 1.0), np.argmax(rows, axis=1) == classes


def _bin_of(values: Array, bins: int) -> Array:
    """Return the bin of each value. Bins of equal width are closed on the right."""
    return np.digitize(values, np.arange(1, bins) / bins, right=True)


def _shares(values: Array, is_hit: Array) -> tuple[Array, Array, Array]:
    """Return the distinct values in order, and the share of hits and count of each."""
    levels, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return levels, np.bincount(group, is_hit) / sizes, sizes


def _ranked(scores: npt.ArrayLike, positive: npt.ArrayLike) -> tuple[Array, Array]:
    """Return scores and booleans of shape (N,), or raise a `ValueError`."""
    numbers = _validate.array("Argument `scores`", scores)
    flags = _validate.array("Argument `positive`", positive)
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
        raise ValueError(
            "Argument `scores` must be finite numbers of shape (N,). Received: shape "
            f"{numbers.shape}, {np.sum(~np.isfinite(numbers))} values that are not "
            "finite"
        )
    values = np.unique(flags)
    if set(values) != {0.0, 1.0} or flags.shape != numbers.shape:
        raise ValueError(
            f"Argument `positive` must be {len(numbers)} booleans, one for each score, "
            f"with at least one True and one False. Received: shape {flags.shape}, "
            f"with the values {values[:5]}"
        )
    return numbers, flags == 1.0
