"""Two tests on a batch that grows until it can decide: austerity, and confidence.

Austerity: a sequential t-test on a growing batch in place of the test on all data.

Paper: Korattikara, Chen and Welling (2014), "Austerity in MCMC land: cutting the
Metropolis-Hastings budget", arXiv 1304.5299, algorithm 1.

Target: approximately exp(-U(theta)/T), with U = -sum_i log p(x_i|theta) - log p(theta).
Each look at the batch is wrong with a probability of about epsilon at most, if lbar is
normal. epsilon = 0 reads all of the data at each step: the Metropolis-Hastings test.

Metropolis-Hastings accepts if log u < log r, which is mu > mu_0 for the mean mu of all
l_i = log p(x_i|theta') - log p(x_i|theta). The paper tests mu > mu_0 by a t-test:

    theta' = theta + h Z
    (1)  mu_0 = (T log u - log p(theta') + log p(theta)) / N
    (2)  t = (lbar - mu_0) / sqrt(v), with lbar and v of `growing_batch.py`
    (3)  the batch grows by m examples until 1 - phi_{n-1}(|t|) < epsilon,
         or until it is all of the data
    (4)  accept theta' if lbar > mu_0

phi_k is the distribution function of Student's t with k degrees of freedom. (3) is
|t| > q, with phi_{n-1}(q) = 1 - epsilon. A table has the q of each look, at
n = m, 2m, ... . The paper's v has (N - n) / (N - 1) for (N - n) / N.

| paper   | name            | shape           | unit    |
|---------|-----------------|-----------------|---------|
| theta   | `point`         | list of tensors | weights |
| theta'  | `proposal` of `growing_batch.py` | list of tensors | weights |
| h       | `learning_rate` | float           | weights |
| mu_0    | `threshold`     | (K,)            | nats    |
| epsilon | `epsilon`       | float           | 1       |
| q       | `quantiles`     | (blocks,)       | 1       |
| m       | `block_size`    | int             | examples |
| u       | `uniforms[0]`   | (K,)            | 1       |
| T       | `temperature`   | float           | 1       |

The confidence sampler: a growing batch, until a concentration bound decides.

Papers: Bardenet, Doucet and Holmes (2014), "Towards scaling up Markov chain Monte
Carlo: an adaptive subsampling approach"; Bardenet, Doucet and Holmes (2017), "On Markov
chain Monte Carlo methods for tall data", arXiv 1505.02827.

Target: approximately exp(-U(theta)/T), with U = -sum_i log p(x_i|theta) - log p(theta),
if the bounds hold: |l_i| <= c_i |theta' - theta| for all examples, with
l_i = log p(x_i|theta') - log p(x_i|theta). With a probability of at least 1 - delta the
decision of a step is that of Metropolis-Hastings on all of the data, for any
distribution of the l_i within the bounds.

Equations, with M = |theta' - theta| and C = M max_i c_i:

    theta' = theta + epsilon Z
    (1)  psi = (T log u - log p(theta') + log p(theta)) / N
    (2)  the looks j = 1, 2, ... at a batch of n examples, n doubled from look to look:
         w_j = s sqrt(2 log(3/delta_j) / n) + 6 C log(3/delta_j) / n
         delta_j = (p - 1) / (p j^p) delta, with p = 2
    (3)  the batch grows until |lbar - psi| >= w_j, or until it is all of the data
    (4)  accept theta' if lbar > psi

lbar and s are those of `growing_batch.py`. w_j is the empirical Bernstein bound of
Audibert, Munos and Szepesvari (2009) for independent numbers of a range 2 C. Without
replacement a mean is even closer to its expectation (Hoeffding 1963, theorem 4). The
delta_j sum up to less than delta.

| paper   | name            | shape           | unit          |
|---------|-----------------|-----------------|---------------|
| theta   | `point`         | list of tensors | weights       |
| theta'  | `proposal` of `growing_batch.py` | list of tensors | weights |
| epsilon | `learning_rate` | float           | weights       |
| c_i     | `bounds`        | (N,)            | nats / weight |
| C       | `reach`         | (K,)            | nats          |
| psi     | `threshold`     | (K,)            | nats          |
| delta   | `delta`         | float           | 1             |
| log(3/delta_j) | `levels`; infinity where there is no look | (blocks,) | nats |
| w_j     | `width`         | (K,)            | nats          |
| u       | `uniforms[0]`   | (K,)            | 1             |
| T       | `temperature`   | float           | 1             |
"""

import dataclasses
import math
from typing import NamedTuple
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


class State(NamedTuple):
    """Where the chains are."""

    point: base.Position


@dataclasses.dataclass(frozen=True)
class austerity(GrowingWalk):
    """Make the sequential t-test on mini-batches, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. It needs no bounds. A step draws the uniform of
    Metropolis-Hastings first, which says how large the mean difference of the
    log-likelihoods must be. The batch grows until a t-test can tell on which side the
    mean is, or until it is all of the data.

    A smaller `epsilon` reads more examples and decides wrongly less often. `epsilon=0`
    reads all of the data, and is exact. With a larger one, likelihoods must be
    positive everywhere: an example of likelihood 0 outside the batch is not seen.
    `draws.info` has the mean `batch_size` of each chain.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        epsilon: level of the t-test at each look, in [0, 0.5). Less than 1e-12 counts
            as 0. Defaults to 0.01.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples of the first batch, and by how many it grows, at least 2.
            The t-test needs a nearly normal mean of so many examples. Defaults to 512.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.austerity(0.02, epsilon=0.001)

    Reference: Korattikara, Chen and Welling (2014), "Austerity in MCMC land: cutting
    the Metropolis-Hastings budget", algorithm 1.
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    epsilon: float = 0.01
    temperature: float = 1.0
    block_size: int = 512
    train_size: int | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        self._check_walk()
        epsilon = _validate.number("epsilon", self.epsilon, EPSILON)
        base.set_checked(self, epsilon=epsilon)

    @property
    def num_uniforms(self) -> int:
        return 1

    @property
    def limits(self) -> list[Array]:
        return []

    @property
    def arrays(self) -> list[Array]:
        counts = self.block_size * np.arange(1, self.num_blocks + 1)
        quantiles = student_quantiles(self.epsilon, np.maximum(counts - 1, 1))
        return [quantiles.astype("float32")]

    def init(self, position: base.Position) -> State:
        return State(position)

    def begin(self, state: State, move: Move) -> tuple[()]:
        return ()

    def add(self, batch: Batch, move: Move, examples: Examples) -> tuple[()]:
        return ()

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        away = ops.abs(growing_batch.mean(batch) - self._threshold(move, density))
        deviation = ops.sqrt(growing_batch.variance(batch, density.train_size))
        quantile = density.arrays[0][block]
        return (quantile < math.inf) & (away > quantile * deviation)

    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        return growing_batch.mean(batch) > self._threshold(move, density)

    def _threshold(self, move: Move, density: base.Density) -> Tensor:
        """Return mu_0 of (1), (K,)."""
        return metropolis_threshold(move, self.temperature, density.train_size)

    def next_state(self, point: base.Position, batch: Batch) -> State:
        return State(point)


def metropolis_threshold(move: Move, temperature: float, size: int) -> Tensor:
    """Return mu_0 of (1): the mean l_i above which Metropolis-Hastings accepts, (K,).

    Args:
        move: the proposal, with u as the first of its uniforms.
        temperature: T.
        size: N.
    """
    return (temperature * ops.log(move.uniforms[0]) - move.prior) / size


def student_quantiles(epsilon: float, freedoms: Array) -> Array:
    """Return q with P(t > q) = epsilon for Student's t, float64.

    With t = sqrt(k) tan(a) the density is proportional to cos(a)^(k-1). It is
    integrated from 0 by the rule of Gauss and Legendre, and a is found by bisection.

    Args:
        epsilon: in [0, 1/2). Less than 1e-12 gives infinity.
        freedoms: degrees of freedom k of each quantile, at least 1, (n,).
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
_OPEN_SHARE = _validate.Interval(0.0, 1.0, low_open=True)


class BoundedState(NamedTuple):
    """The position, and the first bound that was exceeded."""

    point: base.Position
    violation: Violation


@dataclasses.dataclass(frozen=True, eq=False)
class confidence(GrowingWalk):
    """Make the confidence sampler, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. With a probability of at least 1 - `delta` a step decides
    as Metropolis-Hastings on all of the data. This holds without any assumption of
    normality. It needs a bound for each example, as `mh.kernels.tuna` does. `mh.bounds`
    has the bounds of common models. A bound that does not hold ends the run with an
    error.

    The batch is doubled until a concentration bound can decide, or until it is all of
    the data. The concentration bound is in proportion to the largest of the `bounds`,
    so the kernel often reads all of the data: look at the mean `batch_size` in
    `draws.info`.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        bounds: c_i of each example, nats per unit of distance, an array (N,) of numbers
            of at least 0. The distance is the Euclidean one over all tensors.
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

    Reference: Bardenet, Doucet and Holmes (2014), "Towards scaling up Markov chain
    Monte Carlo: an adaptive subsampling approach"; Bardenet, Doucet and Holmes (2017),
    "On Markov chain Monte Carlo methods for tall data".
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    bounds: Array
    delta: float = 0.1
    temperature: float = 1.0
    block_size: int = 512
    train_size: int | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        self._check_walk()
        base.set_checked(
            self,
            bounds=bounded.checked_bounds("bounds", self.bounds),
            delta=_validate.number("delta", self.delta, _OPEN_SHARE),
        )

    @property
    def num_uniforms(self) -> int:
        return 1

    @property
    def limits(self) -> list[Array]:
        return [self.bounds]

    @property
    def arrays(self) -> list[Array]:
        arrays = [self.bounds, levels(self.delta, self.num_blocks)]
        return [array.astype("float32") for array in arrays]

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        if train_size is not None and len(self.bounds) != train_size:
            raise ValueError(
                "Argument `bounds` must have one number for each example of `data`. "
                f"Received: {len(self.bounds)} numbers, and {train_size} examples"
            )
        return super().bind_data_size(train_size, batch_size)

    def init(self, position: base.Position) -> BoundedState:
        slots = Violation(
            base.Slot("violating_example", dtype="int32", value=-1),
            base.Slot("violating_value"),
            base.Slot("violated_bound"),
        )
        return BoundedState(position, slots)

    def begin(self, state: BoundedState, move: Move) -> Violation:
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
        width = (
            ops.sqrt(2.0 * level * growing_batch.spread(batch)) + 6.0 * reach * level
        )
        away = ops.abs(growing_batch.mean(batch) - self._threshold(move, density))
        return is_look & (away >= width)

    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        wins = growing_batch.mean(batch) > self._threshold(move, density)
        return wins & (batch.extra.example < 0)

    def _threshold(self, move: Move, density: base.Density) -> Tensor:
        """Return psi of (1), (K,)."""
        return metropolis_threshold(move, self.temperature, density.train_size)

    def next_state(self, point: base.Position, batch: Batch) -> BoundedState:
        return BoundedState(point, batch.extra)

    def check(self, state: BoundedState) -> None:
        """Raise a `ValueError` if a bound was exceeded."""
        bounded.check_violation("bounds", state.violation)


def levels(delta: float, num_blocks: int) -> Array:
    """Return log(3/delta_j) after each block, float64; infinity between the looks.

    Args:
        delta: in (0, 1).
        num_blocks: that make all of the data.
    """
    found = np.full(num_blocks, np.inf)
    looks = range(1, num_blocks.bit_length() + 1)
    for look in looks:  # after 1, 2, 4, ... blocks
        share = (_POWER - 1.0) / (_POWER * look**_POWER)
        found[2 ** (look - 1) - 1] = np.log(3.0 / (share * delta))
    return found
