"""PoissonMH: exact Metropolis-Hastings given a mini-batch of auxiliary counts.

Papers: Zhang and De Sa (2019), "Poisson-minibatching for Gibbs sampling with
convergence rate guarantees", for the counts; Zhang, Cooper and De Sa (2020),
"Asymptotically optimal exact minibatch Metropolis-Hastings", for the kernel.

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

| paper     | name             | shape           | unit    |
|-----------|------------------|-----------------|---------|
| theta     | `point`          | list of tensors | weights |
| theta'    | `proposal` of `bounded.py` | list of tensors | weights |
| epsilon   | `learning_rate`  | float           | weights |
| lower, upper | `lower`, `upper` | (N,)         | nats    |
| T M_i     | `width`          | (K, B)          | nats    |
| L         | `total`          | float           | nats    |
| lambda    | `poisson_rate`   | float           | examples |
| lambda + L phi_i/M_i | `rates` | (K, B)      | examples |
| s_i       | `stays` of `bounded.py`, of each arrival | (K, B) | 1 |
| T         | `temperature`    | float           | 1       |
"""

import dataclasses

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import bounded
from keras_mhmcmc.algorithms.base import set_checked
from keras_mhmcmc.algorithms.bounded import BoundedWalk
from keras_mhmcmc.algorithms.tensors import ops


@dataclasses.dataclass(frozen=True, eq=False)
class PoissonMH(BoundedWalk):
    """PoissonMH with a random walk as proposal."""

    learning_rate: float
    lower: Array
    upper: Array
    poisson_rate: float | None
    temperature: float
    block_size: int

    def __post_init__(self) -> None:
        self._check_walk()
        lower, upper = checked_limits(self.lower, self.upper)
        set_checked(self, lower=lower, upper=upper)
        if self.poisson_rate is not None:
            rate = _validate.number(
                "poisson_rate", self.poisson_rate, _validate.POSITIVE
            )
            set_checked(self, poisson_rate=rate)

    @property
    def limits(self) -> list[Array]:
        """Lower and upper bounds of the log-likelihoods."""
        return [self.lower, self.upper]

    @property
    def weights(self) -> Array:
        """The widths M_i, times T."""
        return self.upper - self.lower

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that give the bounds."""
        return ("lower", "upper")

    @property
    def total(self) -> float:
        """L."""
        return float(np.sum(self.weights)) / self.temperature

    @property
    def extra(self) -> float:
        """lambda, L by default."""
        return self.total if self.poisson_rate is None else self.poisson_rate

    def rate(self, walk: bounded.Walk) -> Tensor:
        """Return lambda + L, (K,)."""
        return ops.zeros_like(walk.distance) + (self.extra + self.total)

    def judge(
        self,
        examples: bounded.Examples,
        measures: bounded.Walk,
        violation: bounded.Violation,
    ) -> bounded.Judged:
        """Return the probabilities of (1), and the terms of (2)."""
        low, high = examples.limits
        width = ops.where(high > low, high - low, 1.0)
        rates = []
        for value in (examples.here, examples.there):
            slack = bounded.rounding(value)
            outside = (value < low - slack) | (value > high + slack)
            outside = outside | ~ops.isfinite(value)
            nearest = ops.where(value > high, high, low)
            violation = bounded.first_violation(
                violation, value, nearest, examples, outside
            )
            # lambda + L phi_i / M_i
            share = ops.clip((value - low) / width, 0.0, 1.0)
            rates.append(self.extra + self.total * share)
        here, there = rates
        probability = here / (self.extra + self.total)
        return bounded.Judged(probability, ops.log(there / here), violation)


def checked_limits(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return both bounds as arrays, float64, (N,), or raise a `ValueError`."""
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
