"""Adam, with which expectation stochastic-maximization (ESM) moves the weights.

Paper: Kingma and Ba (2015), "Adam: a method for stochastic optimization", algorithm 1.

Target: none; Adam seeks the least U.

Equations, with k counted from 1 and g = grad(U/N):

    m     <- beta_1 m + (1 - beta_1) g
    v     <- beta_2 v + (1 - beta_2) g^2
    alpha =  alpha_0 sqrt(1 - beta_2^k) / (1 - beta_1^k)
    theta <- theta - alpha m / (sqrt(v) + epsilon_hat)

| paper       | name            | shape              | unit                            |
|-------------|-----------------|--------------------|---------------------------------|
| theta       | `position`      | list of tensors    | weights                         |
| m           | `mean`          | list of tensors    | nats per example and weight     |
| v           | `square`        | list of tensors    | (nats per example and weight)^2 |
| g           | `gradient`      | list of tensors    | nats per example and weight     |
| k - 1       | `number`        | scalar             | steps                           |
| alpha_0     | `learning_rate` | scalar             | weights                         |
| beta_1      | `beta_1`        | float              | 1                               |
| beta_2      | `beta_2`        | float              | 1                               |
| epsilon_hat | `epsilon`       | float              | nats per example and weight     |
"""

import dataclasses
from typing import NamedTuple

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import SHARE
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Diffusion
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Rate
from keras_mhmcmc.samplers.base import Traits
from keras_mhmcmc.samplers.base import checked_learning_rate
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.base import slots_like
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


class State(NamedTuple):
    """The position, and the running means of the gradient and of its square."""

    point: Position
    mean: Position
    square: Position


@dataclasses.dataclass(frozen=True)
class Adam(Diffusion):
    """Adam, which needs no noise."""

    learning_rate: Rate | None
    beta_1: float
    beta_2: float
    epsilon: float
    temperature: Rate = 0.0

    def __post_init__(self) -> None:
        set_checked(
            self,
            learning_rate=checked_learning_rate(self.learning_rate),
            beta_1=_validate.number("beta_1", self.beta_1, SHARE),
            beta_2=_validate.number("beta_2", self.beta_2, SHARE),
            epsilon=_validate.number("epsilon", self.epsilon, _validate.POSITIVE),
        )

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        return Traits(uses_normals=False)

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(
            position, slots_like(position, "mean"), slots_like(position, "square")
        )

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Return the state after one step of Adam."""
        return State(
            *adam_step(
                current.position,
                current.auxiliary.mean,
                current.auxiliary.square,
                current.gradient,
                evaluation.number,
                learning_rate=evaluation.learning_rate,
                beta_1=self.beta_1,
                beta_2=self.beta_2,
                epsilon=self.epsilon,
            )
        )


def adam_step(
    position: Position,
    mean: Position,
    square: Position,
    gradient: Position,
    number: Tensor,
    *,
    learning_rate: Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> tuple[Position, Position, Position]:
    """Return the next position and the two running means."""
    mean = tensors.add_scaled(mean, 1.0 - beta_1, tensors.subtract(gradient, mean))
    squares = [ops.square(g) for g in gradient]
    square = tensors.add_scaled(square, 1.0 - beta_2, tensors.subtract(squares, square))
    steps = ops.cast(number, "float32") + 1.0
    unbiased = ops.sqrt(1.0 - ops.power(beta_2, steps)) / (
        1.0 - ops.power(beta_1, steps)
    )
    move = [m / (ops.sqrt(v) + epsilon) for m, v in zip(mean, square, strict=True)]
    position = tensors.add_scaled(position, -learning_rate * unbiased, move)
    return position, mean, square
