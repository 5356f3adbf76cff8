"""Quality of predictive probabilities: accuracy, scores, calibration, uncertainty.

NumPy functions, in float64. `probabilities` have the shape (N, C), for N examples and
C classes; or (N,) or (N, 1), and then they are those of class 1 of two. `labels` are
integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

Papers: Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural
networks", for `reliability` and `ece`; Depeweg, Hernandez-Lobato, Doshi-Velez and
Udluft (2018), "Decomposition of uncertainty in Bayesian deep learning for efficient
and risk-sensitive learning", for `mutual_information`.
"""

from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate

SMALLEST = float(np.finfo(np.float32).tiny)  # a probability below counts as this one
_REMEDY = "Apply a softmax (one column: a sigmoid) to logits first."


class Reliability(NamedTuple):
    """Bins of a reliability diagram, by confidence, over (0, 1]."""

    confidence: np.ndarray  # mean probability of the predicted class; NaN if empty
    accuracy: np.ndarray  # share of right predictions; NaN if empty
    count: np.ndarray  # number of examples


def accuracy(probabilities, labels):
    """Share of examples whose most probable class is the label.

    Of classes that are equally probable the first one is predicted.

    Args:
        probabilities: array of shape (N, C), or (N,) or (N, 1) for class 1 of two.
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: `probabilities` are no probabilities, or `labels` do not fit them.

    Example:

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    0.5
    """
    probabilities, labels = _read(probabilities, labels)
    return float(np.mean(np.argmax(probabilities, axis=1) == labels))


def nll(probabilities, labels):
    """Mean negative log-likelihood of the labels, in nats per example.

    A probability below 1.2e-38, the smallest normal float32, counts as that, so that
    an example costs at most 87.3 nats and the result is finite.

    Args:
        probabilities: array of shape (N, C), or (N,) or (N, 1) for class 1 of two.
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

    Returns:
        A float, at least 0.

    Raises:
        ValueError: `probabilities` are no probabilities, or `labels` do not fit them.

    Example:

    >>> round(nll([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.5108
    """
    probabilities, labels = _read(probabilities, labels)
    likelihood = probabilities[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.clip(likelihood, SMALLEST, 1.0))))


def brier(probabilities, labels):
    """Brier score: squared distance of the probabilities from the one-hot labels.

    The mean over examples of the sum over classes of (p - one-hot)^2. It lies in
    [0, 2], and for two classes it is twice the (p - y)^2 of the binary score.

    Args:
        probabilities: array of shape (N, C), or (N,) or (N, 1) for class 1 of two.
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).

    Returns:
        A float in [0, 2].

    Raises:
        ValueError: `probabilities` are no probabilities, or `labels` do not fit them.

    Example:

    >>> round(brier([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.37

    Reference: Brier (1950), "Verification of forecasts expressed in terms of
    probability".
    """
    probabilities, labels = _read(probabilities, labels)
    one_hot = np.eye(probabilities.shape[1])[labels]
    return float(np.mean(np.sum((probabilities - one_hot) ** 2, axis=1)))


def reliability(probabilities, labels, bins=15):
    """Mean confidence and accuracy in bins of confidence, for a reliability diagram.

    The confidence of an example is the probability of its predicted class. The bins
    are (0, 1/bins], ..., (1 - 1/bins, 1], of equal width.

    Args:
        probabilities: array of shape (N, C), or (N,) or (N, 1) for class 1 of two.
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        bins: number of bins, at least 1.

    Returns:
        A named tuple of three arrays of length `bins`: `confidence` and `accuracy`,
        which are NaN in empty bins, and `count`.

    Raises:
        ValueError: `probabilities` are no probabilities, `labels` do not fit them, or
            `bins` is no positive integer.

    Example:

    >>> table = reliability([[0.9, 0.1], [0.4, 0.6]], [0, 0], bins=2)
    >>> table.count
    array([0, 2])
    >>> float(table.confidence[1]), float(table.accuracy[1])
    (0.75, 0.5)

    Reference: Guo et al. (2017), section 2.
    """
    probabilities, labels = _read(probabilities, labels)
    bins = _validate.integer("bins", bins, 1)
    confidence = np.minimum(np.max(probabilities, axis=1), 1.0)
    right = np.argmax(probabilities, axis=1) == labels
    inner_edges = np.arange(1, bins) / bins
    index = np.digitize(confidence, inner_edges, right=True)
    count = np.bincount(index, minlength=bins)
    divisor = np.where(count > 0, count, np.nan)
    return Reliability(
        confidence=np.bincount(index, confidence, minlength=bins) / divisor,
        accuracy=np.bincount(index, right, minlength=bins) / divisor,
        count=count,
    )


def ece(probabilities, labels, bins=15):
    """Expected calibration error: mean distance of accuracy from confidence.

    The bins are those of `reliability`, weighted by their numbers of examples. Only
    the predicted class counts. The value depends on `bins`, and for few examples it is
    biased upwards.

    Args:
        probabilities: array of shape (N, C), or (N,) or (N, 1) for class 1 of two.
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        bins: number of bins, at least 1.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: `probabilities` are no probabilities, `labels` do not fit them, or
            `bins` is no positive integer.

    Example:

    >>> round(ece([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
    0.35

    Reference: Guo et al. (2017), eq. (3).
    """
    table = reliability(probabilities, labels, bins)
    full = table.count > 0
    gap = np.abs(table.accuracy[full] - table.confidence[full])
    return float(np.sum(gap * table.count[full]) / np.sum(table.count))


def predictive_entropy(probabilities):
    """Entropy of the predicted class probabilities of each example, in nats.

    Args:
        probabilities: array of shape (N, C), or (N,) or (N, 1) for class 1 of two.

    Returns:
        An array of shape (N,), between 0 and log C.

    Raises:
        ValueError: `probabilities` are no probabilities.

    Example:

    >>> predictive_entropy([[0.5, 0.5], [1.0, 0.0]]).round(4)
    array([0.6931, 0.    ])
    """
    return _entropy(as_probabilities("Argument `probabilities`", probabilities))


def mutual_information(member_probabilities, weights=None):
    """Information that the label has on the member of an ensemble, per example, nats.

    The entropy of the weighted mean of the members' probabilities, minus the weighted
    mean of their entropies: what the members disagree about (epistemic uncertainty).
    The difference is at least 0; rounding below 0 is clipped.

    Args:
        member_probabilities: array of shape (S, N, C), for S members; or (S, N, 1) for
            class 1 of two.
        weights: S numbers, at least 0 and not all 0; they are divided by their sum.
            None: equal weights.

    Returns:
        An array of shape (N,), between 0 and log C.

    Raises:
        ValueError: `member_probabilities` are no probabilities of that shape, or
            `weights` do not fit them.

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
            f"{subject} must have the shape (members, examples, classes), none of them "
            "0. Stack the members' probabilities along a new first axis. "
            f"Received: shape {values.shape}"
        )
    members, examples, columns = values.shape
    flat = as_probabilities(subject, values.reshape(-1, columns))
    values = flat.reshape(members, examples, -1)
    weights = _weights(weights, members)
    entropy_of_mean = _entropy(np.tensordot(weights, values, axes=1))
    mean_entropy = np.tensordot(weights, _entropy(values), axes=1)
    return np.maximum(entropy_of_mean - mean_entropy, 0.0)


def auroc(scores, positive):
    """Area under the ROC curve: how well scores tell positives from the others.

    The share of pairs of a positive and another example in which the positive has the
    higher score, where equal scores count one half. Exact, by ranks. 1 is perfect, 0.5
    is no better than chance.

    Args:
        scores: finite numbers of shape (N,), higher for what is more likely positive.
        positive: booleans of shape (N,), with at least one True and one False.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: an argument is of another kind or shape.

    Example:

    >>> auroc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875

    Reference: Hanley and McNeil (1982), "The meaning and use of the area under a
    receiver operating characteristic (ROC) curve".
    """
    scores = _validate.array("Argument `scores`", scores)
    positive = _validate.array("Argument `positive`", positive)
    if scores.ndim != 1 or not np.all(np.isfinite(scores)):
        raise ValueError(
            "Argument `scores` must be finite numbers of shape (N,). "
            f"Received: shape {scores.shape}, "
            f"{np.sum(~np.isfinite(scores))} values that are not finite"
        )
    values = np.unique(positive)
    if set(values) != {0.0, 1.0} or positive.shape != scores.shape:
        raise ValueError(
            f"Argument `positive` must be {len(scores)} booleans, one for each score, "
            "with at least one True and one False. Without both there is no curve. "
            f"Received: shape {positive.shape}, with the values {values[:5]}"
        )
    positive = positive == 1.0
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    ranks = (ends - 0.5 * (sizes - 1))[group]  # equal scores share their mean rank
    count = int(np.sum(positive))
    above = np.sum(ranks[positive]) - 0.5 * count * (count + 1)
    return float(above / (count * (len(scores) - count)))


def as_probabilities(subject, values, tolerance=1e-3, remedy=_REMEDY):
    """Probabilities of shape (N, C), C >= 2, or a `ValueError` about `subject`."""
    values = _validate.array(subject, values)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            f"{subject} must have the shape (examples, classes), or (examples,) or "
            "(examples, 1) for class 1 of two, with at least one example. "
            f"Received: shape {values.shape}"
        )
    low, high = np.min(values), np.max(values)
    if not (low >= 0.0 and high <= 1.0 + tolerance):  # NaN fails this, too
        raise ValueError(
            f"{subject} must be numbers in [0, 1], without NaN. {remedy} "
            f"Received: values between {low:g} and {high:g}"
        )
    if values.shape[1] == 1:
        values = np.minimum(values, 1.0)
        return np.concatenate([1.0 - values, values], axis=1)
    sums = np.sum(values, axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > tolerance:
        raise ValueError(
            f"{subject} must have rows that sum to 1 within {tolerance:g}. {remedy} "
            f"Received: a sum of {sums[worst]:.6g} in row {worst}"
        )
    return values


def as_labels(name, labels, examples, classes):
    """Integers of shape (N,), from those or one-hot rows, or a `ValueError`."""
    labels = _validate.array(f"Argument `{name}`", labels)
    if labels.ndim == 0 or len(labels) != examples:
        raise ValueError(
            f"Argument `{name}` must have one label for each of {examples} examples. "
            f"Received: shape {labels.shape}"
        )
    if labels.shape == (examples, classes):
        if not np.all(np.isin(labels, (0.0, 1.0)) & (labels.sum(1) == 1.0)[:, None]):
            raise ValueError(
                f"Argument `{name}` must be one-hot, each row with a single 1 and "
                "zeros, if it has a column for each class. For soft labels pass their "
                f"argmax. Received: {name}={labels!r}"
            )
        return np.argmax(labels, axis=1)
    if labels.shape not in ((examples,), (examples, 1)):
        raise ValueError(
            f"Argument `{name}` must have the shape ({examples},) or ({examples}, 1), "
            f"or be one-hot of shape ({examples}, {classes}). "
            f"Received: shape {labels.shape}"
        )
    labels = labels.reshape(examples)
    wrong = ~((labels >= 0) & (labels < classes) & (labels == np.floor(labels)))
    if np.any(wrong):
        raise ValueError(
            f"Argument `{name}` must be integers in [0, {classes}), for {classes} "
            "classes numbered from 0. "
            f"Received: {labels[wrong][0]:g} at position {int(np.argmax(wrong))}"
        )
    return labels.astype("int64")


def _read(probabilities, labels):
    probabilities = as_probabilities("Argument `probabilities`", probabilities)
    return probabilities, as_labels("labels", labels, *probabilities.shape)


def _weights(weights, members):
    """Weights that sum to 1."""
    if weights is None:
        return np.full(members, 1.0 / members)
    values = _validate.array("Argument `weights`", weights)
    with np.errstate(over="ignore"):  # refused below
        total = np.sum(values)
    if values.shape != (members,) or not (np.all(values >= 0) and 0 < total < np.inf):
        raise ValueError(
            f"Argument `weights` must be {members} numbers, one for each member, at "
            "least 0 and not all 0. Leave it away for equal weights. "
            f"Received: weights={weights!r}"
        )
    return values / total


def _entropy(probabilities):
    """Entropy over the last axis, with 0 log 0 = 0."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    return np.maximum(-np.sum(probabilities * logs, axis=-1), 0.0)
