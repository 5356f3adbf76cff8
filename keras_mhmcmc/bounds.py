"""Bounds of single log-likelihoods, for exact kernels on mini-batches.

`mh.kernels.tuna` needs numbers c_i with |log p(x_i|a) - log p(x_i|b)| <= c_i |a - b|
for all positions a and b, in nats per unit of the Euclidean distance. Each function
below gives them for one model, as a float64 array (N,). A `ValueError` refuses features
that are no matrix of finite numbers.
"""

import math
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

__all__ = ["logistic_regression", "robust_regression", "softmax_regression"]


def __dir__() -> list[str]:
    return __all__


def logistic_regression(x: Any) -> Array:
    """Return c_i = |x_i| for a logistic regression on the rows of `x`.

    The log-likelihood of a label has a gradient of (label - probability) x_i.

    Args:
        x: features, with a constant column if the model has one, shape (N, d).

    Example:

    >>> import keras_mhmcmc as mh
    >>> mh.bounds.logistic_regression([[3.0, 4.0], [0.0, 1.0]]).tolist()
    [5.0, 1.0]
    """
    return _norms(x)


def softmax_regression(x: Any) -> Array:
    """Return c_i = sqrt(2) |x_i| for a softmax regression on the rows of `x`.

    The log-likelihood of a label has the gradient (one-hot label - probabilities) times
    x_i, and the first factor is at most sqrt(2) long. The position is the matrix of
    weights. With a vector of biases, `x` needs a column of ones.

    Args:
        x: features, shape (N, d), such as the frozen features of a network.

    Example:

    >>> import keras_mhmcmc as mh
    >>> mh.bounds.softmax_regression([[3.0, 4.0]]).round(4).tolist()
    [7.0711]
    """
    return math.sqrt(2.0) * _norms(x)


def robust_regression(x: Any, degrees_of_freedom: float, scale: float = 1.0) -> Array:
    """Return c_i for a linear regression with Student's t errors.

    With nu degrees of freedom and a scale s, the log-likelihood of a residual changes
    by at most (nu + 1) / (2 s sqrt(nu)) times the change of the residual.

    Args:
        x: features, shape (N, d).
        degrees_of_freedom: nu, greater than 0.
        scale: s of the errors, greater than 0. Defaults to 1.

    Example:

    >>> import keras_mhmcmc as mh
    >>> mh.bounds.robust_regression([[3.0, 4.0]], degrees_of_freedom=4.0).tolist()
    [6.25]
    """
    nu = _validate.number("degrees_of_freedom", degrees_of_freedom, _validate.POSITIVE)
    scale = _validate.number("scale", scale, _validate.POSITIVE)
    return (nu + 1.0) / (2.0 * scale * math.sqrt(nu)) * _norms(x)


def _norms(x: Any) -> Array:
    rows = _validate.matrix("x", x)
    return np.sqrt(np.sum(np.square(rows), axis=1))
