"""The Barker test of `barker.py` for networks, one mini-batch at a time.

Paper: Seita, Pan, Chen and Canny (2017), "An efficient minibatch acceptance test for
Metropolis-Hastings", arXiv 1610.06848, algorithm 1. `barker.py` has the equations (1)
to (4), and what the error of a decision is.

Target: approximately exp(-U(theta)/T), with U = -sum_i log p(x_i|theta) - log p(theta).

A step gets one mini-batch of an epoch, with l_i = log p(x_i|theta') - log p(x_i|theta)
of its examples, and adds it to the batch of the test. So the mini-batches of an epoch
since the test began are the growing batch: they are examples without replacement. Then

    decided     s_Delta^2 < sigma^2 and n >= min(n_0, N), or not finite:
                theta <- theta' by (4), or theta stays; n <- 0; d <- epsilon Z
    undecided   theta, theta' and the sums stay; the next mini-batch goes on

with theta' = theta + d. With all of the data s_Delta^2 is 0, and the test is Barker's.
Before the first step d is 0: the first test compares theta with itself.

An epoch may end before a test is decided. Then the sums are dropped (n <- 0), and the
next epoch tests the same theta' anew. s_Delta^2 is the same for the move theta' ->
theta, so both directions are interrupted with the same probability. The paper draws the
batch of each test from all of the data. Here it comes from what the earlier tests of
the epoch have left, so that its error has a small negative correlation with theirs.

| paper     | name            | shape           | unit     |
|-----------|-----------------|-----------------|----------|
| theta     | `point`         | list of tensors | weights  |
| d = theta' - theta | `step` | list of tensors | weights  |
| epsilon   | `Evaluation.learning_rate` | ()   | weights  |
| n         | `count`         | ()              | examples |
| n_0       | `min_examples`  | int             | examples |
| c, n (lbar - c), sum (l_i - c)^2 | `centre`, `total`, `squares` | () | nats, nats^2 |
| T         | `temperature`   | float           | 1        |
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import barker
from keras_mhmcmc.algorithms import growing_batch
from keras_mhmcmc.algorithms.bounded import Examples
from keras_mhmcmc.algorithms.growing_batch import Batch
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Diffusion
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Info
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import Traits
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.base import slots_like
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

_TABLE = tuple(float(x) for x in barker.correction_table())


class State(NamedTuple):
    """The state of the chain, the proposed step, and what its examples have shown."""

    point: Position
    step: Position
    count: Tensor
    centre: Tensor
    total: Tensor
    squares: Tensor


@dataclasses.dataclass(frozen=True)
class BarkerSteps(Diffusion):
    """The Barker test whose batch grows from step to step."""

    learning_rate: None
    temperature: float
    min_examples: int

    def __post_init__(self) -> None:
        set_checked(
            self,
            temperature=_validate.number(
                "temperature", self.temperature, _validate.POSITIVE
            ),
            min_examples=_validate.integer("min_examples", self.min_examples, 2),
        )

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        counts = ("accepted", "proposed", "examples", "nonfinite")
        return Traits(uses_gradient=False, num_uniforms=3, counts=counts)

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(
            point=position,
            step=slots_like(position, "step"),
            count=Slot("count"),
            centre=Slot("centre"),
            total=Slot("total"),
            squares=Slot("squares"),
        )

    def proposal(self, state: State) -> Position:
        """Return theta'."""
        return tensors.add_scaled(state.point, 1.0, state.step)

    def test(
        self,
        state: State,
        here: Tensor,
        there: Tensor,
        prior: Tensor,
        evaluation: Evaluation,
    ) -> tuple[State, Info]:
        """Add a mini-batch to the test, and decide if the batch is large enough.

        Args:
            state: of the chain.
            here: log-likelihoods of the examples at theta, nats, (B,).
            there: the same at theta'.
            prior: log p(theta') - log p(theta), nats, ().
            evaluation: gives the noise, the learning rate, and N.
        """
        size = evaluation.train_size
        zero = ops.zeros_like(state.count)

        def begun(total: Tensor) -> Tensor:  # not that of a dropped test
            return ops.where(state.count > 0.0, total, zero)

        batch = Batch(
            state.count,
            begun(state.centre),
            begun(state.total),
            begun(state.squares),
            (),
        )
        arrived = ops.zeros_like(here) == 0.0  # all of them
        batch = growing_batch.with_block(
            batch, Examples(here, there, [], None, arrived)
        )
        table = tensors.constant(_TABLE, "float32", like=here)
        wins, is_odd = growing_batch.verdict(
            batch,
            prior,
            barker.accepts(
                batch, prior, evaluation.uniforms, table, size, self.temperature
            ),
        )
        is_small = barker.noise_of(batch, size, self.temperature) < barker.SIGMA**2
        is_large = batch.count >= float(min(self.min_examples, size))
        is_finite = ops.isfinite(batch.total) & ops.isfinite(prior)
        decided = (is_small & is_large) | ~is_finite
        wins = wins & decided
        rate = evaluation.learning_rate
        fresh = [ops.cast(rate, z.dtype) * z for z in evaluation.normals]
        count = ops.where(decided, zero, batch.count)
        state = State(
            tensors.select(wins, self.proposal(state), state.point),
            tensors.select(decided, fresh, state.step),
            count,
            batch.centre,
            batch.total,
            batch.squares,
        )
        info = Info(
            {
                "accepted": ops.cast(wins, "float32"),
                "proposed": ops.cast(decided, "float32"),
                "examples": ops.where(decided, batch.count, zero),
                "nonfinite": ops.cast(is_odd & decided, "float32"),
            }
        )
        return state, info

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Return the state as it is: `test` has proposed the next step."""
        return current.auxiliary

    def energy_unit(self, number: int) -> float | None:
        """Return the temperature: differences of this size decide."""
        return self.temperature

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the share of accepted proposals, and the mean size of a batch."""
        with np.errstate(invalid="ignore"):
            acceptance = counts["accepted"] / counts["proposed"]
            size = counts["examples"] / counts["proposed"]
        return {
            "acceptance": acceptance,
            "examples_per_test": size,
            "nonfinite": counts["nonfinite"],
        }
