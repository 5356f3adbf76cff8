"""SGLD-SA and SGHMC-SA as Keras optimizers."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.optimizers.spike_slab import SpikeSlabOptimizer
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.samplers.base import OF_OPTIMIZER
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld
from keras_mhmcmc.schedules import Schedule


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

    Args:
        learning_rate: as in `keras.optimizers.SGD`. A number of at least 0, or a
            schedule, such as `mh.schedules.PowerDecay`.
        train_size: number of training examples, N. With "gaussian" and several outputs,
            the number of targets: the mean squared error is a mean over all targets.
            Defaults to "auto", which reads it from `fit`.
        prior: `mh.priors.SpikeSlab`, which chooses the sparse kernels.
        likelihood: "categorical" for a loss that is a mean negative log-likelihood,
            such as a cross-entropy. "gaussian" for the mean squared error; sigma is
            then the standard deviation of the noise.
        step_size: omega, the step of the latent variables: a decreasing schedule, or a
            number in (0, 1]. None is 0.1 (k + 1000)^(-3/4) at iteration k.
        temperature: T, at least 0, or a schedule. 1 gives the posterior.
        layer_temperatures: whether each variable has its own temperature: T times the
            squared spread of its gradient, relative to the largest (appendix D.2).
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        nan_policy: what to do when the loss or a gradient is NaN or infinite. The chain
            then stands still. At the end of the epoch "stop" warns, and
            `mh.PosteriorSamples` ends `fit`; "raise" raises an error.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, with `nan_policy="raise"`.
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution. In the first step: `prior`
            chooses no kernel, or the compiled loss does not fit `likelihood`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGLDSA(
    ...     0.01,
    ...     train_size=1000,
    ...     prior=mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0),
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", algorithm 1.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        prior: SpikeSlab,
        likelihood: str = "categorical",
        step_size: float | Schedule | None = None,
        temperature: float | Schedule = 1.0,
        layer_temperatures: bool = False,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sgldsa",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            base=sgld(OF_OPTIMIZER, temperature=temperature),
            train_size=train_size,
            prior=prior,
            likelihood=likelihood,
            step_size=step_size,
            layer_temperatures=layer_temperatures,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )


@serializable
class SGHMCSA(SpikeSlabOptimizer):
    """SGHMC with a spike-and-slab prior that learns which weights are small.

    It samples exp(-U/T) given the latent variables, which it learns at the same time,
    like `mh.SGLDSA`. Momentum makes it faster on networks. As in `mh.SGLDSA`, rho is a
    mean-field fixed point that depends on the start, not a posterior probability. The
    sampler keeps one copy of the weights, and a second copy of the sparse weights.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum. A number of at least
            0, or a schedule, such as `mh.schedules.PowerDecay`.
        train_size: number of training examples, N. With "gaussian" and several outputs,
            the number of targets: the mean squared error is a mean over all targets.
            Defaults to "auto", which reads it from `fit`.
        prior: `mh.priors.SpikeSlab`, which chooses the sparse kernels.
        likelihood: "categorical" for a loss that is a mean negative log-likelihood,
            such as a cross-entropy. "gaussian" for the mean squared error; sigma is
            then the standard deviation of the noise.
        momentum: share of the velocity that each step keeps, in [0, 1).
        step_size: omega, the step of the latent variables: a decreasing schedule, or a
            number in (0, 1]. None is 0.1 (k + 1000)^(-3/4) at iteration k.
        temperature: T, at least 0, or a schedule. 1 gives the posterior.
        layer_temperatures: whether each variable has its own temperature: T times the
            squared spread of its gradient, relative to the largest (appendix D.2).
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        nan_policy: what to do when the loss or a gradient is NaN or infinite. The chain
            then stands still. At the end of the epoch "stop" warns, and
            `mh.PosteriorSamples` ends `fit`; "raise" raises an error.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, with `nan_policy="raise"`.
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution. In the first step: `prior`
            chooses no kernel, or the compiled loss does not fit `likelihood`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGHMCSA(
    ...     0.01,
    ...     train_size=1000,
    ...     prior=mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0),
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", section 3.3.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        prior: SpikeSlab,
        likelihood: str = "categorical",
        momentum: float = 0.9,
        step_size: float | Schedule | None = None,
        temperature: float | Schedule = 1.0,
        layer_temperatures: bool = False,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sghmcsa",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            base=sghmc(OF_OPTIMIZER, temperature=temperature, momentum=momentum),
            train_size=train_size,
            prior=prior,
            likelihood=likelihood,
            step_size=step_size,
            layer_temperatures=layer_temperatures,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
