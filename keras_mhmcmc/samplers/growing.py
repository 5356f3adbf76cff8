"""Tests on a batch that grows until it can decide: austerity and confidence.

Papers: Korattikara, Chen and Welling (2014), "Austerity in MCMC land: cutting the
Metropolis-Hastings budget", arXiv 1304.5299, algorithm 1, for austerity; Bardenet,
Doucet and Holmes (2014), "Towards scaling up Markov chain Monte Carlo: an adaptive
subsampling approach", and (2017), "On Markov chain Monte Carlo methods for tall data",
arXiv 1505.02827, for confidence. `barker.py` has a third test on such a batch.

Target: approximately exp(-U(theta)/T), with U = -sum_i log p(x_i|theta) - log p(theta).
Each look of austerity at the batch is wrong with a probability of about epsilon at
most, if lbar is normal. With a probability of at least 1 - delta, a step of confidence
decides as Metropolis-Hastings on all of the data, for any distribution of the l_i
within the bounds |l_i| <= c_i |theta' - theta|.

A step proposes theta' = theta + h Z. Its test estimates the mean of
l_i = log p(x_i|theta') - log p(x_i|theta) from a batch without replacement. The batch
grows by a block of m examples at a time, until it can decide, or until it is all of the
data. With n of N examples,

    lbar = 1/n sum_i l_i
    s^2  = 1/(n-1) sum_i (l_i - lbar)^2
    v    = s^2/n (1 - n/N), an unbiased estimate of the variance of lbar

The sums run over l_i - c, with c the mean of the first block: float32 would lose the
variance of numbers with a large mean.

Metropolis-Hastings accepts if log u < log r, which is mu > mu_0 for the mean mu of all
l_i. Both tests compare mu_0 with lbar:

    (1)  mu_0 = (T log u - log p(theta') + log p(theta)) / N
    (2)  austerity grows by m examples until |lbar - mu_0| / sqrt(v) > q,
         phi_{n-1}(q) = 1 - epsilon, or until it is all of the data
    (3)  confidence doubles n from look j to look j + 1 until |lbar - mu_0| >= w_j, or
         until it is all of the data, with C = |theta' - theta| max_i c_i, p = 2 and
         w_j = s sqrt(2 log(3/delta_j) / n) + 6 C log(3/delta_j) / n
         delta_j = (p - 1) / (p j^p) delta
    (4)  accept theta' if lbar > mu_0

phi_k is the distribution function of Student's t with k degrees of freedom. The paper's
v has (N - n) / (N - 1) for (N - n) / N. w_j is the empirical Bernstein bound of
Audibert, Munos and Szepesvari (2009) for independent numbers of a range 2 C. Without
replacement a mean is even closer to its expectation (Hoeffding 1963, theorem 4).

A proposal outside the prior's support, or with an example of likelihood 0 in the batch,
is rejected, and a position with such an example is left for any other proposal. A
proposal whose prior or likelihood is NaN or +infinity is rejected and counted.

| paper      | name            | shape           | unit          |
|------------|-----------------|-----------------|---------------|
| h          | `learning_rate` | float           | weights       |
| mu_0, psi  | `metropolis_threshold` | (K,)     | nats          |
| q          | `quantile`      | of each block   | 1             |
| m          | `block_size`    | int             | examples      |
| c_i        | `bounds`        | (N,)            | nats / weight |
| C          | `reach`         | (K,)            | nats          |
| log(3/delta_j) | `levels`    | of each block   | nats          |
"""

import abc
import dataclasses
import math
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import bounded
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.bounded import Examples
from keras_mhmcmc.samplers.parts.bounded import Violation
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.samplers.sgld import State

# At epsilon = 1/2 the first look would always decide.
EPSILON = _validate.Interval(0.0, 0.5)
_LEAST = 1e-12  # less counts as 0: float64 does not know the tail


class Batch(NamedTuple):
    """What the examples of a growing batch have shown so far."""

    count: Tensor  # n, examples, float32, (K,)
    centre: Tensor  # c, nats, (K,)
    total: Tensor  # of l_i - c, n (lbar - c), nats, (K,)
    squares: Tensor  # sum of (l_i - c)^2, nats^2, (K,)
    extra: tuple[Any, ...]  # of the state besides the point, with what was seen


class Move(NamedTuple):
    """A proposal, as the test sees it before it has seen an example."""

    prior: Tensor  # log p(theta') - log p(theta), nats, (K,)
    distance: Tensor  # |theta' - theta|, weights, (K,)
    uniforms: list[Tensor]  # the kernel's own, (K,) each


def mean(batch: Batch) -> Tensor:
    """Return lbar, nats, (K,)."""
    return batch.centre + batch.total / ops.maximum(batch.count, 1.0)


def spread(batch: Batch) -> Tensor:
    """Return s^2, nats^2, (K,)."""
    count = ops.maximum(batch.count, 1.0)
    around = batch.squares - batch.total * batch.total / count
    return ops.maximum(around, 0.0) / ops.maximum(batch.count - 1.0, 1.0)


def variance(batch: Batch, train_size: int) -> Tensor:
    """Return v, nats^2, (K,)."""
    left = ops.maximum(1.0 - batch.count / train_size, 0.0)
    return spread(batch) / ops.maximum(batch.count, 1.0) * left


@dataclasses.dataclass(frozen=True, eq=False)
class GrowingWalk(base.ExampleTest):
    """Abstract: a random walk whose test reads a batch that grows until it can decide.

    Its state is a named tuple with the field `point`.
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    temperature: float = 1.0
    block_size: int = 512  # m
    train_size: int | None = dataclasses.field(default=None, init=False)

    num_uniforms: ClassVar[int] = 1  # that the test of a chain and step needs

    def __post_init__(self) -> None:
        base.check(self, learning_rate=base.POSITIVE, temperature=base.POSITIVE)
        base.check(self, block_size=2)

    @property
    def limits(self) -> list[Array]:
        """Bounds of the examples, (N,) each: the first of `arrays`."""
        return []

    def init(self, position: base.Position) -> Any:
        return State(position)

    def add(self, batch: Batch, move: Move, examples: Examples) -> Any:
        """Return `Batch.extra` with a block that all other fields of `batch` have."""
        return batch.extra

    @abc.abstractmethod
    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        """Return whether the batch with this block, from 0, is large enough, (K,)."""

    @abc.abstractmethod
    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        """Return the decision on a batch that is large enough, bool, (K,)."""

    @property
    def num_blocks(self) -> int:
        return -(-(self.train_size or 1) // self.block_size)

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        if batch_size is not None:
            raise ValueError(
                "Argument `batch_size` must be left out: the mini-batch of the kernel "
                "grows until its test can decide. Set `block_size` of the kernel, by "
                f"how many examples it grows. Received: batch_size={batch_size}"
            )
        size = train_size or 1
        return base.bound(self, train_size=size, block_size=min(self.block_size, size))

    def step(
        self, state: Any, density: base.Density
    ) -> tuple[Any, base.Position, dict[str, Tensor]]:
        size, block_size = density.train_size, self.block_size
        own, rounds = self.num_uniforms, batches.num_rounds(size)
        uniforms = density.uniforms(own + rounds, 1, 0)[:, :, 0]
        noise = density.normals(0)
        proposal = tensors.add_scaled(state.point, self.learning_rate, noise)
        prior = density.log_prior(proposal) - density.log_prior(state.point)
        moved = tensors.subtract(proposal, state.point)
        distance = ops.sqrt(tensors.sum_squares(moved, like=prior))
        move = Move(prior, distance, ops.unstack(uniforms[:own], own))

        def one_block(block: Tensor, is_open: Tensor, batch: Batch) -> Any:
            places = block * block_size + ops.arange(block_size, dtype="int32")
            inside = ops.minimum(places, size - 1)
            order = batches.permuted(uniforms[own:], size, inside)
            arrived = ops.expand_dims(places < size, 0) & ops.expand_dims(is_open, 1)
            here, there = density.log_likelihoods([state.point, proposal], order)
            rows = tensors.gather(density.arrays[: len(self.limits)], order)
            examples = Examples(here, there, rows, order, arrived)
            batch = with_block(batch, examples)
            batch = batch._replace(extra=self.add(batch, move, examples))
            is_open = is_open & ops.isfinite(batch.total)
            is_open = is_open & ~self.is_decided(batch, move, block, density)
            return block + 1, is_open & ((block + 1) * block_size < size), batch

        zero = ops.zeros_like(distance)
        first = 0, ops.isfinite(prior), Batch(zero, zero, zero, zero, state[1:])
        *_, batch = tensors.loop_while(
            lambda block, is_open, batch: ops.any(is_open), one_block, first
        )
        wins, is_odd = verdict(batch, prior, self.accepts(batch, move, density))
        proposed = ops.ones_like(distance)
        counts = dict(accepted=wins, proposed=proposed, examples=batch.count)
        counts = base.counted(**counts, nonfinite=is_odd)
        point = tensors.select(wins, proposal, state.point)
        return type(state)(point, *batch.extra), list(point), counts


def verdict(batch: Batch, prior: Tensor, accepts: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether the proposal wins, and whether its density is NaN or +infinity.

    `accepts` is the decision of the kernel, which holds for finite numbers.
    """
    possible, likely = ops.isfinite(prior), ops.isfinite(batch.total)
    leaves = batch.total == math.inf  # a position of density 0
    wins = possible & (leaves | (likely & accepts))
    # At -infinity the target is 0: a plain rejection.
    is_zero = (prior == -math.inf) | (batch.total == -math.inf)
    return wins, ~(possible & (likely | leaves)) & ~is_zero


def with_block(batch: Batch, examples: Examples) -> Batch:
    """Return a batch with a block of examples in all fields but `extra`.

    The block of a single chain may have the shape (B,), and the batch the shape ().
    """
    arrived = examples.arrived
    difference = examples.there - examples.here
    # A likelihood of 0 here: the position is left, even if it is 0 there, too.
    difference = ops.where(examples.here == -math.inf, math.inf, difference)
    difference = ops.where(examples.there == math.inf, math.nan, difference)
    difference = ops.where(arrived, difference, 0.0)
    number = ops.sum(ops.cast(arrived, "float32"), axis=-1)
    first = ops.sum(difference, axis=-1) / ops.maximum(number, 1.0)
    first = ops.where(ops.isfinite(first), first, 0.0)
    centre = ops.where(batch.count > 0.0, batch.centre, first)
    around = centred(difference, centre, arrived)
    return batch._replace(
        count=batch.count + number,
        centre=centre,
        total=batch.total + ops.sum(around, axis=-1),
        squares=batch.squares + ops.sum(around * around, axis=-1),
    )


def centred(difference: Tensor, centre: Tensor, arrived: Tensor) -> Tensor:
    """Return l_i - c of a block, and 0 for what is not in the batch, (K, B)."""
    return ops.where(arrived, difference - ops.expand_dims(centre, -1), 0.0)


@dataclasses.dataclass(frozen=True)
class austerity(GrowingWalk):
    """Make the sequential t-test on mini-batches, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. It needs no bounds. The uniform of Metropolis-Hastings
    says how large the mean difference of the log-likelihoods must be. The batch grows
    until a t-test can tell on which side the mean is, or until it is all of the data.
    `draws.info` has the mean `batch_size` of each chain.

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

    _: dataclasses.KW_ONLY
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check(self, epsilon=EPSILON)

    @property
    def arrays(self) -> list[Array]:
        counts = self.block_size * np.arange(1, self.num_blocks + 1)
        quantiles = student_quantiles(self.epsilon, np.maximum(counts - 1, 1))
        return [quantiles.astype("float32")]

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        away = over_threshold(batch, move, self.temperature, density.train_size)
        deviation = ops.sqrt(variance(batch, density.train_size))
        quantile = density.arrays[0][block]
        return (quantile < math.inf) & (ops.abs(away) > quantile * deviation)

    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        size = density.train_size
        threshold = metropolis_threshold(move, self.temperature, size)
        return mean(batch) > threshold


def metropolis_threshold(move: Move, temperature: float, size: int) -> Tensor:
    """Return mu_0 of (1), the mean l_i above which all of the data accept, (K,)."""
    return (temperature * ops.log(move.uniforms[0]) - move.prior) / size


def over_threshold(batch: Batch, move: Move, temperature: float, size: int) -> Tensor:
    return mean(batch) - metropolis_threshold(move, temperature, size)


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

    _: dataclasses.KW_ONLY
    bounds: Array
    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check(self, delta=base.OPEN_SHARE)
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

    def add(self, batch: Batch, move: Move, examples: Examples) -> tuple[Violation]:
        bound = examples.limits[0] * ops.expand_dims(move.distance, 1)
        return bounded.bounded_share(examples, bound, *batch.extra)[1:]

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        level = density.arrays[1][block]
        is_look = level < math.inf
        level = level / ops.maximum(batch.count, 1.0)
        reach = float(self.bounds.max()) * move.distance
        root = ops.sqrt(2.0 * level * spread(batch))
        away = over_threshold(batch, move, self.temperature, density.train_size)
        return is_look & (ops.abs(away) >= root + 6.0 * reach * level)

    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        size = density.train_size
        wins = mean(batch) > metropolis_threshold(move, self.temperature, size)
        return wins & (batch.extra[0].example < 0)

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
