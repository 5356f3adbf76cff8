"""TunaMH: exact Metropolis-Hastings on mini-batches of random size.

Paper: Zhang, Cooper and De Sa (2020), "Asymptotically optimal exact minibatch
Metropolis-Hastings", algorithm 2.

Target: exp(-U(theta)/T) exactly, with U = -sum_i log p(x_i|theta) - log p(theta), if
the bounds hold: |Delta_i| <= c_i M(theta, theta') for all examples, with
Delta_i = log p(x_i|theta) - log p(x_i|theta') and M = |theta' - theta|.

Equations, with C = sum_i c_i; c_i and Delta_i are divided by T first:

    theta' = theta + epsilon Z
    (1)  the batch: s_i ~ Poisson(chi c_i C M^2 + (Delta_i + c_i M) / 2)
    (2)  log r = sum_i s_i 2 artanh(-Delta_i / (c_i M (1 + 2 chi C M)))
                 + (log p(theta') - log p(theta)) / T
    accept theta' if log u < log r

(1) is drawn from a Poisson process of rate chi C^2 M^2 + C M, the expected number of
examples: an arrival of example i stays with the probability of its share of
chi c_i C M^2 + c_i M. Why it is exact: on the way back from theta' the counts have the
rates of -Delta_i. The two probabilities of the same counts differ by the factor (2), up
to exp(sum_i Delta_i), which is the likelihood's own ratio.

| paper             | name            | shape           | unit              |
|-------------------|-----------------|-----------------|-------------------|
| theta             | `point`         | list of tensors | weights           |
| theta'            | `proposal` of `bounded.py` | list of tensors | weights |
| epsilon           | `learning_rate` | float           | weights           |
| c_i               | `bounds`        | (N,)            | nats / weight     |
| C                 | `total`         | float           | nats / weight     |
| chi               | `chi`           | float           | examples / nats^2 |
| M                 | `distance`      | (K,)            | weights           |
| C M               | `reach`         | (K,), (K, 1)    | nats              |
| 1 + 2 chi C M     | `far`           | (K, 1)          | 1                 |
| Delta_i / (c_i M) | `share`         | (K, B)          | 1                 |
| s_i               | `stays` of `bounded.py`, of each arrival | (K, B) | 1 |
| T                 | `temperature`   | float           | 1                 |
"""

import dataclasses
import math

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import bounded
from keras_mhmcmc.algorithms.base import set_checked
from keras_mhmcmc.algorithms.bounded import BoundedWalk
from keras_mhmcmc.algorithms.tensors import ops

# The default of chi C M. With 3 the efficiency of `examples/benchmarks/tuna.py` is
# within 15% of the best for 10,000 rows, and the best for 100,000.
_CHI_SHARE = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class Tuna(BoundedWalk):
    """TunaMH with a random walk as proposal."""

    learning_rate: float
    bounds: Array
    chi: float | None
    temperature: float
    block_size: int

    def __post_init__(self) -> None:
        self._check_walk()
        set_checked(self, bounds=bounded.checked_bounds("bounds", self.bounds))
        if self.chi is not None:
            set_checked(self, chi=_validate.number("chi", self.chi, _validate.POSITIVE))

    @property
    def limits(self) -> list[Array]:
        """The bounds c_i."""
        return [self.bounds]

    @property
    def weights(self) -> Array:
        """The bounds c_i."""
        return self.bounds

    @property
    def names(self) -> tuple[str, ...]:
        """The argument that gives the bounds."""
        return ("bounds",)

    @property
    def total(self) -> float:
        """C, over T."""
        return float(self.bounds.sum()) / self.temperature

    def chi_of(self, size: int) -> float:
        """Return chi; by default chi C M is `_CHI_SHARE` for a move of usual length."""
        if self.chi is not None:
            return self.chi
        return _CHI_SHARE / (self.total * self.learning_rate * math.sqrt(size))

    def rate(self, walk: bounded.Walk) -> Tensor:
        """Return chi C^2 M^2 + C M, (K,)."""
        reach = self.total * walk.distance
        return self.chi_of(walk.size) * reach * reach + reach

    def judge(
        self,
        examples: bounded.Examples,
        measures: bounded.Walk,
        violation: bounded.Violation,
    ) -> bounded.Judged:
        """Return the probabilities of (1), and the terms of (2)."""
        reach = ops.expand_dims(self.total * measures.distance, 1)
        far = 1.0 + 2.0 * self.chi_of(measures.size) * reach
        # T divides both the difference and the bound, and their ratio not at all.
        bound = examples.limits[0] * ops.expand_dims(measures.distance, 1)
        share, violation = bounded.bounded_share(examples, bound, violation)
        # Numerator and denominator of (1), over c_i M / 2.
        probability = (far + share) / (far + 1.0)
        return bounded.Judged(probability, -2.0 * ops.arctanh(share / far), violation)
