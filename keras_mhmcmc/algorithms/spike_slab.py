"""Spike-and-slab priors whose latent variables are learned by stochastic approximation.

Paper: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
gradient MCMC with a stochastic approximation adaptation", eq. (3) to (17); published as
"An adaptive empirical Bayesian method for sparse deep learning".

Target: given the latent variables rho, kappa, sigma and delta, exp(-U(beta)/T) with U
of eq. (11). At T = 1 it is the posterior under the prior N(0, sigma^2 / kappa). Eq.
(13) to (16) are an EM step. The latent variables move to a fixed point of this step,
averaged over the target. At the fixed point rho is a mean-field quantity, not the
posterior probability of the slab. If there are several fixed points, the start decides.

Equations, with the sums over the p weights of one group, and N examples:

    (11)  U     = U of the data + sum kappa beta^2 / (2 sigma^2) of each group
                  + sum beta^2 / 2 over the other kernels of a network
    (13)  rho   = a_j / (a_j + b_j),   a_j = delta N(beta; 0, sigma^2 v1),
                                       b_j = (1 - delta) N(beta; 0, sigma^2 v0)
    (14)  kappa = (1 - rho) / v0 + rho / v1
    (15)  sigma = sqrt((RSS + sum kappa beta^2 + nu lambda) / (N + p + nu))   regression
          sigma = sqrt((sum kappa beta^2 + nu lambda) / (p + nu + 2))     classification
    (16)  delta = (sum rho + a - 1) / (a + b + p - 2)
    (17)  each  <- (1 - omega) old + omega new

Eq. (13) uses the averaged sigma and delta of the step before. Eq. (14) to (16) take rho
as eq. (13) gives it, like g of the paper's eq. (17). Only eq. (17) averages, once. (The
paper's algorithm 1 overwrites rho and kappa by averages before eq. (15) and (16).) Eq.
(11) takes the averages. In regression sigma is also the noise. There is then one sigma
for all groups, eq. (15) sums over all of them, RSS is the residual sum of squares, and
the energy of the data is RSS / (2 sigma^2).

The state holds q = 1 - rho, the probability of the spike. kappa is affine in q, so the
average of kappa follows from the average of q and needs no copy. If q is tiny, q / v0
is still exact, while a stored rho would have lost the digits of 1 - rho.

| paper         | name            | shape           | unit                            |
|---------------|-----------------|-----------------|---------------------------------|
| beta          | `position`      | list of tensors | weights                         |
| 1 - rho       | `spike`         | list of tensors | 1                               |
| kappa         | -               | list of tensors | 1 / v0                          |
| sigma         | `sigma`         | (..., groups)   | weights, or targets: regression |
| delta         | `delta`         | (..., groups)   | 1                               |
| v0, v1        | `v0`, `v1`      | float           | (weights / sigma)^2             |
| a, b, nu      | `a`, `b`, `nu`  | float           | count                           |
| lambda        | `lam`           | float           | sigma^2                         |
| RSS           | `rss`           | (...)           | targets^2                       |
| omega         | `step_size`     | scalar          | 1                               |
| k             | `number`        | scalar          | steps                           |
| N             | `train_size`    | int             | examples                        |
| p             | `size`          | (groups,)       | count                           |
| N epsilon^(k) | `learning_rate` | scalar, (...)   | weights^2 examples / nat        |
| T = 1 / tau   | `temperature`   | scalar, (...)   | 1                               |

(...) is () for one chain and (K,) for K chains, whose tensors have a leading axis K.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import layer_noise
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Diffusion
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Info
from keras_mhmcmc.samplers.base import OverDiffusion
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Rate
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import Traits
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.schedules import PowerDecay
from keras_mhmcmc.schedules import Schedule

_STEP = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)


class SpikeSlab(NamedTuple):
    """The fixed numbers of the prior."""

    v0: float
    v1: float
    a: float
    b: float
    nu: float
    lam: float
    groups: tuple[int, ...]  # the group of each tensor, counted from 0


class Latents(NamedTuple):
    """The latent variables."""

    spike: Position  # 1 - rho of each sparse tensor
    sigma: Tensor  # (..., groups)
    delta: Tensor  # (..., groups)


class State(NamedTuple):
    """The state of the base, and the latent variables."""

    base: Any  # its first field is `point`
    latents: Latents
    spreads: Any  # of each layer's gradient, (..., layers), or ()


class Auxiliary(NamedTuple):
    """What `decide` hands to `move` besides the position."""

    base: Any
    latents: Latents
    spreads: Any


@dataclasses.dataclass(frozen=True)
class SpikeSlabSampler(OverDiffusion):
    """A diffusion whose prior learns which weights are small: SGLD-SA, SGHMC-SA, ESM.

    In a network only kernels are sparse, and the other kernels have the prior N(0, 1).
    A kernel is a weight with at least two axes that is not called a bias.
    """

    base: Diffusion  # Adam for ESM
    prior: Any  # a `mh.priors.SpikeSlab`, which has numbers and chooses weights
    is_regression: bool  # whether U of the data is RSS / (2 sigma^2)
    step_size: Rate | None  # omega; None is 0.1 (k + 1000)^(-3/4)
    layer_temperatures: bool = False
    is_network: bool = True
    sparse: tuple[int, ...] = ()  # indices of weights, known once the weights are
    normal: tuple[int, ...] = ()  # indices of the weights with the prior N(0, 1)

    def __post_init__(self) -> None:
        step_size = self.step_size
        if step_size is None:
            step_size = PowerDecay(0.1, 1000.0, 0.75)
        elif not isinstance(step_size, Schedule):
            hint = "A `LearningRateSchedule` that falls from at most 1 will do as well."
            step_size = _validate.number("step_size", step_size, _STEP, hint)
        flags = _validate.choice(
            "layer_temperatures", self.layer_temperatures, (True, False)
        )
        set_checked(self, step_size=step_size, layer_temperatures=flags)

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        return self.base.traits._replace(
            uses_energy=self.is_regression, takes_prior=False
        )

    def bind_weights(self, weights: Sequence[Any], has_chains: bool) -> Self:
        """Return the algorithm with the weights that the prior chooses.

        Raises:
            ValueError: the prior chooses none.
        """
        kernels = list(range(len(weights)))
        if self.is_network:
            kernels = self.prior.kernels_of(weights, has_chains)
        sparse = self.prior.choose(weights, kernels)
        normal = [i for i in kernels if self.is_network and i not in sparse]
        return dataclasses.replace(self, sparse=tuple(sparse), normal=tuple(normal))

    def energy_unit(self, number: int) -> None:
        """Return None: the energy decides nothing."""

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        prior, settings = self.prior, self._settings()
        first = prior.initial_inclusion
        first = prior.delta if first is None else first
        groups = (max(settings.groups) + 1,)
        spikes = [
            Slot("spike_probability", tuple(position[i].shape), "float32", 1 - first, i)
            for i in self.sparse
        ]
        latents = Latents(
            spikes,
            Slot("sigma", groups, value=prior.sigma),
            Slot("delta", groups, value=prior.delta),
        )
        spreads: Any = ()
        if self.layer_temperatures:
            nothing = layer_noise.NO_GRADIENT
            spreads = Slot("spreads", (len(position),), value=nothing)
        return State(self.base.init(position), latents, spreads)

    def decide(self, state: State, evaluation: Evaluation) -> tuple[Current, Info]:
        """Learn from the point, and add the priors to its energy and gradient."""
        position, settings = self.base.point(state.base), self._settings()
        gradient, energy = list(evaluation.gradient), evaluation.energy
        latents, weighted = update_latents(
            [position[i] for i in self.sparse],
            state.latents,
            settings,
            step_size=at_step(self.step_size, evaluation.number),
            train_size=evaluation.train_size,
            rss=energy if self.is_regression else None,
        )
        if self.is_regression:
            gradient, energy = of_residuals(gradient, energy, latents)
        for i in self.normal:
            gradient[i] = gradient[i] + (1.0 / evaluation.train_size) * position[i]
        for place, i in enumerate(self.sparse):
            gradient[i] = add_gradient(
                position[i],
                gradient[i],
                latents.spike[place],
                latents.sigma[..., settings.groups[place]],
                settings,
                evaluation.train_size,
            )
        if energy is not None:
            for i in self.normal:
                energy = energy + 0.5 * tensors.sum_squares([position[i]], like=energy)
            energy = energy + prior_energy(weighted, latents, settings)
        spreads = state.spreads
        if self.layer_temperatures:
            spreads = layer_noise.update_spreads(spreads, gradient)
        current, info = self.base.decide(
            state.base, evaluation._replace(gradient=gradient, energy=energy)
        )
        auxiliary = Auxiliary(current.auxiliary, latents, spreads)
        return current._replace(auxiliary=auxiliary), info

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Move as the base does, with the temperatures of the layers."""
        base, latents, spreads = current.auxiliary
        if self.layer_temperatures:
            normals = layer_noise.scaled(evaluation.normals, spreads)
            evaluation = evaluation._replace(normals=normals)
        base = self.base.move(current._replace(auxiliary=base), evaluation)
        return State(base, latents, spreads)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the share of weights with rho below 1/2, and means over groups."""
        spike, sigma, delta = state.latents
        spike = [tensors.host_value(q) for q in spike]
        has_chains = sigma.ndim > 1
        rows = [q.reshape(*q.shape[:1], -1) if has_chains else q.ravel() for q in spike]
        sparsity = np.mean(np.concatenate(rows, axis=-1) > 0.5, axis=-1)
        return {
            "sparsity": sparsity,
            "sigma": sigma.mean(axis=-1),
            "delta": delta.mean(axis=-1),
        }

    def _settings(self) -> SpikeSlab:
        p = self.prior
        groups = p.group_of_each(len(self.sparse))
        return SpikeSlab(p.v0, p.v1, p.a, p.b, p.nu, p.lam, groups)


def update_latents(
    position: Position,
    latents: Latents,
    prior: SpikeSlab,
    *,
    step_size: Tensor,
    train_size: int,
    rss: Tensor = None,
) -> tuple[Latents, list[Tensor]]:
    """Return the latent variables after one more position, eq. (13) to (17).

    With `rss` the latent variables are those of a regression. The second result is
    sum kappa beta^2 of each tensor with the new kappa, for `prior_energy`.
    """
    slopes, constants = _odds_of_spike(latents, prior)
    like = latents.sigma[..., 0]
    spike, fresh, weighted, slabs, sizes = [], [], [], [], []
    for x, q, g in zip(position, latents.spike, prior.groups, strict=True):
        (new,), (of_fresh, of_new, total, share) = _pass_over_weights(
            x, q, slopes[..., g], constants[..., g], step_size
        )
        spike.append(new)
        fresh.append(_gap(prior) * of_fresh + total / prior.v1)
        weighted.append(_gap(prior) * of_new + total / prior.v1)
        sizes.append(float(tensors.size([x], like)))
        slabs.append(sizes[-1] - share)

    fresh, slabs = _by_group(fresh, prior.groups), _by_group(slabs, prior.groups)
    size = _sums(sizes, prior.groups)
    size = ops.convert_to_tensor(size, latents.sigma.dtype)
    if rss is None:
        count = size + prior.nu + 2.0
    else:
        total = ops.sum(fresh, axis=-1, keepdims=True) + ops.expand_dims(rss, -1)
        fresh = ops.broadcast_to(total, fresh.shape)
        count = ops.sum(size) + train_size + prior.nu
    sigma = ((fresh + prior.nu * prior.lam) / count) ** 0.5
    delta = (slabs + (prior.a - 1.0)) / (prior.a + prior.b + size - 2.0)
    sigma = latents.sigma + step_size * (sigma - latents.sigma)
    delta = latents.delta + step_size * (delta - latents.delta)
    return Latents(spike, sigma, delta), weighted


def _odds_of_spike(latents: Latents, prior: SpikeSlab) -> tuple[Tensor, Tensor]:
    """Return the slope and the constant of eq. (13), each (..., groups).

    Eq. (13) reads log((1 - rho) / rho) = slope beta^2 + constant here, since
    a_j / (a_j + b_j) is 0/0 where a weight is large.
    """
    # A share of exactly 0 or 1 would never be left again.
    delta = ops.clip(latents.delta, 1e-30, 1.0 - 1e-7)
    constant = ops.log1p(-delta) - ops.log(delta) - 0.5 * math.log(prior.v0 / prior.v1)
    return -0.5 * _gap(prior) / latents.sigma**2, constant


def _pass_over_weights(
    x: Tensor, q: Tensor, slope: Tensor, constant: Tensor, step_size: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the averaged 1 - rho of one tensor, and four sums.

    The sums are those of (1 - rho) beta^2 with the fresh and with the averaged rho, of
    beta^2, and of the fresh 1 - rho.
    """
    like = slope
    slope, constant = (tensors.along_chains(value, x) for value in (slope, constant))

    def elementwise(x: Tensor, q: Tensor) -> tuple[list[Tensor], list[Any]]:
        x = ops.cast(x, q.dtype)
        square = x * x
        fresh = tensors.sigmoid_of_affine(square, slope, constant)
        new = tensors.between(q, fresh, step_size)
        pairs = [(fresh, square), (new, square), (square, None), (fresh, None)]
        return [new], pairs

    return tensors.map_and_sum(elementwise, x, q, like=like)


def of_residuals(
    gradient: Position, energy: Tensor, latents: Latents
) -> tuple[Position, Tensor]:
    """Return gradient and energy of RSS / (2 sigma^2) from those of RSS."""
    scale = 0.5 / ops.square(latents.sigma[..., 0])
    gradient = [g * ops.cast(tensors.along_chains(scale, g), g.dtype) for g in gradient]
    return gradient, scale * energy


def prior_energy(weighted: list[Tensor], latents: Latents, prior: SpikeSlab) -> Tensor:
    """Return sum kappa beta^2 / (2 sigma^2), the prior's part of U, in nats."""
    variances = [latents.sigma[..., g] ** 2 for g in prior.groups]
    return sum(u / (2.0 * s) for u, s in zip(weighted, variances, strict=True))


def add_gradient(
    position: Tensor,
    gradient: Tensor,
    spike: Tensor,
    sigma: Tensor,
    prior: SpikeSlab,
    train_size: int,
) -> Tensor:
    """Return the gradient of U/N of one tensor plus kappa beta / (sigma^2 N).

    `sigma` is the one of the tensor's group, () or (K,).
    """
    scale = 1.0 / (train_size * sigma**2)
    slope = tensors.along_chains(scale * _gap(prior), position)
    constant = tensors.along_chains(scale / prior.v1, position)

    def elementwise(u: Tensor, x: Tensor, q: Tensor) -> tuple[list[Tensor], list[Any]]:
        factor = tensors.affine(q, slope, constant)
        return [tensors.add_product(u, ops.cast(factor, x.dtype), x)], []

    (total,), _ = tensors.map_and_sum(
        elementwise, gradient, position, spike, like=sigma
    )
    return total


def _gap(prior: SpikeSlab) -> float:
    """Return 1/v0 - 1/v1, so that kappa is (1 - rho) times it, plus 1/v1."""
    return 1.0 / prior.v0 - 1.0 / prior.v1


def _by_group(values: list[Tensor], groups: tuple[int, ...]) -> Tensor:
    """Return the sums of (...) over the tensors of each group, (..., groups)."""
    return ops.stack(_sums(values, groups), axis=-1)


def _sums(values: list[Any], groups: tuple[int, ...]) -> list[Any]:
    sums: list[Any] = [0.0] * (max(groups) + 1)
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums[group] + value
    return sums
