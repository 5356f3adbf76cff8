"""The Barker test on mini-batches, whose noise takes the place of the test's own.

Paper: Seita, Pan, Chen and Canny (2017), "An efficient minibatch acceptance test for
Metropolis-Hastings", arXiv 1610.06848, algorithm 1.

Target: approximately exp(-U(theta)/T), with U = -sum_i log p(x_i|theta) - log p(theta).
The error of a decision is that of a normal distribution for Delta*, see (5), that of
(2), and 7e-7 of the table. On all of the data the test is Barker's, exact up to the
table. (2) ends batches whose variance is small by chance. If the l_i are skewed, such
batches have a small mean, too, or a large one. With 2,000 exponential l_i, whose sum
has a standard deviation of 2 nats, the test accepts 0.53 of moves with the probability
0.57 (`tests/algorithms/test_growing_batches.py`).

Barker's test accepts with probability 1 / (1 + exp(-Delta)), where
Delta = log r = (sum_i l_i + log p(theta') - log p(theta)) / T. So it accepts if
Delta + X_log > 0, with X_log from the standard logistic distribution. The paper splits
X_log into a normal part and a rest, and lets the noise of an estimate be a share of the
normal part:

    theta' = theta + epsilon Z
    (1)  Delta* = (N lbar + log p(theta') - log p(theta)) / T
    (2)  s_Delta^2 = N^2 v / T^2, with lbar and v of `growing_batch.py`
         the batch grows until s_Delta^2 < sigma^2, and until (5)
    (3)  X_nc ~ N(0, sigma^2 - s_Delta^2), and X_corr from the table
    (4)  accept theta' if Delta* + X_nc + X_corr > 0

where sigma = 1, and N(0, sigma^2) + X_corr has nearly the logistic distribution. If
`max_error` is given, the batch also grows until the bound of the paper's corollary 1,
by how much the distribution of Delta* differs from a normal one, is small enough:

    (5)  (6.4 E|X|^3 + 2 E|X|) / sqrt(n) <= max_error, X = (l_i - c) / s

The table. X_corr takes the values 0, +-0.75, +-1.5, ... Their probabilities minimise
the squared differences between the distribution function of N(0, 1) + X_corr and the
logistic one at 1,401 points from 0 to 35, in float64, under the constraint that none is
negative (Lawson and Hanson 1974, chapter 23). The two functions differ by at most
6.5e-7. A ridge regression on a fine grid has negative probabilities, which would have
to be cut off. No distribution is exact: the characteristic function pi t / sinh(pi t)
of the logistic, over that of the normal, exp(-t^2 / 2), grows without end.

| paper     | name            | shape           | unit    |
|-----------|-----------------|-----------------|---------|
| theta     | `point`         | list of tensors | weights |
| theta'    | `proposal` of `growing_batch.py` | list of tensors | weights |
| epsilon   | `learning_rate` | float           | weights |
| Delta*    | `log_ratio`     | (K,)            | nats    |
| s_Delta^2 | `noise`         | (K,)            | nats^2  |
| sigma     | `SIGMA`         | float           | nats    |
| X_nc      | `normal`        | (K,)            | nats    |
| X_corr    | `correction`    | (K,)            | nats    |
| m         | `block_size`    | int             | examples |
| delta     | `max_error`     | float           | 1       |
| sum of abs(l_i - c), and of its cube | `Powers` | (K,) each | nats, nats^3 |
| T         | `temperature`   | float           | 1       |
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import growing_batch
from keras_mhmcmc.algorithms.bounded import Examples
from keras_mhmcmc.algorithms.growing_batch import Batch
from keras_mhmcmc.algorithms.growing_batch import GrowingWalk
from keras_mhmcmc.algorithms.growing_batch import Move
from keras_mhmcmc.algorithms.transition import Density
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.parts.tensors import ops

SIGMA = 1.0
SPACING = 0.75
# Probability that |X_corr| is 0, 0.75, 1.5, ...
# fmt: off
PROBABILITIES = (
    0.336440979758, 0.282439467479, 0.217857581926, 0.070858324004, 0.057118287643,
    0.013008474274, 0.015256552937, 0.001521697118, 0.004182769795, 0.0,
    0.001022257266, 3.4396235e-05, 0.000157029688, 6.8860732e-05, 0.0, 2.7004131e-05,
    1.354666e-06, 1.397093e-06, 3.090338e-06, 0.0, 0.0, 4.4097e-07, 0.0, 0.0, 8.299e-09,
    2.5646e-08,
)
# fmt: on


class Powers(NamedTuple):
    """Sums over a batch that the bound (5) needs."""

    absolutes: Tensor  # nats, (K,)
    cubes: Tensor  # nats^3, (K,)


class State(NamedTuple):
    """Where the chains are."""

    point: Position


@dataclasses.dataclass(frozen=True)
class Barker(GrowingWalk):
    """The mini-batch Barker test with a random walk as proposal."""

    learning_rate: float
    max_error: float | None
    temperature: float
    block_size: int
    train_size: int | None = None

    def __post_init__(self) -> None:
        self._check_walk()
        if self.max_error is not None:
            error = _validate.number("max_error", self.max_error, _validate.POSITIVE)
            set_checked(self, max_error=error)

    @property
    def num_uniforms(self) -> int:
        """Two for X_nc, and one for X_corr."""
        return 3

    @property
    def limits(self) -> list[Array]:
        """Nothing."""
        return []

    @property
    def arrays(self) -> list[Array]:
        """Return the distribution function of X_corr, for all values but the last."""
        return [correction_table().astype("float32")]

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position)

    def begin(self, state: State, move: Move) -> Powers:
        """Return sums of 0."""
        zero = ops.zeros_like(move.distance)
        return Powers(zero, zero)

    def add(self, batch: Batch, move: Move, examples: Examples) -> Powers:
        """Return the sums with a block of examples."""
        if self.max_error is None:
            return batch.extra
        around = ops.abs(
            growing_batch.centred(
                examples.there - examples.here, batch.centre, examples.arrived
            )
        )
        return Powers(
            batch.extra.absolutes + ops.sum(around, axis=1),
            batch.extra.cubes + ops.sum(around * around * around, axis=1),
        )

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: Density
    ) -> Tensor:
        """Return whether s_Delta^2 < sigma^2, and (5)."""
        small = noise_of(batch, density.train_size, self.temperature) < SIGMA**2
        if self.max_error is None:
            return small
        return small & (normal_error(batch) <= self.max_error)

    def accepts(self, batch: Batch, move: Move, density: Density) -> Tensor:
        """Return the decision (4)."""
        return accepts(
            batch,
            move.prior,
            move.uniforms,
            density.arrays[0],
            density.train_size,
            self.temperature,
        )

    def next_state(self, point: Position, batch: Batch) -> State:
        """Return the state after the decision."""
        return State(point)

    def check(self, state: State) -> None:
        """Accept every state."""


def noise_of(batch: Batch, train_size: int, temperature: float) -> Tensor:
    """Return s_Delta^2 of (2), nats^2, (K,)."""
    scale = (train_size / temperature) ** 2
    return scale * growing_batch.variance(batch, train_size)


def accepts(
    batch: Batch,
    prior: Tensor,
    uniforms: Sequence[Tensor],
    table: Tensor,
    train_size: int,
    temperature: float,
) -> Tensor:
    """Return the decision (4) on a batch with s_Delta^2 < sigma^2, bool, (K,).

    Args:
        batch: the batch.
        prior: log p(theta') - log p(theta), nats, (K,).
        uniforms: two for X_nc and one for X_corr, (K,) each.
        table: that of `correction_table`.
        train_size: N.
        temperature: T.
    """
    log_ratio = train_size * growing_batch.mean(batch) + prior
    log_ratio = log_ratio / temperature
    noise = noise_of(batch, train_size, temperature)
    left = ops.maximum(SIGMA**2 - noise, 0.0)
    radius, angle, place = uniforms
    normal = ops.sqrt(left) * standard_normal(radius, angle)
    return log_ratio + normal + correction(table, place) > 0.0


def normal_error(batch: Batch) -> Tensor:
    """Return the left side of (5), (K,); 0 for examples that do not differ."""
    deviation = ops.sqrt(growing_batch.spread(batch))
    scale = ops.where(deviation > 0.0, deviation, 1.0)
    first = batch.extra.absolutes / (batch.count * scale)
    third = batch.extra.cubes / (batch.count * scale * scale * scale)
    return (6.4 * third + 2.0 * first) / ops.sqrt(batch.count)


def standard_normal(radius: Tensor, angle: Tensor) -> Tensor:
    """Return standard normals of two uniforms, by Box and Muller (1958)."""
    return ops.sqrt(-2.0 * ops.log1p(-radius)) * ops.cos(2.0 * math.pi * angle)


def correction(table: Tensor, uniform: Tensor) -> Tensor:
    """Return X_corr of a uniform, (K,), by the inverse of its distribution function."""
    above = ops.expand_dims(uniform, -1) >= table
    rank = ops.sum(ops.cast(above, "float32"), axis=-1)
    return SPACING * (rank - (len(PROBABILITIES) - 1.0))


def correction_table() -> Array:
    """Return P(X_corr <= x) for all values x but the last, in order, float64."""
    half = np.asarray(PROBABILITIES[1:]) / 2.0
    probabilities = np.concatenate([half[::-1], PROBABILITIES[:1], half])
    return np.cumsum(probabilities / probabilities.sum())[:-1]
