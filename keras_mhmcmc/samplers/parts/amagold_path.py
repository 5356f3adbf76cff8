"""AMAGOLD for an optimizer: the path of `amagold.py`, one gradient at a time.

Paper, target and equations are those of `amagold.py`. A step evaluates a gradient at q,
and goes on along the path:

    between two paths   q <- theta + v/2,  rho <- 0, whatever the gradient
    on a path           (1), (2) and (3) of `amagold.py`, with q <- q + v' also at last

The end of a path is q - v/2. Whoever has all of the data evaluates U there, and calls
`judge`. The first path has no state to go back to. So its end becomes the first state,
without a test. So do the ends of all paths that begin in the first `warm_up` steps:
far from the mode, gradients have more noise, and hardly any path would be accepted.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

# Where a chain is.
NOTHING = 0  # there is no state, and no path
SETTLED = 1  # between two paths: the point is the state
FREE = 2  # on a path whose end is not tested
PATH = 3  # on a path from the state


def turned(velocity: base.Position) -> base.Position:
    """Return the velocity of a chain whose path was rejected."""
    return [-v for v in velocity]


class Scalars(NamedTuple):
    """The numbers of (1): v' = keep v - force g + noise Z."""

    keep: Tensor
    force: Tensor
    noise: Tensor


def scalars_of(
    learning_rate: Tensor, momentum: float, temperature: Tensor, train_size: int
) -> Scalars:
    """Return the numbers of (1)."""
    b = (1.0 - momentum) / (1.0 + momentum)
    share = 1.0 / (1.0 + b)
    noise = base.noise_scale(2.0 * b * learning_rate, temperature, train_size)
    return Scalars((1.0 - b) * share, share * learning_rate, share * noise)


def kicked(
    velocity: base.Position,
    gradient: base.Position,
    normals: Sequence[Tensor],
    work: Tensor,
    scalars: Scalars,
    train_size: int,
) -> tuple[base.Position, Tensor]:
    """Return velocity and work after a step, (1) and (2)."""
    # v + (keep - 1) v, since the sum of terms begins with a factor of 1.
    moved = tensors.add_terms(
        velocity,
        (scalars.keep - 1.0, velocity),
        (-scalars.force, gradient),
        (scalars.noise, normals),
    )
    both = tensors.add_scaled(velocity, 1.0, moved)
    return moved, work + 0.5 * train_size * tensors.dot(gradient, both, like=work)


class State(NamedTuple):
    """The point of the path, and the state that the path began from."""

    point: base.Position  # q
    velocity: base.Position  # v, weights per step
    position: base.Position  # theta
    start_velocity: base.Position  # v at the start of the path
    energy: Tensor  # U(theta), nats, ()
    work: Tensor  # rho, nats, ()
    rate: Tensor  # epsilon, weights^2 examples / nat, ()
    stage: Tensor  # int32, ()


class Verdict(NamedTuple):
    """What a test says of the end of a path."""

    accepted: Tensor  # bool
    tested: Tensor  # bool: the path was not free
    finite: Tensor  # bool
    probability: Tensor  # of accepting the end


@dataclasses.dataclass(frozen=True)
class AmagoldPath(base.Diffusion):
    """The steps of AMAGOLD's path; `judge` is its test."""

    learning_rate: base.Rate
    temperature: float
    momentum: float
    warm_up: int = 0

    def __post_init__(self) -> None:
        base.check(self, temperature=base.POSITIVE, momentum=base.SHARE, warm_up=0)

    @property
    def traits(self) -> base.Traits:
        counts = ("accepted", "proposed", "nonfinite", "probability")
        return base.Traits(
            num_uniforms=1,
            counts=counts,
            warm_up=self.warm_up,
            warm_up_argument=("warm_up", self.warm_up),
        )

    def with_warm_up(self, steps: int) -> Self:
        return dataclasses.replace(self, warm_up=steps)

    def init(self, position: base.Position) -> State:
        return State(
            point=position,
            velocity=base.slots_like(position, "velocity"),
            position=base.slots_like(position, "position"),
            start_velocity=base.slots_like(position, "start_velocity"),
            energy=base.Slot("energy"),
            work=base.Slot("work"),
            rate=base.Slot("rate"),
            stage=base.Slot("stage", dtype="int32", value=NOTHING),
        )

    def decide(
        self, state: State, evaluation: base.Evaluation
    ) -> tuple[base.Current, base.Info]:
        if evaluation.restart is not None:
            stage = ops.where(evaluation.restart, NOTHING, state.stage)
            state = state._replace(stage=stage)
        zero = ops.zeros_like(state.work)
        info = base.Info(dict.fromkeys(self.traits.counts, zero))
        return base.Current(state.point, evaluation.gradient, None, state), info

    def move(self, current: base.Current, evaluation: base.Evaluation) -> State:
        state: State = current.auxiliary
        size = evaluation.train_size
        is_new = state.stage == NOTHING
        on_path = state.stage >= FREE
        rate = ops.where(is_new, evaluation.learning_rate, state.rate)
        step = scalars_of(rate, self.momentum, evaluation.temperature, size)
        # The numbers that begin a path: with v as it is, or a fresh one.
        fresh = base.noise_scale(0.5 * rate, evaluation.temperature, size)
        scalars = Scalars(
            ops.where(on_path, step.keep, ops.where(is_new, 0.0, 1.0)),
            ops.where(on_path, step.force, 0.0),
            ops.where(on_path, step.noise, ops.where(is_new, fresh, 0.0)),
        )
        moved = state.velocity, current.gradient, evaluation.normals, state.work
        velocity, work = kicked(*moved, scalars, size)
        drift = ops.where(on_path, 1.0, 0.5)
        is_free = is_new | (evaluation.number < self.warm_up)
        return state._replace(
            point=tensors.add_scaled(current.position, drift, velocity),
            velocity=velocity,
            work=ops.where(on_path, work, ops.zeros_like(work)),
            rate=rate,
            stage=ops.where(on_path, state.stage, ops.where(is_free, FREE, PATH)),
        )

    def end(self, state: State) -> base.Position:
        """Return where the path ends."""
        return tensors.add_scaled(state.point, -0.5, state.velocity)

    def judge(
        self, state: State, end: base.Position, energy: Tensor, uniform: Tensor
    ) -> tuple[State, Verdict]:
        """Accept or reject the end of a path, where U on all of the data is `energy`.

        Return the state between two paths, and what the test said. If a free path has
        ended where U is not finite, there is no state.
        """
        is_free = state.stage == FREE
        log_ratio = (state.energy - energy + state.work) / self.temperature
        log_ratio = ops.where(is_free, ops.zeros_like(log_ratio), log_ratio)
        finite = ops.isfinite(energy) & ops.isfinite(log_ratio)
        wins = finite & (ops.log(uniform) < log_ratio)
        moves = wins | is_free
        back = turned(state.start_velocity)
        velocity = tensors.select(moves, state.velocity, back)
        position = tensors.select(moves, end, state.position)
        stage = ops.where(is_free & ~finite, NOTHING, SETTLED)
        state = State(
            point=position,
            velocity=velocity,
            position=position,
            start_velocity=velocity,
            energy=ops.where(moves, energy, state.energy),
            work=ops.zeros_like(state.work),
            rate=state.rate,
            stage=ops.cast(stage, "int32"),
        )
        safe = ops.where(finite, log_ratio, ops.zeros_like(log_ratio))
        probability = ops.exp(ops.minimum(safe, ops.zeros_like(safe)))
        probability = ops.where(finite, probability, ops.zeros_like(probability))
        return state, Verdict(wins, ~is_free, finite, probability)

    def begin(self, state: State, rate: Tensor, number: int) -> State:
        """Return the state on a path that begins at the position, before step `number`.

        Another rate than the last path's changes the velocity by the ratio of their
        stationary standard deviations.
        """
        stage = FREE if number < self.warm_up else PATH
        factor = ops.sqrt(rate / state.rate)
        velocity = [ops.cast(factor, v.dtype) * v for v in state.velocity]
        return state._replace(
            point=tensors.add_scaled(state.position, 0.5, velocity),
            velocity=velocity,
            start_velocity=velocity,
            work=ops.zeros_like(state.work),
            rate=rate,
            stage=ops.zeros_like(state.stage) + stage,
        )

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        proposed = counts["proposed"]
        return {
            "acceptance": base.share(counts["accepted"], proposed),
            "acceptance_probability": base.share(counts["probability"], proposed),
            "nonfinite": counts["nonfinite"],
        }
