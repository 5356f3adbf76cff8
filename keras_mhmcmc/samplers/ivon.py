"""The improved variational online Newton method (IVON): Adam's cost, and an ensemble.

Paper: Shen, Daheim, Cong, Nickl, Marconi, Bazan, Yokota, Gurevych, Cremers, Khan and
Moellenhoff (2024), "Variational learning is effective for large deep networks",
algorithm 1. The paper's lambda is N / T here.

Target: the normal distribution q = N(m, diag(1 / (lambda (h + delta)))) that is closest
to exp(-U(theta)/T), in the sense of KL(q, target). A normal prior of the optimizer has
the precision N delta, and enters exactly; without one delta is 0. A step evaluates the
gradient at a draw theta of q, so each position that the sampler visits is a draw. It is
no Markov chain with the target as its law: correlations between weights, and all but
one mode, are lost.

Equations, with the gradient without the prior, and theta = m + sigma Z:

    f     =  lambda (h + delta) (theta - m) grad(U/N)
    g     <- beta_1 g + (1 - beta_1) grad(U/N)
    h'    =  beta_2 h + (1 - beta_2) f + (1 - beta_2)^2 (h - f)^2 / (2 (h + delta))
    g_hat =  g / (1 - beta_1^t)
    m     <- m - epsilon (h_0 + delta) clip((g_hat + delta m) / (h' + delta), xi)
    sigma =  1 / sqrt(lambda (h' + delta))

The first step evaluates the start itself, with theta = m.

| paper    | name              | shape           | unit                              |
|----------|-------------------|-----------------|-----------------------------------|
| theta - m| `noise`           | list of tensors | weights                           |
| g        | `momentum`        | list of tensors | nats per example and weight       |
| h        | `hessian`         | list of tensors | nats per example and weight^2     |
| h_0      | `hessian_init`    | float           | nats per example and weight^2     |
| delta    | `precisions` / N  | list of floats  | nats per example and weight^2     |
"""

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import NamedTuple

import keras

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

_MOST_CHANGE, _LARGEST = 10.0, 1e30  # of h in a step, by h + delta, and of h


class State(NamedTuple):
    point: base.Position
    noise: base.Position
    momentum: base.Position
    hessian: base.Position


@dataclasses.dataclass(frozen=True)
class ivon(base.Diffusion):
    """Make IVON, a kernel for `mh.sample`: a normal distribution is fitted as it runs.

    Its draws are those of the normal distribution with independent weights that is
    closest to exp(-U/T), around one mode. They are not draws of exp(-U/T) itself:
    weights that depend on each other are too narrow. The energy U in nats is minus the
    log density.

    Args:
        learning_rate: step of the mean, as in `keras.optimizers.SGD` while the
            curvature is the first one. Its product with `hessian_init` is the share of
            a Newton step; begin with 0.2. A number of at least 0, or a schedule;
            a decay to 0 pays.
        hessian_init: first curvature of the loss, greater than 0. The first draws have
            the standard deviation sqrt(T / (N hessian_init)). Larger is safer. Defaults
            to 1.
        beta_1: share of the mean gradient that each step keeps, in [0, 1). Defaults to
            0.9.
        beta_2: share of the curvature that each step keeps, in [0, 1). The estimate is
            noisy, so that it must be near 1. Defaults to 0.99999.
        clip_radius: largest change of a weight by a step, before the rate, greater than
            0. Defaults to None, no limit.
        temperature: T, greater than 0, or a schedule. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.ivon(0.1)

    Reference: Shen et al. (2024), algorithm 1.
    """

    learning_rate: base.Rate
    _: dataclasses.KW_ONLY
    hessian_init: float = 1.0
    beta_1: float = 0.9
    beta_2: float = 0.99999
    clip_radius: float | None = None
    temperature: base.Rate = 1.0

    can_swap = False
    lowest = base.POSITIVE
    traits = base.Traits(draws_afresh=True)
    # Of a normal prior, whose gradient is in that of a step; (): there is none.
    precisions: ClassVar[Sequence[float]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        radius = base.OrNone(base.POSITIVE)
        base.check(self, hessian_init=base.POSITIVE, clip_radius=radius)
        base.check(self, beta_1=base.SHARE, beta_2=base.SHARE)

    def init(self, position: base.Position) -> State:
        first = base.slots_like(position, "hessian", self.hessian_init)
        noise, momentum = (base.slots_like(position, x) for x in ("noise", "momentum"))
        return State(position, noise, momentum, first)

    def move(self, current: base.Current, now: base.Evaluation) -> State:
        point, (_, noise, momentum, hessian) = current.position, current.auxiliary
        # The paper's lambda.
        size = ops.convert_to_tensor(now.train_size / now.temperature, dtype="float32")
        delta = [x / now.train_size for x in self.precisions] or [0.0] * len(point)
        mean = tensors.subtract(point, noise)
        of_loss = zip(current.gradient, delta, point, strict=True)
        slope = [g - d * x for g, d, x in of_loss]
        fresh = tensors.subtract(slope, momentum)
        momentum = tensors.add_scaled(momentum, 1.0 - self.beta_1, fresh)
        products = [x * g for x, g in zip(noise, slope, strict=True)]
        pairs = zip(hessian, tensors.scaled(size, products), delta, strict=True)
        hessian = [self.curvature(h, seen, d) for h, seen, d in pairs]
        precision = [h + d for h, d in zip(hessian, delta, strict=True)]

        steps = ops.cast(now.number, "float32") + 1.0
        kept = 1.0 - ops.power(ops.cast(self.beta_1, "float32"), steps)
        unbiased = tensors.scaled(1.0 / kept, momentum)
        newton = zip(unbiased, delta, mean, precision, strict=True)
        change = [(g + d * m) / p for g, d, m, p in newton]
        if self.clip_radius is not None:
            change = [ops.clip(x, -self.clip_radius, self.clip_radius) for x in change]
        units = [self.hessian_init + d for d in delta]
        change = [u * x for u, x in zip(units, change, strict=True)]
        mean = tensors.add_scaled(mean, -now.learning_rate, change)
        draws = zip(now.normals, precision, strict=True)
        noise = tensors.scaled(ops.rsqrt(size), [z * ops.rsqrt(p) for z, p in draws])
        point = [m + x for m, x in zip(mean, noise, strict=True)]
        return State(point, noise, momentum, hessian)

    def curvature(self, hessian: Tensor, seen: Tensor, delta: float) -> Tensor:
        """Return h' from h, with lambda (theta - m) grad(U/N) as `seen`.

        The last term keeps h + delta above 0: the step follows a Riemannian metric. The
        bounds are never met but by a run that explodes, which then stays finite.
        """
        precision, new = hessian + delta, 1.0 - self.beta_2
        change = new * (seen * precision - hessian)
        most = _MOST_CHANGE * precision
        change = ops.maximum(ops.minimum(change, most), -most)
        curved = hessian + change + 0.5 * change * (change / precision)
        return ops.minimum(curved, _LARGEST)


@serializable
class IVON(Sampler):
    """IVON: a normal posterior around one mode, at the cost of Adam.

    Its positions are draws of the closest normal distribution with independent weights,
    as `mh.kernels.ivon` says, not of exp(-U/T) itself. The energy U in nats is
    train_size * loss - log prior. Keep draws of the last epochs by
    `mh.PosteriorSamples(burn_in=..., every=...)`: each step makes a new one. The
    sampler keeps three copies of the weights.

    Other arguments and the errors are those of `mh.kernels.ivon` and `mh.SGLD`. The
    paper's weight decay is `prior=mh.priors.Gaussian(scale)`, with scale =
    1 / sqrt(weight_decay * train_size).

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.IVON(0.1, train_size=1000)

    Reference: that of `mh.kernels.ivon`.
    """

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        hessian_init: float = 1.0,
        beta_1: float = 0.9,
        beta_2: float = 0.99999,
        clip_radius: float | None = None,
        temperature: base.Rate = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "ivon",
        **options: Any,
    ) -> None:
        algorithm = base.of_optimizer(ivon, locals())
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, nan_policy=nan_policy)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        super().build(variables)
        if self._bound_prior is not None:
            known = self._bound_prior.precisions
            self.algorithm = base.bound(self.algorithm, precisions=known)
