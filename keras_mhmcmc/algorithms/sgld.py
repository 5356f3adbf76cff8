"""Stochastic gradient Langevin dynamics (SGLD).

Paper: Welling and Teh (2011), "Bayesian learning via stochastic gradient Langevin
dynamics", eq. (4). The paper's epsilon_t is 2 epsilon / N here, and its T is 1.

Target: exp(-U(theta)/T), up to the bias of a finite step and of gradient noise. On a
Gaussian with precision L, the second derivative of U, in nats / weight^2, and with
eta = epsilon/N, the variance is T / (L (1 - eta L / 2)). Gradient noise of variance V,
in the gradient of U/N, raises T in this formula to T + epsilon N V / 2.

Equation, with N the number of training examples and Z standard normal:

    theta <- theta - epsilon grad(U/N) + sqrt(2 epsilon T / N) Z

| paper     | name            | shape             | unit                           |
|-----------|-----------------|-------------------|--------------------------------|
| theta     | `position`      | list of tensors   | weights                        |
| grad(U/N) | `gradient`      | list of tensors   | nats per example and weight    |
| epsilon   | `learning_rate` | scalar, () or (K,)| weights^2 examples / nat       |
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


class State(NamedTuple):
    """The state of the chain: its position, and nothing else."""

    point: Position


@dataclasses.dataclass(frozen=True)
class SGLD(Diffusion):
    """Langevin dynamics with the gradient of a mini-batch."""

    learning_rate: Rate | None
    temperature: Rate

    def __post_init__(self) -> None:
        set_checked(
            self,
            learning_rate=rate_or_none(self.learning_rate),
            temperature=checked_temperature(self.temperature, _validate.NOT_NEGATIVE),
        )

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        return Traits()

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position)

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Return the state after one SGLD step."""
        return State(
            sgld_step(
                current.position,
                current.gradient,
                evaluation.normals,
                learning_rate=evaluation.learning_rate,
                temperature=evaluation.temperature,
                train_size=evaluation.train_size,
                multiplier=evaluation.multiplier,
            )
        )


def sgld_step(
    position: Position,
    gradient: Position,
    normals: Sequence[Tensor],
    *,
    learning_rate: Tensor,
    temperature: Tensor,
    train_size: int,
    multiplier: Tensor = 1.0,
) -> Position:
    """Return the next position. `multiplier` scales the gradient alone."""
    noise = noise_scale(learning_rate, temperature, train_size)
    step = -learning_rate * multiplier
    return tensors.add_terms(position, (step, gradient), (noise, normals))
