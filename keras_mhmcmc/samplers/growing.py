"""Two tests on a batch that grows until it can decide: austerity, and confidence.

Papers: Korattikara, Chen and Welling (2014), "Austerity in MCMC land: cutting the
Metropolis-Hastings budget", arXiv 1304.5299, algorithm 1, for austerity; Bardenet,
Doucet and Holmes (2014), "Towards scaling up Markov chain Monte Carlo: an adaptive
subsampling approach", and (2017), "On Markov chain Monte Carlo methods for tall data",
arXiv 1505.02827, for confidence.

Target: approximately exp(-U(theta)/T), with U = -sum_i log p(x_i|theta) - log p(theta).
Each look of austerity at the batch is wrong with a probability of about epsilon at
most, if lbar is normal. epsilon = 0 reads all of the data at each step: the
Metropolis-Hastings test. With a probability of at least 1 - delta, a step of confidence
decides as Metropolis-Hastings on all of the data, for any distribution of the
l_i = log p(x_i|theta') - log p(x_i|theta) within the bounds |l_i| <= c_i |theta' -
theta|.

Metropolis-Hastings accepts if log u < log r, which is mu > mu_0 for the mean mu of all
l_i. Both tests compare mu_0 with the mean lbar of a batch:

    theta' = theta + h Z
    (1)  mu_0 = (T log u - log p(theta') + log p(theta)) / N
    (2)  austerity grows by m examples until |lbar - mu_0| / sqrt(v) > q,
         phi_{n-1}(q) = 1 - epsilon, or until it is all of the data
    (3)  confidence doubles n from look j to look j + 1 until |lbar - mu_0| >= w_j, or
         until it is all of the data, with C = |theta' - theta| max_i c_i, p = 2 and
         w_j = s sqrt(2 log(3/delta_j) / n) + 6 C log(3/delta_j) / n
         delta_j = (p - 1) / (p j^p) delta
    (4)  accept theta' if lbar > mu_0

lbar, v and s are those of `growing_batch.py`. phi_k is the distribution function of
Student's t with k degrees of freedom, and a table has the q of each look. The paper's v
has (N - n) / (N - 1) for (N - n) / N. w_j is the empirical Bernstein bound of Audibert,
Munos and Szepesvari (2009) for independent numbers of a range 2 C. Without replacement
a mean is even closer to its expectation (Hoeffding 1963, theorem 4). The delta_j sum up
to less than delta.

| paper      | name            | shape           | unit          |
|------------|-----------------|-----------------|---------------|
| h, epsilon | `learning_rate` | float           | weights       |
| mu_0, psi  | `metropolis_threshold` | (K,)     | nats          |
| epsilon    | `epsilon`       | float           | 1             |
| q          | `quantile`      | of each block   | 1             |
| m          | `block_size`    | int             | examples      |
| c_i        | `bounds`        | (N,)            | nats / weight |
| C          | `reach`         | (K,)            | nats          |
| delta      | `delta`         | float           | 1             |
| log(3/delta_j) | `levels`    | of each block   | nats          |
| u          | `uniforms[0]`   | (K,)            | 1             |
"""

import dataclasses
import math
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import bounded
from keras_mhmcmc.samplers.parts import growing_batch
from keras_mhmcmc.samplers.parts.bounded import Examples
from keras_mhmcmc.samplers.parts.bounded import Violation
from keras_mhmcmc.samplers.parts.growing_batch import Batch
from keras_mhmcmc.samplers.parts.growing_batch import GrowingWalk
from keras_mhmcmc.samplers.parts.growing_batch import Move
from keras_mhmcmc.samplers.parts.tensors import ops

# At epsilon = 1/2 the first look would always decide.
EPSILON = _validate.Interval(0.0, 0.5)
_LEAST = 1e-12  # less counts as 0: float64 does not know the tail


@dataclasses.dataclass(frozen=True)
class austerity(GrowingWalk):
    """Make the sequential t-test on mini-batches, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. It needs no bounds. A step draws the uniform of
    Metropolis-Hastings first, which says how large the mean difference of the
    log-likelihoods must be. The batch grows until a t-test can tell on which side the
    mean is, or until it is all of the data. `draws.info` has the mean `batch_size` of
    each chain.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        epsilon: level of the t-test at each look, in [0, 0.5). A smaller one reads more
            examples and decides wrongly less often; 0, or less than 1e-12, reads all of
            the data, and is exact. Otherwise likelihoods must be positive everywhere:
            an example of likelihood 0 outside the batch is not seen. Defaults to 0.01.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples of the first batch, and by how many it grows, at least 2.
            The t-test needs a nearly normal mean of so many examples. Defaults to 512.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.austerity(0.02, epsilon=0.001)

    Reference: Korattikara, Chen and Welling (2014), algorithm 1.
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    epsilon: float = 0.01
    temperature: float = 1.0
    block_size: int = 512
    train_size: int | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        base.check(self, **growing_batch.WALK, epsilon=EPSILON)

    @property
    def arrays(self) -> list[Array]:
        counts = self.block_size * np.arange(1, self.num_blocks + 1)
        quantiles = student_quantiles(self.epsilon, np.maximum(counts - 1, 1))
        return [quantiles.astype("float32")]

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        away = over_threshold(batch, move, self.temperature, density.train_size)
        deviation = ops.sqrt(growing_batch.variance(batch, density.train_size))
        quantile = density.arrays[0][block]
        return (quantile < math.inf) & (ops.abs(away) > quantile * deviation)

    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        size = density.train_size
        threshold = metropolis_threshold(move, self.temperature, size)
        return growing_batch.mean(batch) > threshold


def metropolis_threshold(move: Move, temperature: float, size: int) -> Tensor:
    """Return mu_0 of (1), the mean l_i above which all of the data accept, (K,)."""
    return (temperature * ops.log(move.uniforms[0]) - move.prior) / size


def over_threshold(batch: Batch, move: Move, temperature: float, size: int) -> Tensor:
    """Return lbar - mu_0, nats, (K,)."""
    return growing_batch.mean(batch) - metropolis_threshold(move, temperature, size)


def student_quantiles(epsilon: float, freedoms: Array) -> Array:
    """Return q with P(t > q) = epsilon for Student's t with k degrees of freedom,
    float64.

    With t = sqrt(k) tan(a) the density is proportional to cos(a)^(k-1). It is
    integrated from 0 by the rule of Gauss and Legendre, and a is found by bisection.
    """
    k = np.asarray(freedoms, "float64")
    if epsilon < _LEAST:
        return np.full(k.shape, np.inf)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    # Beyond 10 / sqrt(k) the density is nothing in float64.
    largest = np.minimum(np.pi / 2, 10.0 / np.sqrt(k))

    def mass(angle: Array) -> Array:
        angle = np.minimum(angle, largest)
        sines = np.sin(0.5 * angle[:, None] * (1.0 + nodes))
        # log1p keeps the digits of a cosine near 1.
        density = np.exp(0.5 * (k[:, None] - 1.0) * np.log1p(-np.square(sines)))
        return angle * (density @ weights)

    whole = mass(largest)
    low, high = np.zeros(k.shape), largest
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_low = 0.5 - 0.5 * mass(middle) / whole > epsilon
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return np.sqrt(k) * np.tan(low)


_POWER = 2.0  # p


@dataclasses.dataclass(frozen=True, eq=False)
class confidence(GrowingWalk):
    """Make the confidence sampler, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. With a probability of at least 1 - `delta` a step decides
    as Metropolis-Hastings on all of the data, without any assumption of normality. It
    needs a bound for each example, as `mh.kernels.tuna` does. A bound that does not
    hold ends the run with an error.

    The batch is doubled until a concentration bound can decide, or until it is all of
    the data. The concentration bound is in proportion to the largest of the `bounds`,
    so the kernel often reads all of the data: look at the mean `batch_size` in
    `draws.info`.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        bounds: c_i of each example, as in `mh.kernels.tuna`, an array (N,).
        delta: probability of another decision than that on all of the data, in (0, 1).
            Defaults to 0.1.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples of the first batch, at least 2. Defaults to 512.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> kernel = mh.kernels.confidence(0.05, bounds=mh.bounds.logistic_regression(x))

    Reference: Bardenet, Doucet and Holmes (2014); Bardenet, Doucet and Holmes (2017).
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    bounds: Array
    delta: float = 0.1
    temperature: float = 1.0
    block_size: int = 512
    train_size: int | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        base.check(self, **growing_batch.WALK, delta=base.OPEN_SHARE)
        base.set_checked(self, bounds=bounded.checked_bounds("bounds", self.bounds))

    @property
    def limits(self) -> list[Array]:
        return [self.bounds]

    @property
    def arrays(self) -> list[Array]:
        arrays = [self.bounds, levels(self.delta, self.num_blocks)]
        return [array.astype("float32") for array in arrays]

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        bounded.check_length("bounds", self.bounds, train_size)
        return super().bind_data_size(train_size, batch_size)

    def init(self, position: base.Position) -> bounded.State:
        return bounded.first_state(position)

    def begin(self, state: bounded.State, move: Move) -> Violation:
        return state.violation

    def add(self, batch: Batch, move: Move, examples: Examples) -> Violation:
        bound = examples.limits[0] * ops.expand_dims(move.distance, 1)
        return bounded.bounded_share(examples, bound, batch.extra)[1]

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        level = density.arrays[1][block]
        is_look = level < math.inf
        level = level / ops.maximum(batch.count, 1.0)
        reach = float(self.bounds.max()) * move.distance
        root = ops.sqrt(2.0 * level * growing_batch.spread(batch))
        away = over_threshold(batch, move, self.temperature, density.train_size)
        return is_look & (ops.abs(away) >= root + 6.0 * reach * level)

    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        size = density.train_size
        wins = growing_batch.mean(batch) > metropolis_threshold(
            move, self.temperature, size
        )
        return wins & (batch.extra.example < 0)

    def next_state(self, point: base.Position, batch: Batch) -> bounded.State:
        return bounded.State(point, batch.extra)

    def check(self, state: bounded.State) -> None:
        bounded.check_violation("bounds", state.violation)


def levels(delta: float, num_blocks: int) -> Array:
    """Return log(3/delta_j) after each block, float64; infinity between the looks."""
    found = np.full(num_blocks, np.inf)
    looks = range(1, num_blocks.bit_length() + 1)
    for look in looks:  # after 1, 2, 4, ... blocks
        share = (_POWER - 1.0) / (_POWER * look**_POWER)
        found[2 ** (look - 1) - 1] = np.log(3.0 / (share * delta))
    return found
