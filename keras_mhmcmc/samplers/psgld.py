"""Preconditioned stochastic gradient Langevin dynamics (pSGLD).

Paper: Li, Chen, Carlson and Carin (2016), "Preconditioned stochastic gradient Langevin
dynamics for deep neural networks", algorithm 1. The paper's epsilon_t is 2 epsilon / N
here, and its T is 1.

Target: exp(-U(theta)/T), up to the bias of a finite step, of gradient noise, and of the
curvature correction Gamma(theta). The correction is left out, as in the paper's
experiments, so the sampled distribution is biased where G changes quickly.

Equations, with the gradient that has the prior in it:

    V     <- alpha V + (1 - alpha) grad(U/N)^2
    G     =  1 / (lambda + sqrt(V))
    theta <- theta - epsilon G grad(U/N) + sqrt(2 epsilon T G / N) Z

| paper     | name            | shape             | unit                           |
|-----------|-----------------|-------------------|--------------------------------|
| V         | `second_moment` | list of tensors   | (nats per example and weight)^2|
| G         | `scaling`       | list of tensors   | weights examples / nat         |
| alpha     | `decay`         | float             | 1                              |
| lambda    | `epsilon`       | float             | nats per example and weight    |
"""

import dataclasses
from typing import Any
from typing import Literal
from typing import NamedTuple

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


class State(NamedTuple):
    point: base.Position
    second_moment: base.Position


@dataclasses.dataclass(frozen=True)
class psgld(base.Diffusion):
    """Make preconditioned SGLD, a kernel for `mh.sample`.

    It samples exp(-U/T), up to the bias of a finite step, of gradient noise, and of a
    curvature correction that is left out, as in the paper's experiments. The energy U
    in nats is minus the log density. On a logistic regression of 565 examples the
    standard deviation was 9 to 10% too large with batches of 113, and 24 to 33% too
    large with all of the data (`examples/benchmarks/laws.py --only psgld`).

    Args:
        learning_rate: factor of the preconditioned gradient of U/N, as in
            `keras.optimizers.RMSprop`. A number of at least 0, or a schedule.
        decay: share of the mean squared gradient that each step keeps, in [0, 1).
            Defaults to 0.99.
        epsilon: number added to the root of the mean squared gradient, greater than 0.
            The largest preconditioner is 1/epsilon. Defaults to 1e-5.
        temperature: T, at least 0, or a schedule. 1 gives the posterior. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.psgld(0.01)

    Reference: Li, Chen, Carlson and Carin (2016), algorithm 1.
    """

    learning_rate: base.Rate
    _: dataclasses.KW_ONLY
    decay: float = 0.99
    epsilon: float = 1e-5
    temperature: base.Rate = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check(self, decay=base.SHARE, epsilon=base.POSITIVE)

    def init(self, position: base.Position) -> State:
        return State(position, base.slots_like(position, "second_moment"))

    def move(self, current: base.Current, evaluation: base.Evaluation) -> State:
        rate, gradient = evaluation.learning_rate, current.gradient
        moment = current.auxiliary.second_moment
        change = tensors.subtract([ops.square(g) for g in gradient], moment)
        moment = tensors.add_scaled(moment, 1.0 - self.decay, change)
        scaling = [1.0 / (self.epsilon + ops.sqrt(v)) for v in moment]
        pairs = zip(evaluation.normals, scaling, strict=True)
        drift = [g * scale for g, scale in zip(gradient, scaling, strict=True)]
        noise = [z * ops.sqrt(scale) for z, scale in pairs]
        size = base.noise_scale(rate, evaluation.temperature, evaluation.train_size)
        terms = (-rate, drift), (size, noise)
        return State(tensors.add_terms(current.position, *terms), moment)


@serializable
class PSGLD(Sampler):
    """Preconditioned SGLD: Langevin dynamics with RMSprop's step for each weight.

    It samples exp(-U/T), up to the bias that `mh.kernels.psgld` gives: standard
    deviations are too large. The energy U in nats is train_size * loss - log prior. The
    sampler keeps one copy of the weights.

    Other arguments and the errors are those of `mh.kernels.psgld` and `mh.SGLD`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.PSGLD(1e-3, train_size=1000)

    Reference: that of `mh.kernels.psgld`.
    """

    usual_rate = 0.001

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        decay: float = 0.99,
        epsilon: float = 1e-5,
        temperature: base.Rate = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "psgld",
        **options: Any,
    ) -> None:
        algorithm = base.of_optimizer(psgld, locals())
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, nan_policy=nan_policy)
