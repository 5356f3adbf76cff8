"""Stochastic gradient Hamiltonian Monte Carlo (SGHMC), with two integrators.

Papers: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte Carlo",
eq. (15), in the form with momentum decay and without the estimate of gradient noise.
The paper's alpha is 1 - mu here, its eta is epsilon / N, and its T is 1. Leimkuhler and
Matthews (2013), "Rational construction of stochastic numerical methods for molecular
sampling", the method BAOAB. The paper's step is sqrt(epsilon / N) here, its friction is
-log(mu) / sqrt(epsilon / N), and its velocity is v / sqrt(epsilon / N).

Target: exp(-U(theta)/T), up to the bias of a finite step and of gradient noise. L is
the precision of a Gaussian, the second derivative of U, in nats / weight^2, and
eta = epsilon/N. V is the variance of gradient noise, in the gradient of U/N. The
variance of the position is then

    euler: (T + epsilon N V / (2 (1 - mu))) / (L (1 - eta L / (2 (1 + mu))))
    baoab: (T + epsilon N V (1 + mu) / (4 (1 - mu) (1 - eta L / 4))) / L

Without gradient noise BAOAB has no bias on a Gaussian, at any stable step. Steps are
stable for eta L < 2 (1 + mu) with "euler", and for eta L < 4 with "baoab".

Equations, with N the number of training examples and Z standard normal, of "euler":

    v     <- mu v - epsilon grad(U/N) + sqrt(2 epsilon (1 - mu) T / N) Z
    theta <- theta + v

The momentum moves first: the other order uses a gradient that is one step old, and
doubles the variance at eta L = 0.05, mu = 0.9.

Equations of "baoab":

    v     <- v - epsilon grad(U/N)
    theta <- theta + v / 2
    v     <- mu v + sqrt(epsilon (1 - mu^2) T / N) Z
    theta <- theta + v / 2

The paper kicks by half a step at the beginning and at the end of a step. The gradients
of both kicks are taken at one position, so they are one kick here. The positions are
the paper's. The velocity of the state is that before a kick.

So position and velocity of the state are not independent. On a Gaussian without
gradient noise, v - a epsilon grad(U/N) is uncorrelated with theta, for a = 1/(1 + mu)
with "euler" and a = 1/2 with "baoab". If theta' from another chain takes the place of
theta, as in replica exchange, the velocity that belongs to it is

    v' = v + a epsilon (grad(U/N)(theta') - grad(U/N)(theta)).

| paper     | name            | shape             | unit                           |
|-----------|-----------------|-------------------|--------------------------------|
| theta     | `position`      | list of tensors   | weights                        |
| v         | `velocity`      | list of tensors   | weights per step               |
| grad(U/N) | `gradient`      | list of tensors   | nats per example and weight    |
| epsilon   | `learning_rate` | scalar, () or (K,)| weights^2 examples / nat       |
| mu        | `momentum`      | float             | 1, kept in a step              |
| T         | `temperature`   | scalar, () or (K,)| 1                              |
| N         | `train_size`    | int               | examples                       |
| Z         | `normals`       | list of tensors   | 1                              |
| a         | `share`         | scalar, () or (K,)| 1                              |
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

INTEGRATORS = ("euler", "baoab")


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
    integrator: str = "euler"

    def __post_init__(self) -> None:
        set_checked(
            self,
            learning_rate=rate_or_none(self.learning_rate),
            temperature=checked_temperature(self.temperature, _validate.NOT_NEGATIVE),
            momentum=_validate.number("momentum", self.momentum, SHARE),
            integrator=_validate.choice("integrator", self.integrator, INTEGRATORS),
        )

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        return Traits()

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position, slots_like(position, "velocity"))

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Return the state after one step."""
        step = baoab_step if self.integrator == "baoab" else sghmc_step
        return State(
            *step(
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

    def auxiliary_at(
        self, current: Current, before: Current, evaluation: Evaluation
    ) -> State:
        """Return the state with the velocity that belongs to a new position."""
        share = 0.5 if self.integrator == "baoab" else 1.0 / (1.0 + self.momentum)
        velocity = velocity_at(current, before, evaluation, share)
        return before.auxiliary._replace(velocity=velocity)


def velocity_at(
    current: Current, before: Current, evaluation: Evaluation, share: Tensor
) -> Position:
    """Return v', the velocity that belongs to a position from another chain."""
    change = tensors.subtract(current.gradient, before.gradient)
    step = share * evaluation.learning_rate * evaluation.multiplier
    return tensors.add_scaled(before.auxiliary.velocity, step, change)


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


def baoab_step(
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
    heat = 0.5 * (1.0 - momentum**2) * learning_rate
    noise = noise_scale(heat, temperature, train_size)
    kicked = tensors.add_terms(velocity, (-learning_rate * multiplier, gradient))
    velocity = tensors.add_terms(kicked, (momentum - 1.0, kicked), (noise, normals))
    return tensors.add_terms(position, (0.5, kicked), (0.5, velocity)), velocity
