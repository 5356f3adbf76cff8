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

(1) is drawn from a Poisson process of rate chi C^2 M^2 + C M: an arrival of example i
stays with the probability of its share of chi c_i C M^2 + c_i M. On the way back from
theta' the counts have the rates of -Delta_i: the two probabilities of the same counts
differ by the factor (2), up to exp(sum_i Delta_i), the likelihood's own ratio.

| paper             | name            | shape           | unit              |
|-------------------|-----------------|-----------------|-------------------|
| c_i               | `bounds`        | (N,)            | nats / weight     |
| C                 | `total`         | float           | nats / weight     |
| M                 | `distance`      | (K,)            | weights           |
| C M               | `reach`         | (K,), (K, 1)    | nats              |
| Delta_i / (c_i M) | `share`         | (K, B)          | 1                 |
| s_i               | `stays` of `bounded.py`, of each arrival | (K, B) | 1 |
"""

import dataclasses
import math

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import bounded
from keras_mhmcmc.samplers.parts.bounded import BoundedWalk
from keras_mhmcmc.samplers.parts.bounded import Walk
from keras_mhmcmc.samplers.parts.tensors import ops

# The default of chi C M. With 3 the efficiency of `examples/benchmarks/tuna.py` is
# within 15% of the best for 10,000 rows, and the best for 100,000.
_CHI_SHARE = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class tuna(BoundedWalk):
    """Make TunaMH, exact Metropolis-Hastings on mini-batches, for `mh.sample`.

    The kernel samples exp(-U/T) exactly, with a fixed step and without a pass over the
    data. It needs a bound for each example: the log-likelihood of example i changes by
    at most c_i times the distance between two positions. A bound that does not hold
    ends the run with an error.

    The accept-reject test evaluates about chi C^2 M^2 + C M examples, with C the sum of
    c_i / T and M the length of the proposed move. `draws.info` has the mean
    `batch_size` of each chain. For each evaluated example it moves less far than a
    random walk with a test on all of the data (`examples/benchmarks/tuna.py`). So if
    all of the data fit into memory, compare with `mh.kernels.hmc`. For a logistic
    regression on many rows try `mh.kernels.smh`.

    Args:
        learning_rate: epsilon, the standard deviation of the random walk, in units of
            the position, greater than 0.
        bounds: c_i of each example, nats per unit of the Euclidean distance over all
            tensors, an array (N,) of numbers of at least 0, such as one of `mh.bounds`.
        chi: chi, in examples per square of a nat, greater than 0. A larger one
            evaluates more examples, and accepts more often, like a test on all of the
            data. None gives the chi with chi C M = 3 for a move of typical length,
            sqrt(d) times the learning rate in d dimensions: about 4 C M examples.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples that a chain evaluates at once, at least 1. It does not
            change the distribution. Defaults to 128.

    Raises:
        ValueError: an argument is outside its range. `mh.sample` raises it if `bounds`
            do not fit the data.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> kernel = mh.kernels.tuna(0.05, bounds=mh.bounds.logistic_regression(x))

    Reference: Zhang, Cooper and De Sa (2020), algorithm 2.
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    bounds: Array
    chi: float | None = None
    temperature: float = 1.0
    block_size: int = 128

    def __post_init__(self) -> None:
        base.check(self, **bounded.WALK)
        base.check(self, chi=base.OrNone(base.POSITIVE))
        base.set_checked(self, bounds=bounded.checked_bounds("bounds", self.bounds))

    @property
    def limits(self) -> list[Array]:
        return [self.bounds]

    @property
    def total(self) -> float:
        """C, over T."""
        return float(self.bounds.sum()) / self.temperature

    def chi_of(self, size: int) -> float:
        if self.chi is not None:
            return self.chi
        return _CHI_SHARE / (self.total * self.learning_rate * math.sqrt(size))

    def propose(self, point: base.Position, density: base.Density) -> bounded.Move:
        return self.random_walk(point, density)

    def rate(self, walk: Walk) -> Tensor:
        """Return chi C^2 M^2 + C M, (K,)."""
        reach = self.total * walk.distance
        return self.chi_of(walk.size) * reach * reach + reach

    def judge(
        self, examples: bounded.Examples, measures: Walk, violation: bounded.Violation
    ) -> bounded.Judged:
        reach = ops.expand_dims(self.total * measures.distance, 1)
        far = 1.0 + 2.0 * self.chi_of(measures.size) * reach
        # T divides both the difference and the bound, and their ratio not at all.
        bound = examples.limits[0] * ops.expand_dims(measures.distance, 1)
        share, violation = bounded.bounded_share(examples, bound, violation)
        # Numerator and denominator of (1), over c_i M / 2.
        probability = (far + share) / (far + 1.0)
        return bounded.Judged(probability, -2.0 * ops.arctanh(share / far), violation)
