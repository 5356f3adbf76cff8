"""Austerity: a sequential t-test on a growing batch in place of the test on all data.

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
"""

import dataclasses
import math
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

# At epsilon = 1/2 the first look would always decide.
EPSILON = _validate.Interval(0.0, 0.5)
_LEAST = 1e-12  # less counts as 0: float64 does not know the tail


class State(NamedTuple):
    """Where the chains are."""

    point: Position


@dataclasses.dataclass(frozen=True)
class Austerity(GrowingWalk):
    """The sequential t-test with a random walk as proposal."""

    learning_rate: float
    epsilon: float
    temperature: float
    block_size: int
    train_size: int | None = None

    def __post_init__(self) -> None:
        self._check_walk()
        epsilon = _validate.number("epsilon", self.epsilon, EPSILON)
        set_checked(self, epsilon=epsilon)

    @property
    def num_uniforms(self) -> int:
        """One, the u of Metropolis-Hastings."""
        return 1

    @property
    def limits(self) -> list[Array]:
        """Nothing."""
        return []

    @property
    def arrays(self) -> list[Array]:
        """Return the quantile of each look."""
        counts = self.block_size * np.arange(1, self.num_blocks + 1)
        quantiles = student_quantiles(self.epsilon, np.maximum(counts - 1, 1))
        return [quantiles.astype("float32")]

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position)

    def begin(self, state: State, move: Move) -> tuple[()]:
        """Return nothing."""
        return ()

    def add(self, batch: Batch, move: Move, examples: Examples) -> tuple[()]:
        """Return nothing."""
        return ()

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: Density
    ) -> Tensor:
        """Return whether the t-test decides, (3)."""
        away = ops.abs(growing_batch.mean(batch) - self._threshold(move, density))
        deviation = ops.sqrt(growing_batch.variance(batch, density.train_size))
        quantile = density.arrays[0][block]
        return (quantile < math.inf) & (away > quantile * deviation)

    def accepts(self, batch: Batch, move: Move, density: Density) -> Tensor:
        """Return the decision (4)."""
        return growing_batch.mean(batch) > self._threshold(move, density)

    def _threshold(self, move: Move, density: Density) -> Tensor:
        """Return mu_0 of (1), (K,)."""
        return metropolis_threshold(move, self.temperature, density.train_size)

    def next_state(self, point: Position, batch: Batch) -> State:
        """Return the state after the decision."""
        return State(point)

    def check(self, state: State) -> None:
        """Accept every state."""


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
