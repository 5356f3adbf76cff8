"""Taylor expansions of single log-likelihoods at the mode, for `mh.kernels.smh`."""

import math
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.samplers.parts.taylor import Expansion

__all__ = ["Expansion", "logistic_regression"]

# sup |f''| and sup |f'''| of f(s) = -log(1 + exp(s)): the derivative p(1 - p) of the
# sigmoid p is largest at p = 1/2, and p(1 - p)(1 - 2p) at p = 1/2 - 1/sqrt(12).
_BOUNDS = {1: 0.25, 2: 1.0 / (6.0 * math.sqrt(3.0))}
_MOST_STEPS = 100
# Curvature of U in some direction, relative to the largest that it can have. Labels
# that a plane separates come below: without a prior U falls without end.
_FLATTEST = 1e-9


def __dir__() -> list[str]:
    return __all__


def logistic_regression(
    x: Any, y: Any, *, prior_scale: float | None = 1.0, order: int = 2
) -> Expansion:
    """Return the expansion of a logistic regression at the mode of its posterior.

    The log-likelihood of label y is -log(1 + exp((1 - 2y) x . theta)). Newton's method
    finds the mode. The covariance of the Gaussian is the inverse of the Hessian of U at
    the mode. The bound of the third derivative is 1 / (6 sqrt(3)) for each example, and
    that of the second derivative 1/4.

    Args:
        x: features, with a constant column if the model has one, shape (N, d).
        y: labels, 0 or 1, shape (N,).
        prior_scale: standard deviation of the normal prior of each weight, greater
            than 0, which places the mode and the Gaussian. Another `log_prior` of
            `mh.sample` costs acceptance, and changes nothing else. None is a flat
            prior. Defaults to 1.
        order: of the polynomials, 1 or 2. Defaults to 2.

    Returns:
        An `Expansion`, whose `reference` is the mode. Begin the chains there.

    Raises:
        ValueError: an argument is outside its range, or the posterior has no mode, as
            with a flat prior and labels that a plane separates.

    Example:

    >>> import keras_mhmcmc as mh
    >>> x = [[-1.0], [-1.0], [1.0], [1.0], [1.0]]
    >>> expansion = mh.expansions.logistic_regression(x, [0, 1, 1, 0, 1])
    >>> expansion.reference.shape, expansion.order
    ((1,), 2)

    Reference: Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019),
    "Scalable Metropolis-Hastings for exact Bayesian inference with large datasets".
    """
    features = _validate.matrix("x", x)
    labels = _validate.array("Argument `y`", y)
    if labels.shape != features.shape[:1] or not np.isin(labels, (0.0, 1.0)).all():
        raise ValueError(
            "Argument `y` must have the label 0 or 1 of each row of `x`. Received: "
            f"y={_validate.shown(y)}"
        )
    if not features.any():
        raise ValueError(
            "Argument `x` must have a row of features that are not all 0. Received: "
            f"x={_validate.shown(x)}"
        )
    precision = 0.0
    if prior_scale is not None:
        precision = _validate.number("prior_scale", prior_scale, _validate.POSITIVE)
        precision = precision**-2
    _validate.choice("order", order, (1, 2))
    # The loop of `mh.sample` sees these numbers in float32.
    features = features.astype("float32").astype("float64")
    mode = _mode(features, labels, precision).astype("float32").astype("float64")
    probability = _sigmoid(features @ mode)
    curvatures = -probability * (1.0 - probability)
    covariance = np.linalg.inv(_precision(features, curvatures, precision))
    return Expansion(
        features=features,
        reference=mode,
        covariance=0.5 * (covariance + covariance.T),
        slopes=labels - probability,
        curvatures=curvatures if order == 2 else None,
        bounds=np.full(len(features), _BOUNDS[order]),
    )


def _mode(x: Array, labels: Array, precision: float) -> Array:
    """Return the mode, by Newton's method with steps that lower the energy."""
    signs = 1.0 - 2.0 * labels

    def energy(theta: Array) -> float:
        likelihood = np.logaddexp(0.0, signs * (x @ theta)).sum()
        return float(likelihood + 0.5 * precision * theta @ theta)

    mode = np.zeros(x.shape[1])
    for _ in range(_MOST_STEPS):
        p = _sigmoid(x @ mode)
        hessian = _precision(x, -p * (1.0 - p), precision)
        gradient = x.T @ (labels - p) - precision * mode
        try:
            step = np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            break
        # Half the squared length of the step, in posterior standard deviations.
        gain = 0.5 * float(gradient @ step)
        if not np.isfinite(gain):
            break
        if gain < 1e-12:
            steepest = _precision(x, np.full(len(x), -0.25), precision)
            shares = np.linalg.eigvals(np.linalg.solve(steepest, hessian))
            if shares.real.min() < _FLATTEST:
                break
            return mode
        here, share = energy(mode), 1.0
        while share > 1e-6 and not energy(mode + share * step) <= here + 1e-12 * here:
            share *= 0.5
        mode = mode + share * step
    raise ValueError(
        "Arguments `x` and `y` must give a posterior with a mode. Give a prior by "
        "`prior_scale`, or remove features that depend on each other. Received: "
        f"features of shape {x.shape}, for which Newton's method found no mode"
    )


def _precision(x: Array, curvatures: Array, precision: float) -> Array:
    """Return the Hessian of U."""
    return precision * np.eye(x.shape[1]) - (x * curvatures[:, None]).T @ x


def _sigmoid(logits: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -logits))
