"""Taylor polynomials of single log-likelihoods, and bounds of their remainders.

Paper: Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019), "Scalable
Metropolis-Hastings for exact Bayesian inference with large datasets", on the choice of
surrogates. What is not in the paper is marked with a star.

A log-likelihood is here a function of one linear combination of the weights,
log p(x_i|theta) = f_i(a_i . theta). About a reference point theta*, with L L^T = T C
and z = L^-1 (theta - theta*), it is a function of t = b_i . z, with b_i = L^T a_i (*):

    (1)  f_i = const + f_i' t + f_i'' t^2 / 2 + remainder_i
    (2)  |remainder_i(z') - remainder_i(z)| <= psi_i phi(z, z')
         psi_i = sup |f_i^(k+1)| |b_i|^(k+1)
    (3)  phi = min( (|z|^(k+1) + |z'|^(k+1)) / (k+1)!,  |z' - z| s^k / k! )
         s^2 = (|z|^2 + z . z' + |z'|^2) / 3

k is the order of the polynomial. For k = 1 the term with f_i'' is left out. The first
part of (3) is the paper's bound. The second part, smaller for short moves, is the
integral of the remainder's derivative on the way from z to z' (*).
"""

import dataclasses
import math
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.parts.tensors import ops

# sup |f''| and sup |f'''| of f(s) = -log(1 + exp(s)): the derivative p(1 - p) of the
# sigmoid p is largest at p = 1/2, and p(1 - p)(1 - 2p) at p = 1/2 - 1/sqrt(12).
_BOUNDS = {1: 0.25, 2: 1.0 / (6.0 * math.sqrt(3.0))}
_MOST_STEPS = 100
# Curvature of U in some direction, relative to the largest that it can have. Labels
# that a plane separates come below: without a prior U falls without end.
_FLATTEST = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Expansion:
    """Taylor polynomials of the log-likelihoods f_i(a_i . theta) about a reference.

    `mh.kernels.smh` needs them. `mh.expansions` makes them for common models. Write
    your own for another model whose log-likelihoods depend on one linear combination
    of the weights each.

    Args:
        features: a_i, shape (N, d). A position of several tensors is taken as one
            vector of d weights: the tensors in order, each of them flat.
        reference: theta*, near the mode of the posterior, shape (d,).
        covariance: C, of the Gaussian that proposals are made from, such as the inverse
            of the Hessian of U at the reference, shape (d, d). The kernel is exact with
            any other, and accepts less.
        slopes: f_i'(a_i . theta*), nats, shape (N,).
        curvatures: f_i''(a_i . theta*), nats, shape (N,). None: the polynomials are of
            the first order.
        bounds: of |f_i'''| on the whole line, or of |f_i''| without `curvatures`, nats,
            a number of at least 0 for each example, shape (N,).

    Raises:
        ValueError: an argument has a wrong shape or numbers that are not finite; the
            covariance is not positive definite.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> # One weight and log-likelihoods log cos(theta / 2), of the first order.
    >>> model = dict(features=np.ones((10, 1)), reference=[0.0], covariance=[[0.4]])
    >>> terms = dict(slopes=np.zeros(10), curvatures=None, bounds=np.ones(10))
    >>> mh.expansions.Expansion(**model, **terms).order
    1

    Reference: Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019).
    """

    features: Array
    reference: Array
    covariance: Array
    slopes: Array
    curvatures: Array | None
    bounds: Array

    def __post_init__(self) -> None:
        features = _validate.matrix("features", self.features)
        set_checked(self, features=features)
        rows, columns = features.shape[:1], features.shape[1:]
        shapes = dict(reference=columns, covariance=columns * 2, slopes=rows)
        shapes |= dict(bounds=rows, curvatures=rows)
        for name, shape in shapes.items():
            values = getattr(self, name)
            if name != "curvatures" or values is not None:
                set_checked(self, **{name: _checked(name, values, shape)})
        scale = np.abs(self.covariance).max()
        if (
            not np.allclose(self.covariance, self.covariance.T, atol=1e-6 * scale)
            or not np.linalg.eigvalsh(self.covariance).min() > 0.0
        ):
            raise ValueError(
                "Argument `covariance` must be a symmetric positive definite matrix. "
                f"Received: {_validate.shown(self.covariance)}"
            )
        weighted = self.bounds * np.any(self.features != 0.0, axis=1)
        if (self.bounds < 0.0).any() or not weighted.any():
            raise ValueError(
                "Argument `bounds` must have numbers of at least 0, and one above 0 "
                "for an example whose row of `features` is not 0. Received: "
                f"{_validate.shown(self.bounds)}"
            )

    @property
    def order(self) -> int:
        """k, the order of the polynomials."""
        return 1 if self.curvatures is None else 2


class Whitened(NamedTuple):
    """What the steps need of an expansion, in units of its Gaussian, float64."""

    factor: Array  # L, weights, (d, d)
    inverse: Array  # of the factor
    rows: Array  # b_i, (N, d)
    curvatures: Array  # f_i'', nats, (N,)
    limits: Array  # psi_i, nats, (N,)
    gradient: Array  # sum_i f_i' b_i, nats, (d,)
    hessian: Array  # sum_i f_i'' b_i b_i^T, nats, (d, d)


def whitened(expansion: Expansion, temperature: float) -> Whitened:
    factor = math.sqrt(temperature) * np.linalg.cholesky(expansion.covariance)
    rows = expansion.features @ factor
    curvatures = expansion.curvatures
    if curvatures is None:
        curvatures = np.zeros(len(rows))
    lengths = np.sqrt(np.sum(np.square(rows), axis=1))
    return Whitened(
        factor=factor,
        inverse=np.linalg.inv(factor),
        rows=rows,
        curvatures=curvatures,
        limits=expansion.bounds * lengths ** (expansion.order + 1),
        gradient=rows.T @ expansion.slopes,
        hessian=(rows * curvatures[:, None]).T @ rows,
    )


def reach(here: Tensor, there: Tensor, order: int) -> Tensor:
    """Return phi of (3), (K,), of z and z', (K, d); `order` is k."""
    first, second = dot(here, here), dot(there, there)
    moved = there - here
    # Rounding may leave a small number below 0 near the reference.
    square = ops.maximum((first + dot(here, there) + second) / 3.0, 0.0)
    power = 0.5 * (order + 1)
    ends = (first**power + second**power) / math.factorial(order + 1)
    way = ops.sqrt(dot(moved, moved)) * square ** (0.5 * order)
    return ops.minimum(ends, way / math.factorial(order))


def change_of_each(
    here: Tensor, there: Tensor, rows: Tensor, slopes: Tensor, curvatures: Tensor
) -> Tensor:
    difference = dot(rows, ops.expand_dims(there - here, 1))
    total = dot(rows, ops.expand_dims(there + here, 1))
    return difference * (slopes + 0.5 * curvatures * total)


def change_of_all(
    here: Tensor, there: Tensor, gradient: Tensor, hessian: Tensor
) -> Tensor:
    """Return how much the sum of all polynomials changes, nats, (K,)."""
    # (z'^T H z' - z^T H z) / 2 = (z' - z)^T H (z' + z) / 2
    curved = times(hessian, 0.5 * (there + here))
    return dot(there - here, gradient + curved)


def dot(x: Tensor, y: Tensor) -> Tensor:
    return ops.sum(x * y, axis=-1)


def times(matrix: Tensor, z: Tensor) -> Tensor:
    """Return M z for each chain, (K, d). A GPU rounds what `matmul` multiplies."""
    return dot(matrix, ops.expand_dims(z, 1))


def _checked(name: str, values: Any, shape: tuple[int, ...]) -> Array:
    array = _validate.array(f"Argument `{name}`", values)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(
            f"Argument `{name}` must have finite numbers and the shape {shape}, for "
            f"`features` with a row for each example. Received: shape {array.shape}, "
            f"with {int(np.sum(~np.isfinite(array)))} numbers that are not finite"
        )
    return array


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
