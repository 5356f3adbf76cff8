"""The stochastic gradient Nose-Hoover thermostat: SGHMC whose friction adapts.

Paper: Ding, Fang, Babbush, Chen, Skeel and Neven (2014), "Bayesian sampling using
stochastic gradient thermostats", algorithm 2. Its step is h, its momentum p, its
friction A and its thermostat xi; its T is 1.

Target: exp(-U(theta)/T), up to the bias of a finite step. For small steps the law of
position, velocity and thermostat is, with eta = epsilon / N,

    exp(-U(theta)/T - |v|^2 / (2 eta T) - n (xi - A - B)^2 / (2 gamma)).

Gradient noise of variance V in each weight, in the gradient of U/N, is what a friction
B = epsilon N V / (2 T) would need as noise. The thermostat becomes A + B, and the
position keeps its law. In SGHMC the friction stays A, and T becomes T (A + B) / A.

Equations, with N the number of training examples, n the number of weights of a chain,
and Z standard normal:

    v     <- v - xi v - epsilon grad(U/N) + sqrt(2 epsilon A T / N) Z
    theta <- theta + v
    xi    <- min(xi + gamma ((1 - xi/2) |v|^2 / (n eta T) - 1), 1)

Units. The paper has p <- p - h xi p - h grad(U) + sqrt(2 A h) Z, theta <- theta + h p
and xi <- xi + h (|p|^2/n - 1). With v = h p, epsilon = N h^2, and h xi and h A under
the names xi and A, the first two lines are those above, and the last one is

    xi <- xi + eta (|v|^2 / (n eta) - 1).

So the paper's gamma is eta, which has a unit: the mass of its thermostat is 1. Here
gamma is a number, and eta / gamma is that mass. The law of the position does not depend
on it. Around xi = A, the kinetic energy E = |v|^2 / (n eta T) and the thermostat follow
dE = -2 A (E - 1) - 2 (xi - A), dxi = gamma (E - 1): gamma = A^2 / 2 is the largest one
that does not swing, and the default.

Two things are not in the paper. One is the factor 1 - xi/2, which goes to 1 for small
steps. On a Gaussian with precision L in all directions, a constant xi gives

    var(theta) = (1 - xi/2) var(v) / (eta L).

Without the factor var(v) would be eta T, and the variance of the position 5% too small
at xi = 0.1. With the factor this variance is T / L at any step, if n is large. If B and
L differ from direction to direction, each direction has the variance of SGHMC with the
momentum 1 - xi, and the thermostat keeps the mean over the directions at T:

    var(theta_i) = T (A + B_i) / (xi L_i s_i),  s_i = 1 - eta L_i / (2 (2 - xi)),
    xi = mean of (A + B_i) / s_i.

The other is the limit 1. A step cools most at xi = 1. Above xi = 2 it heats, so the
thermostat would rise without end.

| paper     | name              | shape             | unit                         |
|-----------|-------------------|-------------------|------------------------------|
| theta     | `position`        | list of tensors   | weights                      |
| h p       | `velocity`, v     | list of tensors   | weights per step             |
| h xi      | `thermostat`, xi  | () or (K,)        | 1                            |
| grad(U/N) | `gradient`        | list of tensors   | nats per example and weight  |
| N h^2     | `learning_rate`   | scalar, () or (K,)| weights^2 examples / nat     |
| h A       | `friction`, A     | float             | 1; 1 - `momentum`            |
| -         | `rate`, gamma     | float             | 1                            |
| T         | `temperature`     | scalar, () or (K,)| 1                            |
| N         | `train_size`      | int               | examples                     |
| n         | -                 | int               | weights                      |
| Z         | `normals`         | list of tensors   | 1                            |
| h^2       | eta               | scalar            | weights^2 / nat              |
| -         | L                 | scalar            | nats / weight^2              |
| -         | V                 | scalar            | (nats / (example weight))^2  |
| -         | B                 | scalar            | 1                            |
| -         | s                 | scalar            | 1                            |
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.base import SHARE
from keras_mhmcmc.algorithms.base import Current
from keras_mhmcmc.algorithms.base import Diffusion
from keras_mhmcmc.algorithms.base import Evaluation
from keras_mhmcmc.algorithms.base import Position
from keras_mhmcmc.algorithms.base import Rate
from keras_mhmcmc.algorithms.base import Slot
from keras_mhmcmc.algorithms.base import Traits
from keras_mhmcmc.algorithms.base import checked_temperature
from keras_mhmcmc.algorithms.base import noise_scale
from keras_mhmcmc.algorithms.base import rate_or_none
from keras_mhmcmc.algorithms.base import set_checked
from keras_mhmcmc.algorithms.base import slots_like
from keras_mhmcmc.algorithms.sghmc import velocity_at
from keras_mhmcmc.algorithms.tensors import ops

_UP_TO_ONE = _validate.Interval(0.0, 1.0, high_open=False)
_LARGEST = 1.0  # thermostat: a step that keeps nothing of the velocity


class State(NamedTuple):
    """The position, the velocity, and the friction that adapts."""

    point: Position
    velocity: Position
    thermostat: Tensor  # () or (K,), float32


@dataclasses.dataclass(frozen=True)
class SGNHT(Diffusion):
    """Langevin dynamics with momentum, and a friction that keeps the temperature."""

    learning_rate: Rate | None
    temperature: Rate
    momentum: float
    thermostat_rate: float | None

    def __post_init__(self) -> None:
        set_checked(
            self,
            learning_rate=rate_or_none(self.learning_rate),
            temperature=checked_temperature(self.temperature, _validate.NOT_NEGATIVE),
            momentum=_validate.number("momentum", self.momentum, SHARE),
        )
        if self.thermostat_rate is not None:
            rate = _validate.number(
                "thermostat_rate",
                self.thermostat_rate,
                _UP_TO_ONE,
                hint="None is (1 - momentum)^2 / 2.",
            )
            set_checked(self, thermostat_rate=rate)

    @property
    def friction(self) -> float:
        """The friction without gradient noise, at which the thermostat starts."""
        return 1.0 - self.momentum

    @property
    def rate(self) -> float:
        """The thermostat's rate, also where it follows from the friction."""
        if self.thermostat_rate is None:
            return 0.5 * self.friction**2
        return self.thermostat_rate

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        return Traits(counts_weights="the thermostat")

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        velocity = slots_like(position, "velocity")
        return State(position, velocity, Slot("thermostat", value=self.friction))

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Return the state after one SGNHT step."""
        return State(
            *sgnht_step(
                current.position,
                current.auxiliary.velocity,
                current.auxiliary.thermostat,
                current.gradient,
                evaluation.normals,
                learning_rate=evaluation.learning_rate,
                friction=self.friction,
                rate=self.rate,
                temperature=evaluation.temperature,
                train_size=evaluation.train_size,
                multiplier=evaluation.multiplier,
            )
        )

    def auxiliary_at(
        self, current: Current, before: Current, evaluation: Evaluation
    ) -> State:
        """Return the state with the velocity that belongs to a new position.

        The formula is SGHMC's, with the momentum 1 - xi.
        """
        state = before.auxiliary
        share = 1.0 / (2.0 - state.thermostat)
        velocity = velocity_at(current, before, evaluation, share)
        return state._replace(velocity=velocity)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the thermostat of the last step."""
        return {"thermostat": state.thermostat}


def sgnht_step(
    position: Position,
    velocity: Position,
    thermostat: Tensor,
    gradient: Position,
    normals: Sequence[Tensor],
    *,
    learning_rate: Tensor,
    friction: float,
    rate: float,
    temperature: Tensor,
    train_size: int,
    multiplier: Tensor = 1.0,
) -> tuple[Position, Position, Tensor]:
    """Return the next position, velocity and thermostat.

    `multiplier` scales the gradient alone.
    """
    noise = noise_scale(learning_rate * friction, temperature, train_size)
    step = -learning_rate * multiplier
    velocity = tensors.add_terms(
        velocity, (-thermostat, velocity), (step, gradient), (noise, normals)
    )
    heat = learning_rate * temperature / train_size
    thermostat = next_thermostat(thermostat, velocity, heat, rate)
    return tensors.add_scaled(position, 1.0, velocity), velocity, thermostat


def next_thermostat(
    thermostat: Tensor, velocity: Position, heat: Tensor, rate: float
) -> Tensor:
    """Return the thermostat after a step that has led to `velocity`.

    Args:
        thermostat: friction of that step, () or (K,).
        velocity: after the step.
        heat: eta T, the square that each velocity should have, weights^2, () or (K,).
            Where it is 0 there is no temperature to keep, and the thermostat stays.
        rate: gamma.
    """
    heat = ops.convert_to_tensor(heat, dtype="float32")
    is_hot = heat > 0.0
    size = tensors.size(velocity, like=thermostat)
    squares = tensors.sum_squares(velocity, like=thermostat) / size
    energy = squares / ops.where(is_hot, heat, ops.ones_like(heat))
    change = rate * ((1.0 - 0.5 * thermostat) * energy - 1.0)
    changed = ops.minimum(thermostat + change, _LARGEST)
    return ops.where(is_hot, changed, thermostat)
