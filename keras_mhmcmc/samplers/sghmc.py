"""Stochastic gradient Hamiltonian Monte Carlo (SGHMC), with two integrators.

Papers: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte Carlo",
eq. (15), in the form with momentum decay and without the estimate of gradient noise.
The paper's alpha is 1 - mu here, its eta is epsilon / N, and its T is 1. Leimkuhler and
Matthews (2013), "Rational construction of stochastic numerical methods for molecular
sampling", the method BAOAB. The paper's step is sqrt(epsilon / N) here, its friction is
-log(mu) / sqrt(epsilon / N), and its velocity is v / sqrt(epsilon / N).

Target: exp(-U(theta)/T), up to the bias of a finite step and of gradient noise, whose
size is in the docstring of the kernel.

Equations of "euler", and of "baoab":

    v     <- mu v - epsilon grad(U/N) + sqrt(2 epsilon (1 - mu) T / N) Z
    theta <- theta + v

    v     <- v - epsilon grad(U/N)
    theta <- theta + v / 2
    v     <- mu v + sqrt(epsilon (1 - mu^2) T / N) Z
    theta <- theta + v / 2

The momentum moves first: the other order uses a gradient that is one step old, and
doubles the variance at eta L = 0.05, mu = 0.9. The paper of BAOAB kicks by half a step
at the beginning and at the end of a step: one kick here, at the same position. The
velocity of the state is that before a kick.

So position and velocity of the state are not independent. On a Gaussian without
gradient noise, v - a epsilon grad(U/N) is uncorrelated with theta, for a = 1/(1 + mu)
with "euler" and a = 1/2 with "baoab". If theta' from another chain takes the place of
theta, as in replica exchange, the velocity that belongs to it is

    v' = v + a epsilon (grad(U/N)(theta') - grad(U/N)(theta)).

The velocity v, `velocity`, is in weights per step, and mu is `momentum`.
"""

import dataclasses
from typing import Any
from typing import Literal
from typing import NamedTuple

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors

INTEGRATORS = ("euler", "baoab")


class State(NamedTuple):
    point: base.Position
    velocity: base.Position


@dataclasses.dataclass(frozen=True)
class sghmc(base.Diffusion):
    """Make stochastic gradient Hamiltonian Monte Carlo, a kernel for `mh.sample`.

    It samples exp(-U/T), up to the bias of a finite step and of gradient noise. The
    energy U in nats is minus the log density. On a Gaussian, let L be the curvature of
    U in some direction, so that the variance of the target is T / L, and let
    eta = learning_rate / N, mu be the momentum, and V the variance of the gradient of
    U/N over independent mini-batches. Then the variance of the samples is, with
    `integrator="euler"`,

        (T + learning_rate N V / (2 (1 - mu))) / (L (1 - eta L / (2 (1 + mu)))).

    At the same learning rate, the bias of the step is about 1 / (1 + mu) times that of
    SGLD, and the bias of gradient noise is 1 / (1 - mu) times as large. Small batches
    therefore need a small learning rate. With "baoab" the variance is

        (T + learning_rate N V (1 + mu) / (4 (1 - mu) (1 - eta L / 4))) / L.

    So on a Gaussian "baoab" has no bias of the step, and for mu near 1 about the bias
    of gradient noise of "euler". Take it if gradient noise is small: with all of the
    data in each batch. Both need one gradient for each step.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum. A number of at least
            0, or a schedule.
        momentum: share of the velocity that each step keeps, in [0, 1). The friction is
            1 - momentum with "euler", and -log(momentum) in each step with "baoab".
            Defaults to 0.9.
        temperature: T, at least 0, or a schedule. 1 gives the posterior, 0 gives SGD.
            Defaults to 1.
        integrator: "euler" is SGD with momentum, and noise in the velocity. It is
            stable for eta L < 2 (1 + mu). "baoab" moves by half the velocity, applies
            friction and noise, and moves by half the new velocity. It is stable for
            eta L < 4. Over all later steps a gradient moves the weights by
            learning_rate / (1 - mu) times the gradient with "euler", and by
            learning_rate (1 + mu) / (2 (1 - mu)) times with "baoab". Defaults to
            "euler".

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sghmc(0.01, momentum=0.9)

    Reference: Chen, Fox and Guestrin (2014), eq. (15); for "baoab", Leimkuhler and
    Matthews (2013).
    """

    learning_rate: base.Rate
    _: dataclasses.KW_ONLY
    momentum: float = 0.9
    temperature: base.Rate = 1.0
    integrator: str = "euler"

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check(self, momentum=base.SHARE, integrator=INTEGRATORS)

    def init(self, position: base.Position) -> State:
        return State(position, base.slots_like(position, "velocity"))

    def move(self, current: base.Current, evaluation: base.Evaluation) -> State:
        step = self._baoab if self.integrator == "baoab" else self._euler
        return step(current, current.auxiliary.velocity, evaluation)

    def _euler(
        self, current: base.Current, velocity: base.Position, now: base.Evaluation
    ) -> State:
        friction, rate = 1.0 - self.momentum, now.learning_rate
        noise = base.noise_scale(rate * friction, now.temperature, now.train_size)
        kick, heat = (-rate * now.multiplier, current.gradient), (noise, now.normals)
        velocity = tensors.add_terms(velocity, (-friction, velocity), kick, heat)
        return State(tensors.add_scaled(current.position, 1.0, velocity), velocity)

    def _baoab(
        self, current: base.Current, velocity: base.Position, now: base.Evaluation
    ) -> State:
        mu, rate = self.momentum, now.learning_rate
        heat = 0.5 * (1.0 - mu**2) * rate
        noise = base.noise_scale(heat, now.temperature, now.train_size)
        kick = (-rate * now.multiplier, current.gradient)
        kicked = tensors.add_terms(velocity, kick)
        velocity = tensors.add_terms(kicked, (mu - 1.0, kicked), (noise, now.normals))
        halves = (0.5, kicked), (0.5, velocity)
        return State(tensors.add_terms(current.position, *halves), velocity)

    def auxiliary_at(
        self, current: base.Current, before: base.Current, evaluation: base.Evaluation
    ) -> State:
        share = 0.5 if self.integrator == "baoab" else 1.0 / (1.0 + self.momentum)
        velocity = velocity_at(current, before, evaluation, share)
        return before.auxiliary._replace(velocity=velocity)


def velocity_at(
    current: base.Current, before: base.Current, now: base.Evaluation, share: Tensor
) -> base.Position:
    """Return v', the velocity that belongs to a position from another chain."""
    change = tensors.subtract(current.gradient, before.gradient)
    step = share * now.learning_rate * now.multiplier
    return tensors.add_scaled(before.auxiliary.velocity, step, change)


@serializable
class SGHMC(Sampler):
    """Stochastic gradient Hamiltonian Monte Carlo: SGD with momentum and noise.

    It samples exp(-U/T), up to the bias of a finite step and of gradient noise that
    `mh.kernels.sghmc` gives. The energy U in nats is train_size * loss - log prior. The
    sampler keeps one copy of the weights.

    Other arguments and the errors are those of `mh.kernels.sghmc` and `mh.SGLD`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGHMC(0.01, train_size=1000, momentum=0.9)

    Reference: that of `mh.kernels.sghmc`.
    """

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        momentum: float = 0.9,
        temperature: base.Rate = 1.0,
        integrator: str = "euler",
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sghmc",
        **options: Any,
    ) -> None:
        algorithm = base.of_optimizer(sghmc, locals())
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, nan_policy=nan_policy)
