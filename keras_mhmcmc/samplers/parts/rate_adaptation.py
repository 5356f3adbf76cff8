"""Adapt the learning rate of a Metropolis-Hastings chain to its forward acceptance.

Not in the papers. Along a direction of curvature lambda, a forward step of the rate
epsilon is accepted only if epsilon lambda < 2, whatever beta: see the docs, "Why a
chain of a network freezes". SGD bounces out of such a valley. Metropolis-Hastings
refuses each step, and needs a smaller rate.

The forward proposals come in windows. A window has n proposals, a of them accepted.
With f the factor of the rate, epsilon' = f epsilon:

    f <- max(0.7 f, FLOOR)   if a / n < LOW
    f <- min(1.1 f, 1)       if a / n > HIGH
    n <- min(2 n, steps of an epoch), 16 at first

The first kept sample freezes the factor. At the floor the rate is not what is wrong:
the temperature is too low, or the weights are useless.
"""

import dataclasses
from typing import NamedTuple

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.parts.tensors import ops

FIRST_WINDOW = 16.0
LOW = 0.25
HIGH = 0.5
FALL = 0.7
RISE = 1.1
FLOOR = 1e-3


class State(NamedTuple):
    factor: Tensor  # f, () or (K,), as all of them
    learning_rate: Tensor  # f epsilon of the newest move, weight^2 example/nat
    window: Tensor  # n
    accepted: Tensor  # a
    proposed: Tensor
    adapts: Tensor  # bool: no sample was kept yet


@dataclasses.dataclass(frozen=True)
class RateAdaptation:
    steps: int = 1  # of an epoch, the longest window

    def init(self) -> State:
        return State(
            Slot("rate_factor", value=1.0),
            Slot("adapted_learning_rate"),
            Slot("rate_window", value=FIRST_WINDOW),
            Slot("rate_accepted"),
            Slot("rate_proposed"),
            Slot("rate_adapts", dtype="bool", value=True),
        )

    def update(
        self, state: State, forward: Tensor, accepted: Tensor, proposed: Tensor
    ) -> State:
        """Return the state after one more decision, with a new factor if one is due."""
        counts = ops.cast(forward & proposed & state.adapts, "float32")
        tried = state.proposed + counts
        taken = state.accepted + counts * ops.cast(accepted, "float32")
        ends = tried >= state.window
        share = taken / ops.maximum(tried, 1.0)
        fallen = ops.maximum(FALL * state.factor, FLOOR)
        lower = ops.where(share < LOW, fallen, state.factor)
        higher = ops.minimum(RISE * state.factor, 1.0)
        factor = ops.where(share > HIGH, higher, lower)
        longest = max(float(self.steps), FIRST_WINDOW)
        doubled = ops.minimum(2.0 * state.window, longest)
        return state._replace(
            factor=ops.where(ends, factor, state.factor),
            window=ops.where(ends, doubled, state.window),
            accepted=ops.where(ends, 0.0, taken),
            proposed=ops.where(ends, 0.0, tried),
        )
