"""Spike-and-slab priors whose latent variables are learned by stochastic approximation.

Paper: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
gradient MCMC with a stochastic approximation adaptation", eq. (3) to (17); published as
"An adaptive empirical Bayesian method for sparse deep learning".

Target: given the latent variables rho, kappa, sigma and delta, exp(-U(beta)/T) with U
of eq. (11). At T = 1 it is the posterior under the prior N(0, sigma^2 / kappa). Eq.
(13) to (16) are an EM step. The latent variables move to a fixed point of this step,
averaged over the target.

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
as eq. (13) gives it. Only eq. (17) averages, once, and eq. (11) takes the averages.
In regression sigma is also the noise. There is then one sigma for all groups, eq. (15)
sums over all of them, and the energy of the data is RSS / (2 sigma^2).

The state holds q = 1 - rho, the probability of the spike: a stored rho would lose the
digits of 1 - rho, by which kappa is exact.

| paper         | name            | shape           | unit                            |
|---------------|-----------------|-----------------|---------------------------------|
| 1 - rho       | `spike`         | list of tensors | 1                               |
| sigma         | `sigma`         | (..., groups)   | weights, or targets: regression |
| delta         | `delta`         | (..., groups)   | 1                               |
| v0, v1        | `v0`, `v1`      | float           | (weights / sigma)^2             |
| lambda        | `lam`           | float           | sigma^2                         |
| RSS           | `rss`, residual sum of squares | (...) | targets^2                  |
| omega         | `step_size`     | scalar          | 1                               |
| p             | `size`          | (groups,)       | count                           |

(...) is () for one chain and (K,) for K chains, whose tensors have a leading axis K.

Layers may have temperatures by the standard deviation over the entries of their
gradients. Then all have the same ratio of drift to noise, and the noisiest one has T:

    s_l <- s_l + 0.01 (std(grad_l) - s_l),  std(grad_l) at the first step
    T_l =  T (s_l / max s)^2, which scales the `normals` of layer l by s_l / max s

ESM moves by Adam, with k counted from 1 and g = grad(U/N):

    m    <- beta_1 m + (1 - beta_1) g,   v <- beta_2 v + (1 - beta_2) g^2
    beta <- beta - alpha_0 sqrt(1 - beta_2^k) / (1 - beta_1^k) m / (sqrt(v) + epsilon)
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import NamedTuple
from typing import Self

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc._names import distinct
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.priors import checked_spike_slab
from keras_mhmcmc.samplers import base as protocol
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld
from keras_mhmcmc.schedules import PowerDecay
from keras_mhmcmc.schedules import check_shares

NO_GRADIENT = -1.0  # the spread of a layer before the first gradient


class Numbers(NamedTuple):
    v0: float
    v1: float
    a: float
    b: float
    nu: float
    lam: float
    groups: tuple[int, ...]  # the group of each tensor, counted from 0


class Latents(NamedTuple):
    spike: protocol.Position  # 1 - rho of each sparse tensor
    sigma: Tensor  # (..., groups)
    delta: Tensor  # (..., groups)


class State(NamedTuple):
    base: Any  # its first field is `point`
    latents: Latents
    spreads: Any  # of each layer's gradient, (..., layers), or ()


@dataclasses.dataclass(frozen=True)
class sgldsa(protocol.OnDiffusion):
    """Make SGLD with a spike-and-slab prior, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) given the latent variables, which it learns at the same
    time, like `mh.SGLDSA`. The energy U in nats is minus the log density of `mh.sample`
    plus the energy of `prior` on the sparse tensors. `log_prior` is the prior of the
    other tensors. `draws.info` has `sparsity`, `sigma` and `delta` of each chain, and
    `inclusion_probabilities`, a dict of arrays (chain, ...).

    Args:
        learning_rate: as in `mh.kernels.sgld`. A number of at least 0, or a schedule,
            such as `mh.schedules.PowerDecay`.
        prior: a `mh.priors.SpikeSlab`. A regular expression as `sparse` matches the
            names of the position's tensors: the keys of a dict, or "position" for a
            single tensor. A function takes an object with `path` and `shape`, the chain
            axis first.
        likelihood: "categorical" if `log_likelihood` returns a log-likelihood;
            "gaussian" if it returns minus the squared error of each example. Sigma is
            then the standard deviation of the noise, and there is no `log_prior`.
        step_size: omega, the step of the latent variables: a decreasing schedule, or a
            number in (0, 1]. None is 0.1 (k + 1000)^(-3/4) at step k.
        temperature: T, at least 0, or a schedule. Defaults to 1.
        layer_temperatures: whether each tensor has its own temperature: T times the
            squared spread of its gradient, relative to the largest (appendix D.2).

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> prior = mh.priors.SpikeSlab("weights", v0=1e-3, v1=1.0)
    >>> kernel = mh.kernels.sgldsa(0.01, prior=prior)

    Reference: Deng, Zhang, Liang and Lin (2019), algorithm 1.
    """

    learning_rate: protocol.Rate
    _: dataclasses.KW_ONLY
    prior: SpikeSlab
    likelihood: str = "categorical"
    step_size: protocol.Rate | None = None
    temperature: protocol.Rate = 1.0
    layer_temperatures: bool = False
    base: protocol.Diffusion = dataclasses.field(init=False, repr=False)
    # Indices of weights, once they are known: the sparse ones, and those with the prior
    # N(0, 1). In a network only kernels are sparse, and all others have this prior. A
    # kernel is a weight with at least two axes that is not called a bias.
    sparse: tuple[int, ...] = dataclasses.field(default=(), init=False, repr=False)
    normal: tuple[int, ...] = dataclasses.field(default=(), init=False, repr=False)

    kind: ClassVar[type[protocol.Diffusion]] = sgld
    is_network: ClassVar[bool] = False

    def __post_init__(self) -> None:
        base = self.diffusion()
        checked_spike_slab(self.prior)
        check_shares("step_size", self.step_size)
        protocol.check(self, likelihood=("categorical", "gaussian"))
        step_size = self.step_size
        if step_size is None:
            step_size = PowerDecay(0.1, 1000.0, 0.75)
        protocol.set_checked(self, base=base, step_size=step_size)
        hint = "A `LearningRateSchedule` that falls from at most 1 will do as well."
        kind = protocol.OrSchedule(protocol.UP_TO_ONE, hint)
        protocol.check(self, step_size=kind, layer_temperatures=(True, False))

    @property
    def is_regression(self) -> bool:
        """Whether U of the data is RSS / (2 sigma^2)."""
        return self.likelihood == "gaussian"

    @property
    def traits(self) -> protocol.Traits:
        learns = self.is_regression
        traits = self.base.traits._replace(uses_energy=learns, learns_noise=learns)
        return traits._replace(takes_prior=False)

    def bind_weights(self, weights: Sequence[Any], has_chains: bool) -> Self:
        kernels = list(range(len(weights)))
        if self.is_network:
            kernels = self.prior.kernels_of(weights, has_chains)
        sparse = self.prior.choose(weights, kernels)
        normal = [i for i in kernels if self.is_network and i not in sparse]
        return protocol.bound(self, sparse=tuple(sparse), normal=tuple(normal))

    def init(self, position: protocol.Position) -> State:
        prior, groups = self.prior, (max(self._settings().groups) + 1,)
        first = prior.initial_inclusion
        first = 1 - (prior.delta if first is None else first)
        shapes = {i: tuple(position[i].shape) for i in self.sparse}
        latents = Latents(
            [
                protocol.Slot("spike_probability", shape, value=first, weight=i)
                for i, shape in shapes.items()
            ],
            protocol.Slot("sigma", groups, value=prior.sigma),
            protocol.Slot("delta", groups, value=prior.delta),
        )
        spreads: Any = ()
        if self.layer_temperatures:
            spreads = protocol.Slot("spreads", (len(position),), value=NO_GRADIENT)
        return State(self.base.init(position), latents, spreads)

    def decide(
        self, state: State, evaluation: protocol.Evaluation
    ) -> tuple[protocol.Current, protocol.Info]:
        position, settings = self.base.point(state.base), self._settings()
        gradient, energy = list(evaluation.gradient), evaluation.energy
        latents, weighted = update_latents(
            [position[i] for i in self.sparse],
            state.latents,
            settings,
            step_size=protocol.at_step(self.step_size, evaluation.number),
            train_size=evaluation.train_size,
            rss=energy if self.is_regression else None,
        )
        if self.is_regression:
            gradient, energy = of_residuals(gradient, energy, latents)
        for i in self.normal:
            gradient[i] = gradient[i] + (1.0 / evaluation.train_size) * position[i]
        for place, i in enumerate(self.sparse):
            sigma = latents.sigma[..., settings.groups[place]]
            of_prior = latents.spike[place], sigma, settings, evaluation.train_size
            gradient[i] = add_gradient(position[i], gradient[i], *of_prior)
        if energy is not None:
            for i in self.normal:
                energy = energy + 0.5 * tensors.sum_squares([position[i]], like=energy)
            energy = energy + prior_energy(weighted, latents, settings)
        spreads = state.spreads
        if self.layer_temperatures:
            spreads = update_spreads(spreads, gradient)
        evaluation = evaluation._replace(gradient=gradient, energy=energy)
        current, info = self.base.decide(state.base, evaluation)
        auxiliary = State(current.auxiliary, latents, spreads)
        return current._replace(auxiliary=auxiliary), info

    def move(self, current: protocol.Current, evaluation: protocol.Evaluation) -> State:
        base, latents, spreads = current.auxiliary
        if self.layer_temperatures:
            normals = scaled_noise(evaluation.normals, spreads)
            evaluation = evaluation._replace(normals=normals)
        base = self.base.move(current._replace(auxiliary=base), evaluation)
        return State(base, latents, spreads)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        spike, sigma, delta = state.latents
        spike = [tensors.host_value(q) for q in spike]
        has_chains = sigma.ndim > 1
        rows = [q.reshape(*q.shape[:1], -1) if has_chains else q.ravel() for q in spike]
        sparsity = np.mean(np.concatenate(rows, axis=-1) > 0.5, axis=-1)
        means = dict(sigma=sigma.mean(axis=-1), delta=delta.mean(axis=-1))
        return {"sparsity": sparsity, **means}

    def report(
        self, state: State, energy: Array, names: Sequence[str]
    ) -> dict[str, Any]:
        spikes = zip(self.sparse, state.latents.spike, strict=True)
        rho = {names[i]: 1.0 - ops.convert_to_numpy(q) for i, q in spikes}
        return {"inclusion_probabilities": rho}

    def _settings(self) -> Numbers:
        p = self.prior
        groups = p.group_of_each(len(self.sparse))
        return Numbers(p.v0, p.v1, p.a, p.b, p.nu, p.lam, groups)


@dataclasses.dataclass(frozen=True)
class sghmcsa(sgldsa):
    """Make SGHMC with a spike-and-slab prior, a kernel for `mh.sample`.

    The kernel samples the same distribution as `mh.kernels.sgldsa`, with momentum.
    `momentum` is that of `mh.kernels.sghmc`. The other arguments and the errors are
    those of `mh.kernels.sgldsa`.

    Reference: Deng, Zhang, Liang and Lin (2019), section 3.3.
    """

    _: dataclasses.KW_ONLY
    momentum: float = 0.9

    kind = sghmc


class AdamState(NamedTuple):
    point: protocol.Position
    mean: protocol.Position  # m, nats per example and weight
    square: protocol.Position  # v, the square of this unit


@dataclasses.dataclass(frozen=True)
class Adam(protocol.Diffusion):
    """Adam (Kingma and Ba 2015, algorithm 1), which seeks the least U without noise."""

    learning_rate: protocol.Rate  # alpha_0, weights
    beta_1: float
    beta_2: float
    epsilon: float  # epsilon_hat, nats per example and weight
    temperature: protocol.Rate = 0.0

    traits = protocol.Traits(uses_normals=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        protocol.check(self, beta_1=protocol.SHARE, beta_2=protocol.SHARE)
        protocol.check(self, epsilon=protocol.POSITIVE)

    def init(self, position: protocol.Position) -> AdamState:
        means = (protocol.slots_like(position, x) for x in ("mean", "square"))
        return AdamState(position, *means)

    def move(self, current: protocol.Current, now: protocol.Evaluation) -> AdamState:
        _, mean, square = current.auxiliary
        change = tensors.subtract(current.gradient, mean)
        mean = tensors.add_scaled(mean, 1.0 - self.beta_1, change)
        change = tensors.subtract([ops.square(g) for g in current.gradient], square)
        square = tensors.add_scaled(square, 1.0 - self.beta_2, change)
        steps = ops.cast(now.number, "float32") + 1.0  # k
        betas = self.beta_1, self.beta_2
        known, of_square = (1.0 - ops.power(beta, steps) for beta in betas)
        pairs = zip(mean, square, strict=True)
        move = [m / (ops.sqrt(v) + self.epsilon) for m, v in pairs]
        rate = -now.learning_rate * (ops.sqrt(of_square) / known)
        return AdamState(tensors.add_scaled(current.position, rate, move), mean, square)


@dataclasses.dataclass(frozen=True)
class esm(sgldsa):
    """Expectation stochastic-maximization: Adam, without noise, on the same U."""

    _: dataclasses.KW_ONLY
    step_size: protocol.Rate | None = 1.0
    temperature: protocol.Rate = 0.0
    beta_1: float
    beta_2: float
    epsilon: float

    kind = Adam


def update_latents(
    position: protocol.Position,
    latents: Latents,
    prior: Numbers,
    *,
    step_size: Tensor,
    train_size: int,
    rss: Tensor = None,
) -> tuple[Latents, list[Tensor]]:
    """Return the latent variables after one more position, eq. (13) to (17).

    With `rss` they are those of a regression. Then sum kappa beta^2 of each tensor with
    the new kappa, for `prior_energy`.
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

    sums = (_sums(values, prior.groups) for values in (fresh, slabs))
    fresh, slabs = (ops.stack(values, axis=-1) for values in sums)
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


def _odds_of_spike(latents: Latents, prior: Numbers) -> tuple[Tensor, Tensor]:
    """Return slope and constant of log((1 - rho) / rho) = slope beta^2 + constant.

    This is eq. (13), whose a_j / (a_j + b_j) is 0/0 where a weight is large.
    """
    # A share of exactly 0 or 1 would never be left again.
    delta = ops.clip(latents.delta, 1e-30, 1.0 - 1e-7)
    constant = ops.log1p(-delta) - ops.log(delta) - 0.5 * math.log(prior.v0 / prior.v1)
    return -0.5 * _gap(prior) / latents.sigma**2, constant


def _pass_over_weights(
    x: Tensor, q: Tensor, slope: Tensor, constant: Tensor, step_size: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the averaged 1 - rho of one tensor, and four sums.

    They are those of (1 - rho) beta^2 with the fresh and with the averaged rho, of
    beta^2, and of the fresh 1 - rho.
    """
    like = slope
    slope, constant = (tensors.along_chains(value, x) for value in (slope, constant))

    def elementwise(x: Tensor, q: Tensor) -> tuple[list[Tensor], list[Any]]:
        x = ops.cast(x, q.dtype)
        square = x * x
        fresh = ops.sigmoid(tensors.affine(square, slope, constant))
        new = tensors.between(q, fresh, step_size)
        pairs = [(fresh, square), (new, square), (square, None), (fresh, None)]
        return [new], pairs

    return tensors.map_and_sum(elementwise, x, q, like=like)


def of_residuals(
    gradient: protocol.Position, energy: Tensor, latents: Latents
) -> tuple[protocol.Position, Tensor]:
    scale = 0.5 / ops.square(latents.sigma[..., 0])
    gradient = [g * ops.cast(tensors.along_chains(scale, g), g.dtype) for g in gradient]
    return gradient, scale * energy


def prior_energy(weighted: list[Tensor], latents: Latents, prior: Numbers) -> Tensor:
    variances = [latents.sigma[..., g] ** 2 for g in prior.groups]
    return sum(u / (2.0 * s) for u, s in zip(weighted, variances, strict=True))


def add_gradient(
    position: Tensor,
    gradient: Tensor,
    spike: Tensor,
    sigma: Tensor,
    prior: Numbers,
    train_size: int,
) -> Tensor:
    scale = 1.0 / (train_size * sigma**2)
    slope = tensors.along_chains(scale * _gap(prior), position)
    constant = tensors.along_chains(scale / prior.v1, position)

    def elementwise(u: Tensor, x: Tensor, q: Tensor) -> tuple[list[Tensor], list[Any]]:
        factor = tensors.affine(q, slope, constant)
        return [tensors.add_product(u, ops.cast(factor, x.dtype), x)], []

    arrays = gradient, position, spike
    return tensors.map_and_sum(elementwise, *arrays, like=sigma)[0][0]


def _gap(prior: Numbers) -> float:
    """Return 1/v0 - 1/v1, so that kappa is (1 - rho) times it, plus 1/v1."""
    return 1.0 / prior.v0 - 1.0 / prior.v1


def _sums(values: list[Any], groups: tuple[int, ...]) -> list[Any]:
    """Return the sums over the tensors of each group."""
    sums: list[Any] = [0.0] * (max(groups) + 1)
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums[group] + value
    return sums


def update_spreads(spreads: Tensor, gradient: protocol.Position) -> Tensor:
    has_chains = len(spreads.shape) > 1
    new = ops.stack([_deviation(g, has_chains) for g in gradient], axis=-1)
    new = ops.cast(new, spreads.dtype)
    return ops.where(spreads < 0.0, new, spreads + 0.01 * (new - spreads))


def scaled_noise(normals: Sequence[Tensor], spreads: Tensor) -> protocol.Position:
    """Return the noise of each layer times sqrt(T_l / T)."""
    # All gradients may be 0, at a plateau: then there is no noise either.
    largest = ops.maximum(ops.max(spreads, axis=-1, keepdims=True), 1e-30)
    scales = ops.unstack(spreads / largest, len(normals), axis=-1)
    return [
        z * ops.cast(tensors.along_chains(scale, z), z.dtype)
        for z, scale in zip(normals, scales, strict=True)
    ]


def _deviation(gradient: Tensor, has_chains: bool) -> Tensor:
    rows = ops.reshape(gradient, (gradient.shape[0] if has_chains else 1, -1))
    # One weight has no deviation, and would never get noise.
    spread = ops.std(rows, axis=1) if rows.shape[1] > 1 else ops.abs(rows[:, 0])
    return spread if has_chains else spread[0]


class SpikeSlabOptimizer(Sampler):
    """Abstract: a sampler that learns which weights of some kernels are small."""

    algorithm: sgldsa

    def __init__(
        self,
        learning_rate: protocol.Rate,
        kernel: sgldsa,
        *shared: Any,
        nan_policy: str,
    ) -> None:
        kernel = protocol.bound(kernel, is_network=True)
        options: dict[str, Any] = dict(nan_policy=nan_policy)
        if kernel.is_regression:
            options["check_model"] = compiled_loss.check_is_mean_squared_error
        size, *more = shared
        super().__init__(learning_rate, kernel, size, kernel.prior, *more, **options)

    def _check_loss(self, is_step: bool = True) -> None:
        super()._check_loss(is_step)
        model = self._checked and self._checked()
        # What layers add is known once the model was called, in the first step.
        if model and is_step and self.algorithm.is_regression and not self._has_moved:
            layers = _backend.adding_layers(model)
            compiled_loss.refuse_parts(
                [f"a loss of the layer '{name}'" for name in layers]
            )

    def inclusion_probabilities(self) -> dict[str, Array]:
        """Return rho by variable path: how far each weight belongs to the slab, 0 to 1.

        It is a mean-field fixed point, which can depend on `initial_inclusion`, not the
        posterior probability of the slab. The arrays have the shapes of the sparse
        kernels, with a leading axis for several chains. Before the first step there are
        none.
        """
        pairs = self.inclusion_by_variable()
        paths = distinct(variable.path for variable, _ in pairs)
        return dict(zip(paths, [array for _, array in pairs], strict=True))

    def inclusion_by_variable(self) -> list[tuple[keras.Variable, Array]]:
        """Return pairs of a sparse variable and its `inclusion_probabilities`."""
        if not self.built:
            return []
        spikes = self.slots.latents.spike
        return [
            (self._state.weights[i], 1.0 - _backend.host_value(spike))
            for i, spike in zip(self.algorithm.sparse, spikes, strict=True)
        ]


@serializable
class SGLDSA(SpikeSlabOptimizer):
    """SGLD with a spike-and-slab prior that learns which weights are small.

    It samples exp(-U/T) given the latent variables, which it learns at the same time,
    up to the bias of a finite step and of gradient noise. The energy U in nats is
    train_size * loss plus the energy of the priors: spike and slab for the kernels that
    `prior` chooses, N(0, 1) for the other kernels, flat for biases. The sampler keeps
    one copy of the sparse weights.

    The learned rho of a weight is a mean-field fixed point, not the posterior
    probability that the weight belongs to the slab. If several fixed points exist, the
    start decides between them. For one of ten predictors with an exact probability of
    0.945, rho was 0.08 from the default start and 0.996 from `initial_inclusion=0.99`
    (`examples/benchmarks/inclusion.py`).

    Other arguments are those of `mh.kernels.sgldsa` and `mh.SGLD`.

    Args:
        train_size: number of training examples, N; of targets, with "gaussian" and
            several outputs. Defaults to "auto", which reads it from `fit`.
        prior: `mh.priors.SpikeSlab`, which chooses the sparse kernels.
        likelihood: "categorical" for a loss that is a mean negative log-likelihood,
            such as a cross-entropy. "gaussian" for the mean squared error; sigma is
            then the standard deviation of the noise.

    Raises:
        FloatingPointError: as in `mh.SGLD`.
        ValueError: as in `mh.SGLD`. In the first step: `prior` chooses no kernel, or
            the compiled loss does not fit `likelihood`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> prior = mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0)
    >>> optimizer = mh.SGLDSA(0.01, train_size=1000, prior=prior)

    Reference: that of `mh.kernels.sgldsa`.
    """

    def __init__(
        self,
        learning_rate: protocol.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        prior: SpikeSlab,
        likelihood: str = "categorical",
        step_size: protocol.Rate | None = None,
        temperature: protocol.Rate = 1.0,
        layer_temperatures: bool = False,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sgldsa",
        **options: Any,
    ) -> None:
        kernel = protocol.of_optimizer(sgldsa, locals())
        shared = train_size, seed, name, options
        super().__init__(learning_rate, kernel, *shared, nan_policy=nan_policy)


@serializable
class SGHMCSA(SpikeSlabOptimizer):
    """SGHMC with a spike-and-slab prior that learns which weights are small.

    It samples exp(-U/T) given the latent variables, which it learns at the same time,
    like `mh.SGLDSA`. Momentum makes it faster on networks. As in `mh.SGLDSA`, rho is a
    mean-field fixed point that depends on the start, not a posterior probability. The
    sampler keeps one copy of the weights, and a second copy of the sparse weights.

    Other arguments and the errors are those of `mh.SGLDSA` and `mh.kernels.sghmc`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> prior = mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0)
    >>> optimizer = mh.SGHMCSA(0.01, train_size=1000, prior=prior)

    Reference: that of `mh.kernels.sghmcsa`.
    """

    def __init__(
        self,
        learning_rate: protocol.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        prior: SpikeSlab,
        likelihood: str = "categorical",
        momentum: float = 0.9,
        step_size: protocol.Rate | None = None,
        temperature: protocol.Rate = 1.0,
        layer_temperatures: bool = False,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sghmcsa",
        **options: Any,
    ) -> None:
        kernel = protocol.of_optimizer(sghmcsa, locals())
        shared = train_size, seed, name, options
        super().__init__(learning_rate, kernel, *shared, nan_policy=nan_policy)


@serializable
class ESM(SpikeSlabOptimizer):
    """Adam with a spike-and-slab prior: the mode that `SGLDSA` samples around.

    ESM is no sampler: it minimises U instead of sampling exp(-U/T). The latent
    variables follow from the last step alone (omega = 1). Start from a wide
    initializer: if all weights are small, sigma falls with them, and they stay near
    zero. The first weights determine the final rho, `initial_inclusion` of the prior
    has no effect, and rho is not a posterior probability. The optimizer keeps two
    copies of the weights, and a third copy of the sparse weights.

    Other arguments and the errors are those of `mh.SGLDSA`.

    Args:
        learning_rate: as in `keras.optimizers.Adam`. A number of at least 0, or a
            schedule.
        beta_1: share of the mean gradient that each step keeps, in [0, 1).
        beta_2: share of the mean squared gradient that each step keeps, in [0, 1).
        epsilon: number added to the root of the mean squared gradient, greater than 0.
        seed: integer in [0, 2**31) or None, without effect: ESM adds no noise.

    Example:

    >>> import keras_mhmcmc as mh
    >>> prior = mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0)
    >>> optimizer = mh.ESM(0.001, train_size=1000, prior=prior)

    Reference: Deng, Zhang, Liang and Lin (2019), section 3.2.
    """

    def __init__(
        self,
        learning_rate: protocol.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        prior: SpikeSlab,
        likelihood: str = "categorical",
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "esm",
        **options: Any,
    ) -> None:
        kernel = protocol.of_optimizer(esm, locals())
        shared = train_size, seed, name, options
        super().__init__(learning_rate, kernel, *shared, nan_policy=nan_policy)
