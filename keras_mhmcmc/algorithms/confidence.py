"""The confidence sampler: a growing batch, until a concentration bound decides.

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
from keras_mhmcmc.algorithms import bounded
from keras_mhmcmc.algorithms import growing_batch
from keras_mhmcmc.algorithms.austerity import metropolis_threshold
from keras_mhmcmc.algorithms.bounded import Examples
from keras_mhmcmc.algorithms.bounded import Violation
from keras_mhmcmc.algorithms.growing_batch import Batch
from keras_mhmcmc.algorithms.growing_batch import GrowingWalk
from keras_mhmcmc.algorithms.growing_batch import Move
from keras_mhmcmc.algorithms.transition import Density
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.parts.tensors import ops

_POWER = 2.0  # p
_OPEN_SHARE = _validate.Interval(0.0, 1.0, low_open=True)


class State(NamedTuple):
    """The position, and the first bound that was exceeded."""

    point: Position
    violation: Violation


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence(GrowingWalk):
    """The confidence sampler with a random walk as proposal."""

    learning_rate: float
    bounds: Array
    delta: float
    temperature: float
    block_size: int
    train_size: int | None = None

    def __post_init__(self) -> None:
        self._check_walk()
        set_checked(
            self,
            bounds=bounded.checked_bounds("bounds", self.bounds),
            delta=_validate.number("delta", self.delta, _OPEN_SHARE),
        )

    @property
    def num_uniforms(self) -> int:
        """One, the u of Metropolis-Hastings."""
        return 1

    @property
    def limits(self) -> list[Array]:
        """The bounds c_i."""
        return [self.bounds]

    @property
    def arrays(self) -> list[Array]:
        """Return the bounds, and the level of each look."""
        arrays = [self.bounds, levels(self.delta, self.num_blocks)]
        return [array.astype("float32") for array in arrays]

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        """Return the kernel, if it has a bound for each example."""
        if train_size is not None and len(self.bounds) != train_size:
            raise ValueError(
                "Argument `bounds` must have one number for each example of `data`. "
                f"Received: {len(self.bounds)} numbers, and {train_size} examples"
            )
        return super().bind_data_size(train_size, batch_size)

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        slots = Violation(
            Slot("violating_example", dtype="int32", value=-1),
            Slot("violating_value"),
            Slot("violated_bound"),
        )
        return State(position, slots)

    def begin(self, state: State, move: Move) -> Violation:
        """Return the violation so far."""
        return state.violation

    def add(self, batch: Batch, move: Move, examples: Examples) -> Violation:
        """Return the violation, with the first example of a block that exceeds."""
        bound = examples.limits[0] * ops.expand_dims(move.distance, 1)
        return bounded.bounded_share(examples, bound, batch.extra)[1]

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: Density
    ) -> Tensor:
        """Return whether the bound decides, (3)."""
        level = density.arrays[1][block]
        is_look = level < math.inf
        level = level / ops.maximum(batch.count, 1.0)
        reach = float(self.bounds.max()) * move.distance
        width = (
            ops.sqrt(2.0 * level * growing_batch.spread(batch)) + 6.0 * reach * level
        )
        away = ops.abs(growing_batch.mean(batch) - self._threshold(move, density))
        return is_look & (away >= width)

    def accepts(self, batch: Batch, move: Move, density: Density) -> Tensor:
        """Return the decision (4); nothing is accepted after a violation."""
        wins = growing_batch.mean(batch) > self._threshold(move, density)
        return wins & (batch.extra.example < 0)

    def _threshold(self, move: Move, density: Density) -> Tensor:
        """Return psi of (1), (K,)."""
        return metropolis_threshold(move, self.temperature, density.train_size)

    def next_state(self, point: Position, batch: Batch) -> State:
        """Return the state after the decision."""
        return State(point, batch.extra)

    def check(self, state: State) -> None:
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
