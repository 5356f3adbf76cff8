"""The stochastic gradient Nose-Hoover thermostat: SGHMC whose friction adapts.

Paper: Ding, Fang, Babbush, Chen, Skeel and Neven (2014), "Bayesian sampling using
stochastic gradient thermostats", algorithm 2. Its step is h, its momentum p, its
friction A and its thermostat xi; its T is 1.

Target: exp(-U(theta)/T), up to the bias of a finite step. For small steps the law of
position, velocity and thermostat is, with eta = epsilon / N,

    exp(-U(theta)/T - |v|^2 / (2 eta T) - n (xi - A - B)^2 / (2 gamma)).

Gradient noise of variance V in each weight, in the gradient of U/N, is what a friction
B = epsilon N V / (2 T) would need as noise. The thermostat becomes A + B.

Equations, with n the number of weights of a chain:

    v     <- v - xi v - epsilon grad(U/N) + sqrt(2 epsilon A T / N) Z
    theta <- theta + v
    xi    <- min(xi + gamma ((1 - xi/2) |v|^2 / (n eta T) - 1), 1)

With v = h p, epsilon = N h^2, and h xi and h A under the names xi and A, these are the
paper's, up to 1 - xi/2 and the limit 1; its gamma is eta. Around xi = A, the kinetic
energy E and the thermostat follow dE = -2 A (E - 1) - 2 (xi - A), dxi = gamma (E - 1):
gamma = A^2 / 2, the default, is the largest that does not swing.

Not in the paper is the factor 1 - xi/2. On a Gaussian with precision L in all
directions, a constant xi gives var(theta) = (1 - xi/2) var(v) / (eta L). With the
factor this variance is T / L at any step, if n is large. If B and L differ from
direction to direction, each has the variance of SGHMC with the momentum 1 - xi, and the
thermostat keeps the mean over the directions at T:

    var(theta_i) = T (A + B_i) / (xi L_i s_i),  s_i = 1 - eta L_i / (2 (2 - xi)),
    xi = mean of (A + B_i) / s_i.

Above xi = 2 a step heats, so the thermostat would rise without end: hence the limit.

| paper     | name              | shape             | unit                         |
|-----------|-------------------|-------------------|------------------------------|
| h p       | `velocity`, v     | list of tensors   | weights per step             |
| h xi      | `thermostat`, xi  | () or (K,)        | 1                            |
| N h^2     | `learning_rate`   | scalar, () or (K,)| weights^2 examples / nat     |
| h A       | `friction`, A     | float             | 1; 1 - `momentum`            |
| -         | `rate`, gamma     | float             | 1                            |
"""

import dataclasses
from typing import Any
from typing import Literal
from typing import NamedTuple

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.samplers.sghmc import velocity_at

_UP_TO_ONE = _validate.Interval(0.0, 1.0, high_open=False)  # and 0
_LARGEST = 1.0  # thermostat: a step that keeps nothing of the velocity


class State(NamedTuple):
    point: base.Position
    velocity: base.Position
    thermostat: Tensor  # () or (K,), float32


@dataclasses.dataclass(frozen=True)
class sgnht(base.Diffusion):
    """Make the stochastic gradient Nose-Hoover thermostat, a kernel for `mh.sample`.

    It samples exp(-U/T), up to the bias of a finite step. The energy U in nats is minus
    the log density. Each chain has a thermostat, the friction of its next step, which
    rises while the velocities are hotter than T, and falls while they are colder. It
    absorbs gradient noise of unknown size, if the noise is the same in all directions
    and at all positions. Otherwise it absorbs the mean over the weights: directions
    with more noise stay too hot, and others become too cold.

    Let eta = learning_rate / N, let L be the precision of a Gaussian that is the same
    in all directions, and let V be the variance of the gradient of U/N between
    independent mini-batches. For many weights the variance of the samples is T / L, and
    the mean xi of the thermostat solves

        xi (1 - eta L / (2 (2 - xi))) = 1 - momentum + learning_rate N V / (2 T).

    The right side must be below 1. If the thermostat stays at 1 in the diagnostics, the
    samples are too wide: lower the learning rate, or take larger batches. It follows
    the noise in about xi / thermostat_rate steps, which are part of the burn-in. With
    few weights it fluctuates: at eta L = 0.1 the variance of a single weight was 0.4%
    too small at momentum 0.9, 1.6% at 0.8 and 6.3% at 0.6, a bias in 1 / weights.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum. A number of at least
            0, or a schedule.
        momentum: share of the velocity that a step keeps without gradient noise, in
            [0, 1). 1 - momentum is the first value of the thermostat. Defaults to 0.9.
        temperature: T, at least 0, or a schedule. At 0 the thermostat stays as it is,
            and the sampler is SGD with momentum. Defaults to 1, the posterior.
        thermostat_rate: what the thermostat changes by in a step whose velocities are
            twice as hot as T, in [0, 1]. 0 gives SGHMC. The paper has
            learning_rate / N, which is very slow for networks. Defaults to None,
            (1 - momentum)^2 / 2: the fastest one that does not swing.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sgnht(0.01, momentum=0.9)

    Reference: Ding, Fang, Babbush, Chen, Skeel and Neven (2014), algorithm 2.
    """

    learning_rate: base.Rate
    _: dataclasses.KW_ONLY
    momentum: float = 0.9
    temperature: base.Rate = 1.0
    thermostat_rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = base.OrNone(_UP_TO_ONE, "None is (1 - momentum)^2 / 2.")
        base.check(self, momentum=base.SHARE, thermostat_rate=rate)

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

    def init(self, position: base.Position) -> State:
        velocity = base.slots_like(position, "velocity")
        return State(position, velocity, base.Slot("thermostat", value=self.friction))

    def move(self, current: base.Current, now: base.Evaluation) -> State:
        _, velocity, thermostat = current.auxiliary
        rate, size = now.learning_rate, now.train_size
        noise = base.noise_scale(rate * self.friction, now.temperature, size)
        kick, heat = (-rate * now.multiplier, current.gradient), (noise, now.normals)
        velocity = tensors.add_terms(velocity, (-thermostat, velocity), kick, heat)
        square = rate * now.temperature / size
        thermostat = next_thermostat(thermostat, velocity, square, self.rate)
        position = tensors.add_scaled(current.position, 1.0, velocity)
        return State(position, velocity, thermostat)

    def auxiliary_at(
        self, current: base.Current, before: base.Current, evaluation: base.Evaluation
    ) -> State:
        state = before.auxiliary
        share = 1.0 / (2.0 - state.thermostat)  # SGHMC's, for the momentum 1 - xi
        velocity = velocity_at(current, before, evaluation, share)
        return state._replace(velocity=velocity)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        return {"thermostat": state.thermostat}


def next_thermostat(
    thermostat: Tensor, velocity: base.Position, heat: Tensor, rate: float
) -> Tensor:
    """Return the thermostat after a step that has led to `velocity`.

    `heat` is eta T, the square that each velocity should have. Where it is 0 there is
    no temperature to keep, and the thermostat stays.
    """
    heat = ops.convert_to_tensor(heat, dtype="float32")
    is_hot = heat > 0.0
    size = tensors.size(velocity, like=thermostat)
    squares = tensors.sum_squares(velocity, like=thermostat) / size
    energy = squares / ops.where(is_hot, heat, ops.ones_like(heat))
    change = rate * ((1.0 - 0.5 * thermostat) * energy - 1.0)
    changed = ops.minimum(thermostat + change, _LARGEST)
    return ops.where(is_hot, changed, thermostat)


@serializable
class SGNHT(Sampler):
    """Stochastic gradient Nose-Hoover thermostat: SGHMC whose friction adapts.

    It samples exp(-U/T), up to the bias of a finite step, as `mh.kernels.sgnht` says.
    The energy U in nats is train_size * loss - log prior. The sampler keeps one copy of
    the weights, and one number for each chain: the thermostat.

    Other arguments and the errors are those of `mh.kernels.sgnht` and `mh.SGLD`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGNHT(0.01, train_size=1000, momentum=0.9)

    Reference: that of `mh.kernels.sgnht`.
    """

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        momentum: float = 0.9,
        temperature: base.Rate = 1.0,
        thermostat_rate: float | None = None,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sgnht",
        **options: Any,
    ) -> None:
        algorithm = base.of_optimizer(sgnht, locals())
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, nan_policy=nan_policy)
