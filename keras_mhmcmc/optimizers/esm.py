"""Expectation stochastic-maximization as a Keras optimizer."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import adam
from keras_mhmcmc.optimizers.spike_slab import SpikeSlabOptimizer
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.samplers.base import OF_OPTIMIZER
from keras_mhmcmc.schedules import Schedule


@serializable
class ESM(SpikeSlabOptimizer):
    """Adam with a spike-and-slab prior: the mode that `SGLDSA` samples around.

    ESM is no sampler: it minimises U instead of sampling exp(-U/T). The paper compares
    its samplers with ESM. The latent variables follow from the last step alone
    (omega = 1).

    Start from a wide initializer. If all weights are small, sigma falls with them, the
    spike closes over them, and they stay near zero. The final rho depends on the start
    and is not a posterior probability. ESM replaces rho in its first step: the first
    weights determine it, and `initial_inclusion` of the prior has no effect. The
    optimizer keeps two copies of the weights, and a third copy of the sparse weights.

    Args:
        learning_rate: as in `keras.optimizers.Adam`. A number of at least 0, or a
            schedule.
        train_size: number of training examples, N. With "gaussian" and several outputs,
            the number of targets: the mean squared error is a mean over all targets.
            Defaults to "auto", which reads it from `fit`.
        prior: `mh.priors.SpikeSlab`, which chooses the sparse kernels.
        likelihood: "categorical" for a loss that is a mean negative log-likelihood,
            such as a cross-entropy. "gaussian" for the mean squared error; sigma is
            then the standard deviation of the noise.
        beta_1: share of the mean gradient that each step keeps, in [0, 1).
        beta_2: share of the mean squared gradient that each step keeps, in [0, 1).
        epsilon: number added to the root of the mean squared gradient, greater than 0.
        seed: integer in [0, 2**31) or None, without effect: ESM adds no noise.
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
    >>> optimizer = mh.ESM(
    ...     0.001,
    ...     train_size=1000,
    ...     prior=mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0),
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", section 3.2.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
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
        super().__init__(
            learning_rate,
            base=adam.Adam(OF_OPTIMIZER, beta_1, beta_2, epsilon),
            train_size=train_size,
            prior=prior,
            likelihood=likelihood,
            step_size=1.0,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
