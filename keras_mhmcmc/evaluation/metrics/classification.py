"""Accuracy, scores and uncertainty of class probabilities.

Paper: Depeweg, Hernandez-Lobato, Doshi-Velez and Udluft (2018), "Decomposition of
uncertainty in Bayesian deep learning for efficient and risk-sensitive learning", for
`mutual_information`.
"""

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import as_probabilities
from keras_mhmcmc.evaluation.checks import as_scored
from keras_mhmcmc.evaluation.checks import as_shares


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
    rows, classes = as_scored(probabilities, labels)
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
    rows, classes = as_scored(probabilities, labels)
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
    rows, classes = as_scored(probabilities, labels)
    one_hot = np.eye(rows.shape[1])[classes]
    return float(np.mean(np.sum((rows - one_hot) ** 2, axis=1)))


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
    shares = as_shares(weights, members)
    entropy_of_mean = _entropy(np.tensordot(shares, values, axes=1))
    mean_entropy = np.tensordot(shares, _entropy(values), axes=1)
    return np.maximum(entropy_of_mean - mean_entropy, 0.0)


def _entropy(probabilities: Array) -> Array:
    """Return the entropy over the last axis, with 0 log 0 = 0."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    return np.maximum(-np.sum(probabilities * logs, axis=-1), 0.0)
