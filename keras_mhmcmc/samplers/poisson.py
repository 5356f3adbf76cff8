"""PoissonMH: exact Metropolis-Hastings given a mini-batch of auxiliary counts.

Papers: Zhang and De Sa (2019), "Poisson-minibatching for Gibbs sampling with
convergence rate guarantees", for the counts; Zhang, Cooper and De Sa (2020),
"Asymptotically optimal exact minibatch Metropolis-Hastings", for the kernel; Yuan and
Wang (2024), "Markov chain Monte Carlo without evaluating the target: an auxiliary
variable approach", for moves along a gradient; Livingstone and Zanella (2022), "The
Barker proposal: combining robustness and efficiency in gradient-based MCMC".

Target: exp(-U(theta)/T) exactly, with U = -sum_i log p(x_i|theta) - log p(theta), if
lower_i <= log p(x_i|theta) <= upper_i wherever the prior is positive.

Equations, with phi_i = (log p(x_i|theta) - lower_i) / T, M_i = (upper_i - lower_i) / T
and L = sum_i M_i:

    theta' = theta + epsilon Z
    (1)  the batch: s_i ~ Poisson(lambda M_i / L + phi_i(theta))
    (2)  log r = sum_i s_i log((lambda M_i + L phi_i(theta'))
                               / (lambda M_i + L phi_i(theta)))
                 + (log p(theta') - log p(theta)) / T
    accept theta' if log u < log r

(1) is drawn from a Poisson process of rate lambda + L: an arrival of example i stays
with the probability (lambda M_i / L + phi_i) / (lambda M_i / L + M_i). Why it is exact:
theta and the counts have the density prod_i (lambda M_i / L + phi_i)^s_i / s_i! times
the prior, whose sum over all counts is the target. (1) draws the counts given theta,
and (2) is a test on this density.

A move may follow the gradient of this density, with the batch (1) drawn first:

    (3)  g(theta) = (sum_i s_i L grad log p(x_i|theta) / (lambda M_i + L phi_i(theta))
                     + grad log p(theta)) / T
         theta'_j = theta_j + b_j epsilon Z_j, with b_j = 1 with probability
         1 / (1 + exp(-epsilon Z_j g_j)), else -1
    (4)  log q(theta' -> theta) - log q(theta -> theta')
             = sum_j log(1 + exp(-Delta_j g_j)) - log(1 + exp(Delta_j g'_j)),
         with g' = g(theta') and Delta = theta' - theta; log r has this term, too

The first visit of the arrivals sums g(theta), and the second one g(theta') and (2).

| paper     | name             | shape           | unit    |
|-----------|------------------|-----------------|---------|
| T M_i     | `width`          | (K, B)          | nats    |
| L         | `total`          | float           | nats    |
| lambda    | `poisson_rate`   | float           | examples |
| s_i       | `stays` of `bounded.py`, of each arrival | (K, B) | 1 |
| g         | `gradient`       | list of tensors | nats / weight |
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import bounded
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.bounded import BoundedWalk
from keras_mhmcmc.samplers.parts.bounded import Walk
from keras_mhmcmc.samplers.parts.tensors import ops

PROPOSALS = ("random_walk", "barker")
# Part of the noise of the first arrivals. Part 1 has the signs of Barker's proposal.
_FIRST_BLOCK = 2


@dataclasses.dataclass(frozen=True, eq=False)
class poisson(BoundedWalk):
    """Make PoissonMH, exact Metropolis-Hastings on mini-batches, for `mh.sample`.

    The kernel samples exp(-U/T) exactly, with a fixed step and without a pass over the
    data. It needs a lower and an upper bound of each log-likelihood, wherever the prior
    is positive. A bound that does not hold ends the run with an error.

    Each step evaluates about `poisson_rate` + L examples, with L the sum of
    (upper - lower) / T. This is fewer than N only if the bounds are tight or T is
    large. `mh.kernels.tuna` needs fewer where likelihoods are smooth.

    A proposal is a random walk epsilon Z, or a Barker move (Poisson-Barker): a random
    walk whose coordinate j points along g_j with probability
    1 / (1 + exp(-epsilon |Z_j g_j|)), where g is the gradient of the joint log density
    of position and batch, which is drawn before. It is never longer than the random
    walk. (It has only the probability in common with `mh.kernels.barker`.) It evaluates
    each example with its gradient at two positions, and once more without. `draws.info`
    counts each example once.

    Args:
        learning_rate: epsilon, the standard deviation of a move's coordinates, in units
            of the position, greater than 0.
        lower: lower bound of each example's log-likelihood, nats, an array (N,).
        upper: upper bound of each example's log-likelihood, nats, an array (N,).
        poisson_rate: lambda, the expected number of examples that are drawn in addition
            to L, greater than 0. A larger rate accepts more proposals. None gives L.
        proposal: "random_walk" or "barker". Defaults to "random_walk".
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples that a chain evaluates at once, at least 1. It does not
            change the distribution. Defaults to 128.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> bounds = dict(lower=-np.ones(50), upper=np.zeros(50))
    >>> kernel = mh.kernels.poisson(0.2, **bounds, proposal="barker")

    Reference: Zhang and De Sa (2019); Zhang, Cooper and De Sa (2020); for moves along a
    gradient, Yuan and Wang (2024).
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    lower: Array
    upper: Array
    poisson_rate: float | None = None
    proposal: str = "random_walk"
    temperature: float = 1.0
    block_size: int = 128

    names = ("lower", "upper")

    def __post_init__(self) -> None:
        base.check(self, **bounded.WALK, proposal=PROPOSALS)
        base.check(self, poisson_rate=base.OrNone(base.POSITIVE))
        lower, upper = checked_limits(self.lower, self.upper)
        base.set_checked(self, lower=lower, upper=upper)

    @property
    def limits(self) -> list[Array]:
        return [self.lower, self.upper]

    @property
    def weights(self) -> Array:
        """The widths M_i, times T."""
        return self.upper - self.lower

    @property
    def total(self) -> float:
        """L."""
        return float(np.sum(self.weights)) / self.temperature

    @property
    def extra(self) -> float:
        """lambda, L by default."""
        return self.total if self.poisson_rate is None else self.poisson_rate

    def rate(self, walk: Walk) -> Tensor:
        return ops.zeros_like(walk.distance) + (self.extra + self.total)

    def propose(self, point: base.Position, density: base.Density) -> bounded.Move:
        if self.proposal == "random_walk":
            return self.random_walk(point, density)
        gradient = self._gradient(point, density)
        normals, scale = density.normals(0), self.learning_rate
        shapes = [tuple(x.shape) for x in point]
        size = sum(math.prod(shape[1:]) for shape in shapes)
        uniforms = tensors.unflat(density.uniforms(1, size, 1)[0], shapes)
        proposal = moved(point, gradient, normals, uniforms, scale)
        move = self.move_to(proposal, point, density)
        delta, like = tensors.subtract(proposal, point), move.log_ratio

        def log_q_ratio(new_gradient: base.Position) -> Tensor:
            return moved_log_ratio(delta, gradient, new_gradient, like)

        way_back = bounded.WayBack(self._of_prior(proposal, density), log_q_ratio)
        return move._replace(first_block=_FIRST_BLOCK, way_back=way_back)

    def _gradient(self, point: base.Position, density: base.Density) -> base.Position:
        """Return g of (3), in a first visit of the arrivals."""
        limits, table = self.tables(density)

        def visit(
            gradient: base.Position, index: Tensor, arrived: Tensor, uniform: Tensor
        ) -> base.Position:
            (here,) = density.log_likelihoods([point], index)
            value, slope = self._rates(here, *tensors.gather(limits, index))
            probability = value / (self.extra + self.total)  # of (1)
            stays = arrived & (uniform < probability)
            weights = ops.where(stays, slope, 0.0)
            added = density.weighted_gradient(point, index, weights)
            return tensors.add_scaled(gradient, 1.0, added)

        rate = ops.zeros((point[0].shape[0],), "float32") + (self.extra + self.total)
        visited = density, rate, table, self.block_size, visit
        first = self._of_prior(point, density)
        return bounded.visit_arrivals(*visited, first, _FIRST_BLOCK)

    def _of_prior(self, point: base.Position, density: base.Density) -> base.Position:
        return [g / self.temperature for g in density.prior_gradient(point)]

    def _rates(self, value: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return lambda + L phi_i / M_i, and the derivative of its logarithm."""
        width = ops.where(high > low, high - low, 1.0)
        share = ops.clip((value - low) / width, 0.0, 1.0)
        rate = self.extra + self.total * share
        return rate, self.total / (width * rate)

    def judge(
        self, examples: bounded.Examples, measures: Walk, violation: bounded.Violation
    ) -> bounded.Judged:
        low, high = examples.limits
        for value in (examples.here, examples.there):
            slack = bounded.rounding(value)
            outside = (value < low - slack) | (value > high + slack)
            outside = outside | ~ops.isfinite(value)
            seen = value, ops.where(value > high, high, low), examples, outside
            violation = bounded.first_violation(violation, *seen)
        here, _ = self._rates(examples.here, low, high)
        there, slope = self._rates(examples.there, low, high)
        term = ops.log(there / here)
        probability = here / (self.extra + self.total)  # of (1)
        return bounded.Judged(probability, term, violation, slope)


def moved(
    point: base.Position,
    gradient: base.Position,
    normals: Sequence[Tensor],
    uniforms: Sequence[Tensor],
    scale: float,
) -> base.Position:
    """Return the proposal (3); `uniforms` are shaped like the position."""
    signed = []
    for g, z, u in zip(gradient, normals, uniforms, strict=True):
        up = u < ops.sigmoid(scale * z * g)
        signed.append(ops.where(up, z, -z))
    return tensors.add_scaled(point, scale, signed)


def moved_log_ratio(
    delta: base.Position,
    gradient: base.Position,
    new_gradient: base.Position,
    like: Tensor,
) -> Tensor:
    terms = [
        ops.softplus(-x * g) - ops.softplus(x * new)
        for x, g, new in zip(delta, gradient, new_gradient, strict=True)
    ]
    return tensors.dot(terms, [ops.ones_like(x) for x in terms], like=like)


def checked_limits(lower: Array, upper: Array) -> tuple[Array, Array]:
    low = _validate.array("Argument `lower`", lower)
    high = _validate.array("Argument `upper`", upper)
    if low.ndim != 1 or low.size == 0 or low.shape != high.shape:
        raise ValueError(
            "Arguments `lower` and `upper` must have one number for each example, "
            f"shape (N,). Received: arrays of shapes {low.shape} and {high.shape}"
        )
    fine = np.isfinite(low) & np.isfinite(high) & (low <= high)
    if not fine.all() or not (low < high).any():
        bad = int(np.argmin(fine & (low < high)))
        raise ValueError(
            "Argument `lower` must be finite and at most `upper`, and below it for an "
            f"example or more. Received: lower={low[bad]}, upper={high[bad]} for "
            f"example {bad}"
        )
    return low, high
