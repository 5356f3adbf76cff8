"""Stochastic gradient Hamiltonian Monte Carlo (SGHMC), momentum first.

Paper: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte Carlo",
eq. (15), in the form with momentum decay and without the estimate of gradient noise.
The paper's alpha is 1 - mu here, its eta is epsilon / N, and its T is 1.

Target: exp(-U(theta)/T), up to the bias of a finite step and of gradient noise. On a
Gaussian with precision L, the second derivative of U, in nats / weight^2, and with
eta = epsilon/N, the variance of the position is T / (L (1 - eta L / (2 (1 + mu)))).
Gradient noise of variance V, in the gradient of U/N, raises T in this formula to
T + epsilon N V / (2 (1 - mu)).

Equations, with N the number of training examples and Z standard normal:

    v     <- mu v - epsilon grad(U/N) + sqrt(2 epsilon (1 - mu) T / N) Z
    theta <- theta + v

The momentum moves first: the other order uses a gradient that is one step old, and
doubles the variance at eta L = 0.05, mu = 0.9.

| paper     | name            | shape             | unit                           |
|-----------|-----------------|-------------------|--------------------------------|
| theta     | `position`      | list of tensors   | weights                        |
| v         | `velocity`      | list of tensors   | weights per step               |
| grad(U/N) | `gradient`      | list of tensors   | nats per example and weight    |
| epsilon   | `learning_rate` | scalar, () or (K,)| weights^2 examples / nat       |
| mu        | `momentum`      | float             | 1; alpha is `friction`         |
| T         | `temperature`   | scalar, () or (K,)| 1                              |
| N         | `train_size`    | int               | examples                       |
| Z         | `normals`       | list of tensors   | 1                              |
| eta       | -               | scalar            | weights^2 / nat                |
| L         | -               | scalar            | nats / weight^2                |
| V         | -               | scalar            | (nats per example and weight)^2|
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.base import SHARE
from keras_mhmcmc.algorithms.base import Current
from keras_mhmcmc.algorithms.base import Diffusion
from keras_mhmcmc.algorithms.base import Evaluation
from keras_mhmcmc.algorithms.base import Position
from keras_mhmcmc.algorithms.base import Rate
from keras_mhmcmc.algorithms.base import Traits
from keras_mhmcmc.algorithms.base import checked_temperature
from keras_mhmcmc.algorithms.base import noise_scale
from keras_mhmcmc.algorithms.base import rate_or_none
from keras_mhmcmc.algorithms.base import set_checked
from keras_mhmcmc.algorithms.base import slots_like


class State(NamedTuple):
    """The position and the velocity."""

    point: Position
    velocity: Position


@dataclasses.dataclass(frozen=True)
class SGHMC(Diffusion):
    """Langevin dynamics with momentum."""

    learning_rate: Rate | None
    temperature: Rate
    momentum: float

    def __post_init__(self) -> None:
        set_checked(
            self,
            learning_rate=rate_or_none(self.learning_rate),
            temperature=checked_temperature(self.temperature, _validate.NOT_NEGATIVE),
            momentum=_validate.number("momentum", self.momentum, SHARE),
        )

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        return Traits()

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position, slots_like(position, "velocity"))

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Return the state after one SGHMC step."""
        return State(
            *sghmc_step(
                current.position,
                current.auxiliary.velocity,
                current.gradient,
                evaluation.normals,
                learning_rate=evaluation.learning_rate,
                momentum=self.momentum,
                temperature=evaluation.temperature,
                train_size=evaluation.train_size,
                multiplier=evaluation.multiplier,
            )
        )


def sghmc_step(
    position: Position,
    velocity: Position,
    gradient: Position,
    normals: Sequence[Tensor],
    *,
    learning_rate: Tensor,
    momentum: float,
    temperature: Tensor,
    train_size: int,
    multiplier: Tensor = 1.0,
) -> tuple[Position, Position]:
    """Return the next position and velocity. `multiplier` scales the gradient alone."""
    friction = 1.0 - momentum
    noise = noise_scale(learning_rate * friction, temperature, train_size)
    step = -learning_rate * multiplier
    velocity = tensors.add_terms(
        velocity, (-friction, velocity), (step, gradient), (noise, normals)
    )
    return tensors.add_scaled(position, 1.0, velocity), velocity
