"""AMAGOLD: SGHMC with a test on all of the data at the end of each path.

Paper: Zhang, Cooper and De Sa (2020), "AMAGOLD: amortized Metropolis adjustment for
efficient stochastic gradient MCMC", algorithm 1. The paper's step size is
sqrt(epsilon/N), its momentum is v / sqrt(epsilon/N), and its beta is b over this step.

Target: exp(-U(theta)/T) exactly, at a fixed step, for any gradient noise that does not
depend on the order of the batches: batches drawn independently, or the shuffled batches
of whole epochs.

Equations of a path of n steps, with mu the momentum decay of `sghmc.py`:

    b = (1 - mu) / (1 + mu)
    start   q = theta + v/2,  rho = 0
    (1)     v' = ((1 - b) v - epsilon g + sqrt(4 epsilon b T / N) Z) / (1 + b),
            g = grad(U/N)(q) on a mini-batch
    (2)     rho <- rho + N/2 g . (v + v')
    (3)     q <- q + v'                       (1) to (3) n times, the last (3) with v'/2
    end     log r = (U(theta) - U(q) + rho) / T
            accept (q, v') if log u < log r, else go on from (theta, -v)

Why it is exact: the density of v' given v and the density of -v given -v' have the
ratio exp(-N (|v'|^2 - |v|^2) / (2 epsilon T) - N g . (v + v') / (2 T)). The first part
cancels with the stationary density of v, a normal of variance epsilon T / N, and rho
adds up the second.

| paper   | name            | shape           | unit                           |
|---------|-----------------|-----------------|--------------------------------|
| theta   | `position`      | list of tensors | weights                        |
| q       | `point`         | list of tensors | weights                        |
| v       | `velocity`      | list of tensors | weights per step               |
| epsilon | `learning_rate` | float           | weights^2 examples / nat       |
| mu      | `momentum`      | float           | 1                              |
| rho     | `work`          | () or (K,)      | nats                           |
| U       | `energy`        | () or (K,)      | nats                           |
| g       | `gradient`      | list of tensors | nats per example and weight    |
| n       | `steps_per_test` | int            | steps                          |
| T       | `temperature`   | float           | 1                              |
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms.transition import Density
from keras_mhmcmc.algorithms.transition import Transition
from keras_mhmcmc.samplers.base import SHARE
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import noise_scale
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.base import slots_like
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


class State(NamedTuple):
    """Where the chains are between two paths."""

    point: Position
    velocity: Position
    energy: Tensor  # at the point, (K,)
    has_energy: Tensor  # bool, (): the first path has begun


@dataclasses.dataclass(frozen=True)
class Amagold(Transition):
    """AMAGOLD: a step is a path of gradients and its test."""

    learning_rate: float
    momentum: float
    steps_per_test: int
    temperature: float
    batch_size: int | None = None

    def __post_init__(self) -> None:
        positive = _validate.POSITIVE
        set_checked(
            self,
            learning_rate=_validate.number(
                "learning_rate", self.learning_rate, positive
            ),
            momentum=_validate.number("momentum", self.momentum, SHARE),
            steps_per_test=_validate.integer("steps_per_test", self.steps_per_test, 1),
            temperature=_validate.number("temperature", self.temperature, positive),
        )

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of what a step counts."""
        return ("accepted", "proposed", "nonfinite")

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        """Return the kernel with the size of its mini-batches."""
        if train_size is None:
            return self
        size = train_size if batch_size is None else batch_size
        return dataclasses.replace(self, batch_size=size)

    def init(self, position: Position) -> State:
        """Return the state before the first path."""
        return State(
            position,
            slots_like(position, "velocity"),
            Slot("energy"),
            Slot("has_energy", dtype="bool", value=False, is_shared=True),
        )

    def step(self, state: State, density: Density) -> tuple[State, dict[str, Tensor]]:
        """Follow a path, and accept or reject its end."""
        size = density.train_size
        settings: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
            "temperature": self.temperature,
            "train_size": size,
        }
        fresh = tensors.select(
            state.has_energy,
            state.velocity,
            stationary_velocity(density.normals(0), **settings),
        )
        energy = tensors.cond(
            state.has_energy,
            lambda: state.energy,
            lambda: density.energies(state.point),
        )

        def one(
            part: Tensor, point: Position, velocity: Position, work: Tensor
        ) -> tuple[Tensor, Position, Position, Tensor]:
            gradient = density.gradient(point, self.batch_size or size, part)
            velocity, work = kick(
                velocity, gradient, density.normals(part), work, **settings
            )
            return part + 1, tensors.add_scaled(point, 1.0, velocity), velocity, work

        begin = tensors.add_scaled(state.point, 0.5, fresh)
        path = (1, begin, fresh, ops.zeros_like(energy))
        steps = self.steps_per_test
        path = tensors.loop_while(lambda part, *_: part <= steps, one, path)
        _, end, velocity, work = path
        end = tensors.add_scaled(end, -0.5, velocity)
        new_energy = density.energies(end)
        log_ratio = (energy - new_energy + work) / self.temperature
        finite = ops.isfinite(log_ratio)
        uniform = density.uniforms(1, 1, 0)[0, :, 0]
        wins = finite & (ops.log(uniform) < log_ratio)
        state = State(
            tensors.select(wins, end, state.point),
            tensors.select(wins, velocity, turned(fresh)),
            ops.where(wins, new_energy, energy),
            state.has_energy | True,
        )
        counts = {
            "accepted": wins,
            "proposed": ops.ones_like(energy),
            "nonfinite": ~finite,
        }
        counts = {name: ops.cast(value, "float32") for name, value in counts.items()}
        return state, counts

    def check(self, state: State) -> None:
        """Accept every state."""

    def summary(self, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the share of accepted paths."""
        with np.errstate(invalid="ignore"):
            acceptance = counts["accepted"] / counts["proposed"]
        return {"acceptance": acceptance, "nonfinite": counts["nonfinite"]}


def stationary_velocity(
    normals: Position,
    *,
    learning_rate: float,
    momentum: float,
    temperature: float,
    train_size: int,
) -> Position:
    """Return a velocity from its stationary distribution, variance epsilon T / N."""
    scale = math.sqrt(learning_rate * temperature / train_size)
    return [scale * z for z in normals]


def turned(velocity: Position) -> Position:
    """Return the velocity of a chain whose path was rejected."""
    return [-v for v in velocity]


class Scalars(NamedTuple):
    """The numbers of (1): v' = keep v - force g + noise Z."""

    keep: Tensor
    force: Tensor
    noise: Tensor


def scalars_of(
    *, learning_rate: Tensor, momentum: float, temperature: Tensor, train_size: int
) -> Scalars:
    """Return the numbers of (1)."""
    b = (1.0 - momentum) / (1.0 + momentum)
    share = 1.0 / (1.0 + b)
    noise = noise_scale(2.0 * b * learning_rate, temperature, train_size)
    return Scalars((1.0 - b) * share, share * learning_rate, share * noise)


def kicked(
    velocity: Position,
    gradient: Position,
    normals: Sequence[Tensor],
    work: Tensor,
    scalars: Scalars,
    train_size: int,
) -> tuple[Position, Tensor]:
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


def kick(
    velocity: Position,
    gradient: Position,
    normals: Sequence[Tensor],
    work: Tensor,
    *,
    learning_rate: Tensor,
    momentum: float,
    temperature: Tensor,
    train_size: int,
) -> tuple[Position, Tensor]:
    """Return velocity and work after a step of a path, (1) and (2)."""
    scalars = scalars_of(
        learning_rate=learning_rate,
        momentum=momentum,
        temperature=temperature,
        train_size=train_size,
    )
    return kicked(velocity, gradient, normals, work, scalars, train_size)
