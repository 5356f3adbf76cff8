"""Adam, with which expectation stochastic-maximization (ESM) moves the weights.

Paper: Kingma and Ba (2015), "Adam: a method for stochastic optimization", algorithm 1.

Target: none; Adam seeks the least U.

Equations, with k counted from 1 and g = grad(U/N):

    m     <- beta_1 m + (1 - beta_1) g
    v     <- beta_2 v + (1 - beta_2) g^2
    alpha =  alpha_0 sqrt(1 - beta_2^k) / (1 - beta_1^k)
    theta <- theta - alpha m / (sqrt(v) + epsilon_hat)
"""

import dataclasses
from typing import NamedTuple

from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


class State(NamedTuple):
    point: base.Position
    mean: base.Position  # m, nats per example and weight
    square: base.Position  # v, the square of this unit


@dataclasses.dataclass(frozen=True)
class Adam(base.Diffusion):
    learning_rate: base.Rate  # alpha_0, weights
    beta_1: float
    beta_2: float
    epsilon: float  # epsilon_hat, nats per example and weight
    temperature: base.Rate = 0.0

    traits = base.Traits(uses_normals=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check(self, beta_1=base.SHARE, beta_2=base.SHARE, epsilon=base.POSITIVE)

    def init(self, position: base.Position) -> State:
        mean = base.slots_like(position, "mean")
        return State(position, mean, base.slots_like(position, "square"))

    def move(self, current: base.Current, evaluation: base.Evaluation) -> State:
        _, mean, square = current.auxiliary
        change = tensors.subtract(current.gradient, mean)
        mean = tensors.add_scaled(mean, 1.0 - self.beta_1, change)
        change = tensors.subtract([ops.square(g) for g in current.gradient], square)
        square = tensors.add_scaled(square, 1.0 - self.beta_2, change)
        steps = ops.cast(evaluation.number, "float32") + 1.0  # k
        unbiased = ops.sqrt(1.0 - ops.power(self.beta_2, steps)) / (
            1.0 - ops.power(self.beta_1, steps)
        )
        pairs = zip(mean, square, strict=True)
        move = [m / (ops.sqrt(v) + self.epsilon) for m, v in pairs]
        rate = -evaluation.learning_rate * unbiased
        return State(tensors.add_scaled(current.position, rate, move), mean, square)
