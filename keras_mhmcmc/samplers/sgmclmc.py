"""Microcanonical Langevin Monte Carlo on mini-batches, whose noise turns the velocity.

Papers: Robnik and Seljak (2024), "Fluctuation without dissipation: microcanonical
Langevin Monte Carlo", for the dynamics; Sommer and others (2026), "Can microcanonical
Langevin dynamics leverage mini-batch gradient noise?", for positions that are scaled by
the gradient noise. The rule for the step and its correction are derived here.

Target: exp(-U(theta)/T), up to the bias of a finite step, and of correlated noise.

Let u be the velocity, of length 1 in d dimensions, let f = s grad(U/N) be the gradient
in positions theta / s, and let xi be its noise. A kick and a drift are

    (1)  u     <- (u - h (f + xi) + h sqrt(1 + rho - s^2 V) Z) / |...|
    (2)  theta <- theta + epsilon s u
    (3)  s = 1 / max(sqrt(V), phi sqrt(mean of V)), V the variance of the gradient

Noise that is the same in all directions keeps the velocity uniform on the sphere. So it
sets the scale, and where the floor phi holds, Z brings the rest. Noise of our own, rho
times as much, evens out how the noise of two weights is correlated.

Step. The noise of a kick has the length tau = h sqrt(d (1 + rho)), the tangent of the
angle by which it turns the velocity. It keeps the share a = 1 / sqrt(1 + tau^2) of the
old velocity. Where the force changes slowly, the velocity drifts by -h f a / (1 - a),
and the position diffuses by epsilon^2 s^2 (1 + a) / (2 d (1 - a)) in a step. Their
ratio is the temperature T, in place of its limit for small tau, if

    (4)  epsilon = h (d - 1) (T / N) 2 a / (1 + a)

Noise. Successive batches have independent noise, so that half of the squared difference
of their gradients has the mean V. V starts as the squared gradient of the first step.
During the warm-up

    (5)  V <- V + 2 / (n + 1 + n_0) ((g_n - g_{n-1})^2 / 2 - V)

is a mean that gives late steps more weight. Then V stays as it is, and the state keeps
a running mean of the noise in units of V, `ratio`.

| paper | name            | shape           | unit                             |
|-------|-----------------|-----------------|----------------------------------|
| u     | `velocity`      | list of tensors | 1                                |
| V     | `noise`         | list of tensors | (nats per example and weight)^2  |
| s     | `scale`         | list of tensors | weights examples / nat           |
| tau   | `learning_rate` | () or (K,)      | 1                                |
| rho   | `added_noise`   | float           | 1                                |
| h     | `kick`          | () or (K,)      | 1                                |
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import Self

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.mclmc import normalised
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

FLOOR = 0.1  # phi
FIRST = 10.0  # n_0, steps
MEMORY = 0.01  # of the ratio, for each step
_LEAST = 1e-30  # of a variance


class State(NamedTuple):
    point: base.Position
    velocity: base.Position  # 0 before the first step
    gradient: base.Position  # of the step before
    noise: base.Position
    ratio: Tensor  # () or (K,), float32


@dataclasses.dataclass(frozen=True)
class sgmclmc(base.Diffusion):
    """Make microcanonical Langevin Monte Carlo on mini-batches, for `mh.sample`.

    It samples exp(-U/T), up to the bias of a finite step, and of correlated noise. The
    energy U in nats is minus the log density. The velocity has a constant length. The
    gradient turns it, and so does noise, of mini-batches and of the sampler. The
    warm-up measures the noise of each weight, whose step is then proportional to
    T / (N sqrt(V)), with V the variance of its gradient of U/N between mini-batches:
    large noise and a low temperature make the chain slow.

    The noise of two weights may be correlated, which heats some directions and cools
    others. On a logistic regression of 455 examples with batches of 91, predictions
    spread 1.01 times as much as those of the posterior with `added_noise` 10, and 1.07
    times with 1. With all data in each batch there is no noise: `mh.sample` raises an
    error, and `fit` warns. Use `mh.kernels.mclmc`.

    `noise_ratio` in the diagnostics is the gradient noise of the last hundred steps
    over that of the warm-up. If it is r, the temperature of the chain is wrong by the
    share (r - 1) / (1 + `added_noise`): then take a longer warm-up.

    Args:
        learning_rate: tangent of the angle by which noise turns the velocity in a step.
            A number of at least 0, or a schedule. Defaults to 0.3.
        added_noise: variance of the noise that the sampler adds to each weight, over
            that of mini-batches. At least 0. More of it makes the bias of correlated
            noise smaller, and the chain slower. Defaults to 10.
        warm_up: number of first steps that measure the noise. They are burn-in.
            Defaults to 500.
        temperature: T, greater than 0, or a schedule. 1 gives the posterior. Defaults
            to 1.

    Raises:
        ValueError: an argument is outside its range, or there is only one weight.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sgmclmc(0.3, warm_up=1000)

    Reference: Robnik and Seljak (2024); Sommer and others (2026), "Can microcanonical
    Langevin dynamics leverage mini-batch gradient noise?"
    """

    learning_rate: base.Rate = 0.3
    _: dataclasses.KW_ONLY
    added_noise: float = 10.0
    warm_up: int = 500
    temperature: base.Rate = 1.0

    can_swap = False
    lowest = base.POSITIVE

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check(self, warm_up=1, added_noise=_validate.NOT_NEGATIVE)

    @property
    def traits(self) -> base.Traits:
        return base.Traits(
            needs_batches=True,
            warm_up=self.warm_up,
            warm_up_argument=("warm_up", self.warm_up),
        )

    def bind_weights(self, weights: Sequence[Any], has_chains: bool) -> Self:
        if sum(math.prod(w.shape[1 if has_chains else 0 :]) for w in weights) < 2:
            raise ValueError(
                "SGMCLMC needs at least 2 weights: in one dimension a velocity of "
                "length 1 never turns. Use `mh.SGLD`. Received: 1 weight"
            )
        return self

    def init(self, position: base.Position) -> State:
        return State(
            position,
            base.slots_like(position, "velocity"),
            base.slots_like(position, "gradient"),
            base.slots_like(position, "noise"),
            base.Slot("noise_ratio", value=1.0),
        )

    def move(self, current: base.Current, now: base.Evaluation) -> State:
        state, gradient = current.auxiliary, current.gradient
        differences = tensors.subtract(gradient, state.gradient)
        learns = now.number < self.warm_up
        noise = tensors.when(
            learns,
            lambda noise: learned(noise, gradient, differences, now.number),
            list(state.noise),
        )
        like = state.ratio
        scale, own = scales_of(noise, like, self.added_noise)
        seen = [s * x for s, x in zip(scale, differences, strict=True)]
        known = [s * s * v for s, v in zip(scale, noise, strict=True)]
        found = 0.5 * tensors.sum_squares(seen, like)
        wanted = tensors.dot(known, [ops.ones_like(v) for v in known], like)
        ratio = state.ratio
        ratio = ratio + MEMORY * (found / ops.maximum(wanted, _LEAST) - ratio)
        dimension, tau = tensors.size(noise, like), now.learning_rate
        kick = tau / math.sqrt(dimension * (1.0 + self.added_noise))
        keep = (1.0 + tau * tau) ** -0.5
        share = 2.0 * (dimension - 1) / now.train_size
        step = kick * share * now.temperature * keep / (1.0 + keep)
        force = [s * g for s, g in zip(scale, gradient, strict=True)]
        heat = [s * z for s, z in zip(own, now.normals, strict=True)]
        terms = (-kick * now.multiplier, force), (kick, heat)
        turned = tensors.add_terms(state.velocity, *terms)
        velocity = normalised(turned, state.velocity, like)
        change = [s * u for s, u in zip(scale, velocity, strict=True)]
        point = tensors.add_scaled(current.position, step, change)
        ratio = ops.where(learns, ops.ones_like(ratio), ratio)
        return State(point, velocity, list(gradient), list(noise), ratio)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        return {"noise_ratio": state.ratio}


def learned(
    noise: base.Position,
    gradient: base.Position,
    differences: base.Position,
    number: Tensor,
) -> base.Position:
    """Return V after one more step, eq. (5)."""
    is_first = ops.cast(number < 1, "float32")
    share = 2.0 / (ops.cast(number, "float32") + 1.0 + FIRST)
    halves = [0.5 * ops.square(x) for x in differences]
    terms = ((1.0 - is_first) * share, tensors.subtract(halves, noise))
    begin = [g * g - v for g, v in zip(gradient, noise, strict=True)]
    return tensors.add_terms(noise, terms, (is_first, begin))


def scales_of(
    noise: base.Position, like: Tensor, added: float
) -> tuple[base.Position, base.Position]:
    """Return s, eq. (3), and the deviation of our own noise in units of h."""
    ones = [ops.ones_like(v) for v in noise]
    mean = tensors.dot(noise, ones, like) / tensors.size(noise, like)
    scale, own = [], []
    for variance in noise:
        floor = ops.cast(tensors.along_chains(mean, variance), variance.dtype)
        square = 1.0 / ops.maximum(variance, FLOOR**2 * floor + _LEAST)
        scale.append(ops.sqrt(square))
        own.append(ops.sqrt(1.0 + added - variance * square))
    return scale, own


@serializable
class SGMCLMC(Sampler):
    """Microcanonical Langevin Monte Carlo on mini-batches, as an optimizer.

    It samples exp(-U/T), up to the bias that `mh.kernels.sgmclmc` gives. The energy U
    in nats is train_size * loss - log prior. The sampler keeps three copies of the
    weights.

    Other arguments and the errors are those of `mh.kernels.sgmclmc` and `mh.SGLD`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGMCLMC(0.3, train_size=1000)

    Reference: that of `mh.kernels.sgmclmc`.
    """

    usual_rate = 0.3

    def __init__(
        self,
        learning_rate: base.Rate = 0.3,
        *,
        train_size: int | Literal["auto"] = "auto",
        added_noise: float = 10.0,
        warm_up: int = 500,
        temperature: base.Rate = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sgmclmc",
        **options: Any,
    ) -> None:
        algorithm = base.of_optimizer(sgmclmc, locals())
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, nan_policy=nan_policy)
