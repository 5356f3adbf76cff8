"""Preconditioned stochastic gradient Langevin dynamics (pSGLD).

Paper: Li, Chen, Carlson and Carin (2016), "Preconditioned stochastic gradient Langevin
dynamics for deep neural networks", algorithm 1. The paper's epsilon_t is 2 epsilon / N
here, and its T is 1.

Target: exp(-U(theta)/T), up to the bias of a finite step, of gradient noise, and of the
curvature correction Gamma(theta). The correction is left out, as in the paper's
experiments, so the sampled distribution is biased where G changes quickly.

Equations, with N the number of training examples and Z standard normal:

    V     <- alpha V + (1 - alpha) grad(U/N)^2
    G     =  1 / (lambda + sqrt(V))
    theta <- theta - epsilon G grad(U/N) + sqrt(2 epsilon T G / N) Z

V averages the squares of the gradient with the prior, which is part of U.

| paper     | name            | shape             | unit                           |
|-----------|-----------------|-------------------|--------------------------------|
| theta     | `position`      | list of tensors   | weights                        |
| grad(U/N) | `gradient`      | list of tensors   | nats per example and weight    |
| V         | `second_moment` | list of tensors   | (nats per example and weight)^2|
| G         | `scaling`       | list of tensors   | weights examples / nat         |
| alpha     | `decay`         | float             | 1                              |
| lambda    | `epsilon`       | float             | nats per example and weight    |
| epsilon   | `learning_rate` | scalar, () or (K,)| weights                        |
| T         | `temperature`   | scalar, () or (K,)| 1                              |
| N         | `train_size`    | int               | examples                       |
| Z         | `normals`       | list of tensors   | 1                              |
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
from keras_mhmcmc.algorithms.tensors import ops


class State(NamedTuple):
    """The position, and the running mean of squared gradients."""

    point: Position
    second_moment: Position


@dataclasses.dataclass(frozen=True)
class PSGLD(Diffusion):
    """SGLD with a step for each weight, from the root of its mean squared gradient."""

    learning_rate: Rate | None
    temperature: Rate
    decay: float
    epsilon: float

    def __post_init__(self) -> None:
        set_checked(
            self,
            learning_rate=rate_or_none(self.learning_rate),
            temperature=checked_temperature(self.temperature, _validate.NOT_NEGATIVE),
            decay=_validate.number("decay", self.decay, SHARE),
            epsilon=_validate.number("epsilon", self.epsilon, _validate.POSITIVE),
        )

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        return Traits()

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position, slots_like(position, "second_moment"))

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Return the state after one pSGLD step."""
        return State(
            *psgld_step(
                current.position,
                current.auxiliary.second_moment,
                current.gradient,
                evaluation.normals,
                learning_rate=evaluation.learning_rate,
                temperature=evaluation.temperature,
                train_size=evaluation.train_size,
                decay=self.decay,
                epsilon=self.epsilon,
            )
        )


def psgld_step(
    position: Position,
    second_moment: Position,
    gradient: Position,
    normals: Sequence[Tensor],
    *,
    learning_rate: Tensor,
    temperature: Tensor,
    train_size: int,
    decay: float,
    epsilon: float,
) -> tuple[Position, Position]:
    """Return the next position and second moment."""
    squares = [ops.square(g) for g in gradient]
    change = tensors.subtract(squares, second_moment)
    second_moment = tensors.add_scaled(second_moment, 1.0 - decay, change)
    scaling = [1.0 / (epsilon + ops.sqrt(v)) for v in second_moment]

    drift = [g * scale for g, scale in zip(gradient, scaling, strict=True)]
    noise = [z * ops.sqrt(scale) for z, scale in zip(normals, scaling, strict=True)]
    deviation = noise_scale(learning_rate, temperature, train_size)
    position = tensors.add_terms(position, (-learning_rate, drift), (deviation, noise))
    return position, second_moment
