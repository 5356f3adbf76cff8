"""Expectation stochastic-maximization as a Keras optimizer."""

from typing import Any

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import adam
from keras_mhmcmc.optimizers.spike_slab import SpikeSlabOptimizer
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.schedules import Schedule


@serializable
class ESM(SpikeSlabOptimizer):
    """Adam with a spike-and-slab prior: the mode that `SGLDSA` samples around.

    Samples nothing: it seeks the smallest U instead of drawing from exp(-U/T), and its
    latent variables are those of the last step alone (omega = 1). The paper compares
    its samplers with ESM. From weights that are all small, ESM closes the spike over
    them, because sigma falls with them, and it does not leave zero again: begin with a
    wide initializer. Its rho depends on the start and is not a posterior probability.
    ESM replaces rho in its first step, so its first weights decide, and
    `initial_inclusion` of the prior does not. The optimizer keeps two copies of the
    weights, and one more of the sparse ones.

    Args:
        learning_rate: as in `keras.optimizers.Adam`. A number that is at least 0, or a
            schedule.
        train_size: number of training examples, N. With "gaussian" and several outputs
            it is the number of targets, because the mean squared error is their mean.
        prior: `mh.priors.SpikeSlab`, which says which kernels are sparse.
        likelihood: "categorical", where the loss is a mean negative log-likelihood,
            such as a cross-entropy. Or "gaussian", where the loss is the mean squared
            error and sigma is the standard deviation of the noise.
        beta_1: share of the mean gradient that each step keeps, in [0, 1).
        beta_2: share of the mean squared gradient that each step keeps, in [0, 1).
        epsilon: number added to the root of the mean squared gradient, greater than 0.
        seed: integer in [0, 2**31) or None, as in every sampler. ESM draws nothing.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`. "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled distribution, or, at the first step,
            `prior` chooses no kernel or the compiled loss does not fit `likelihood`.

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
        train_size: int,
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
            base=adam.Adam(None, beta_1, beta_2, epsilon),
            train_size=train_size,
            prior=prior,
            likelihood=likelihood,
            step_size=1.0,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
