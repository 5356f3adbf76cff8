"""TunaMH: exact Metropolis-Hastings on mini-batches of random size.

Papers: Zhang, Cooper and De Sa (2020), "Asymptotically optimal exact minibatch
Metropolis-Hastings", algorithm 2; Yuan and Wang (2024), "Markov chain Monte Carlo
without evaluating the target: an auxiliary variable approach", for moves along a
gradient.

Target: exp(-U(theta)/T) exactly, with U = -sum_i log p(x_i|theta) - log p(theta), if
the bounds hold: |Delta_i| <= c_i M(theta, theta') for all examples, with
Delta_i = log p(x_i|theta) - log p(x_i|theta') and M = |theta' - theta|.

Equations, with C = sum_i c_i; c_i and Delta_i are divided by T first:

    theta' = theta + epsilon Z
    (1)  the batch: s_i ~ Poisson(chi c_i C M^2 + (Delta_i + c_i M) / 2)
    (2)  log r = sum_i s_i 2 artanh(-Delta_i / (c_i M (1 + 2 chi C M)))
                 + (log p(theta') - log p(theta)) / T
    accept theta' if log u < log r

A Langevin move follows the gradient of a batch B of fixed size, drawn uniformly without
replacement. Each B, and a random choice of it, leaves the target unchanged:

    (3)  g_B(theta) = (N/|B| sum_B grad log p(x_i|theta) + grad log p(theta)) / T
         theta' and log q(theta' -> theta) - log q(theta -> theta') by (1) of
         `bounded.py`, with g = g_B(theta) and g' = g_B(theta'); log r has this term,
         too

(1) is drawn from a Poisson process of rate chi C^2 M^2 + C M: an arrival of example i
stays with the probability of its share of chi c_i C M^2 + c_i M. It is exact since on
the way back from theta' the counts have the rates of -Delta_i. The two probabilities of
the same counts differ by the factor (2), up to exp(sum_i Delta_i), which is the
likelihood's own ratio.

| paper             | name            | shape           | unit              |
|-------------------|-----------------|-----------------|-------------------|
| c_i               | `bounds`        | (N,)            | nats / weight     |
| C                 | `total`         | float           | nats / weight     |
| chi               | `chi`           | float           | examples / nats^2 |
| M                 | `distance`      | (K,)            | weights           |
| C M               | `reach`         | (K,), (K, 1)    | nats              |
| 1 + 2 chi C M     | `far`           | (K, 1)          | 1                 |
| Delta_i / (c_i M) | `share`         | (K, B)          | 1                 |
| s_i               | `stays` of `bounded.py`, of each arrival | (K, B) | 1 |
| g_B, g_B(theta')  | `gradient`, `new_gradient` | list of tensors | nats / weight |
| size of B         | `gradient_batch_size` | int       | examples          |
"""

import dataclasses
import math
from typing import Self

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import bounded
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.bounded import BoundedWalk
from keras_mhmcmc.samplers.parts.bounded import Walk
from keras_mhmcmc.samplers.parts.tensors import ops

PROPOSALS = ("random_walk", "langevin")

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
    `batch_size` of each chain. In `examples/benchmarks/tuna.py` the chain moves less
    far for each evaluated example than a random walk with a test on all of the data. So
    if all of the data fit into memory, compare with `mh.kernels.hmc`. For a logistic
    regression on many rows try `mh.kernels.smh`.

    A Langevin move (Tuna-SGLD) is theta + epsilon^2/2 g + epsilon Z, with Z normal. The
    gradient g of -U/T is estimated from `gradient_batch_size` examples, drawn anew for
    each step, which count in `batch_size` once for both positions. The density of the
    reverse move uses the same examples, so the kernel stays exact. A noisy gradient
    makes acceptance rare: epsilon times the length of its noise should be below 1.
    Begin Langevin chains near the mode: far from it the moves are long.

    Args:
        learning_rate: epsilon, the standard deviation of the random walk, or of the
            noise of a Langevin move, in units of the position, greater than 0.
        bounds: c_i of each example, nats per unit of the Euclidean distance over all
            tensors, an array (N,) of numbers of at least 0, such as one of `mh.bounds`.
        chi: chi, in examples per square of a nat, greater than 0. A larger one
            evaluates more examples, and accepts more often, like a test on all of the
            data. None gives the chi with chi C M = 3 for a move of typical length,
            sqrt(d) times the learning rate in d dimensions: about 4 C M examples.
        proposal: "random_walk" or "langevin". Defaults to "random_walk".
        gradient_batch_size: examples of the gradient of a Langevin move, from 1 to N.
            None takes all of the data. It must be None for a random walk.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples that a chain evaluates at once, at least 1. It does not
            change the distribution. Defaults to 128.

    Raises:
        ValueError: an argument is outside its range, or `gradient_batch_size` is given
            with a random walk. `mh.sample` raises it if `bounds` or
            `gradient_batch_size` do not fit the data.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> kernel = mh.kernels.tuna(0.05, bounds=mh.bounds.logistic_regression(x))

    Reference: Zhang, Cooper and De Sa (2020), algorithm 2; for Langevin moves, Yuan and
    Wang (2024).
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    bounds: Array
    chi: float | None = None
    proposal: str = "random_walk"
    gradient_batch_size: int | None = None
    temperature: float = 1.0
    block_size: int = 128

    def __post_init__(self) -> None:
        base.check(self, **bounded.WALK, proposal=PROPOSALS)
        base.check(self, chi=base.OrNone(base.POSITIVE))
        size = self.gradient_batch_size
        if size is not None and self.proposal == "random_walk":
            raise ValueError(
                "Argument `gradient_batch_size` must be None with a random walk, which "
                'needs no gradient. Set proposal="langevin", or leave it out. '
                f"Received: gradient_batch_size={_validate.shown(size)}"
            )
        base.check(self, gradient_batch_size=base.OrNone(1))
        base.set_checked(self, bounds=bounded.checked_bounds("bounds", self.bounds))

    @property
    def limits(self) -> list[Array]:
        return [self.bounds]

    @property
    def total(self) -> float:
        """C, over T."""
        return float(self.bounds.sum()) / self.temperature

    def chi_of(self, size: int) -> float:
        """Return chi; by default chi C M is `_CHI_SHARE` for a move of usual length."""
        if self.chi is not None:
            return self.chi
        return _CHI_SHARE / (self.total * self.learning_rate * math.sqrt(size))

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        super().bind_data_size(train_size, batch_size)
        size = self.gradient_batch_size
        if size is not None and train_size is not None and size > train_size:
            raise ValueError(
                "Argument `gradient_batch_size` must be at most the number of examples "
                f"in `data`. Received: gradient_batch_size={size}, and data with "
                f"{train_size} examples"
            )
        return self

    def propose(self, point: base.Position, density: base.Density) -> bounded.Move:
        if self.proposal == "random_walk":
            return self.random_walk(point, density)
        size, rate = self.gradient_batch_size or density.train_size, self.learning_rate
        gradient = self._gradient(point, size, density)
        proposal = bounded.langevin(point, gradient, density.normals(0), rate)
        new_gradient = self._gradient(proposal, size, density)
        move = self.move_to(proposal, point, density)
        delta, like = tensors.subtract(proposal, point), move.log_ratio
        lists = delta, gradient, new_gradient
        log_q_ratio = bounded.langevin_log_ratio(*lists, rate, like=like)
        # Outside the prior's support the gradient may be anything.
        log_q_ratio = ops.where(ops.isfinite(like), log_q_ratio, 0.0)
        return move._replace(
            log_ratio=like + log_q_ratio,
            examples=move.examples + float(size),
            first_block=2,
        )

    def _gradient(
        self, position: base.Position, size: int, density: base.Density
    ) -> base.Position:
        """Return g_B of (3). The noise of part 1 draws the same B at each position."""
        scale = -density.train_size / self.temperature
        return [scale * g for g in density.gradient(position, size, 1)]

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
