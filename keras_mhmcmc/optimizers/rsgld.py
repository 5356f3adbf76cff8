"""Reversible SGLD with an adapted beta as a Keras optimizer."""

from typing import Any

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms.metropolis import Metropolis
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.proposals import adapted
from keras_mhmcmc.schedules import Schedule


@serializable
class RSGLD(Sampler):
    """Mini-batch Metropolis-Hastings with reversible SGLD proposals.

    Each proposal moves down the gradient (forward) or up the gradient with noise
    beta times wider (backward). It is accepted or rejected on the next
    mini-batch. A proposal whose loss or gradient is not finite is rejected.

    With `normalized=True` and a fixed beta the sampler samples exp(-U/T) approximately.
    The energy U in nats is train_size * loss - log prior. The defaults, the paper's
    ratio and noise, let networks move, but make the sampler nearly an optimizer. On a
    Bayesian logistic regression (N = 565, d = 31, learning rate 0.5) a chain of 2,000
    to 20,000 steps had 9 to 21% of the posterior's standard deviation
    (`examples/benchmarks/laws.py --only rsgld`). The sampler keeps two copies of the
    weights.

    Args:
        learning_rate: epsilon, as in `keras.optimizers.SGD`. A number of at least 0, or
            a schedule.
        train_size: number of training examples, N.
        batch_size: number of examples in a mini-batch, m.
        temperature: T, greater than 0, or a schedule. None is N/m (c_n = m).
        forward_probability: probability of a forward move, in (0, 1]. The paper has
            0.5.
        refresh_probability: probability of a refresh, in [0, 1). A refresh proposes the
            position of the state with the next mini-batch, and accepts by the energies
            alone. The paper has 0.
        beta: factor of the noise of backward moves, at least 1. "auto" chooses the
            first beta from the first forward proposals.
        beta_adaptation: "replay" chooses the smallest beta that would have given 90% of
            the best acceptance, at the end of each epoch of N // m steps. "paper" is
            the rule of the paper. None keeps beta fixed (with "auto", after its first
            choice), as the theory of Markov chains requires.
        noise_temperature: temperature of the proposal's noise, greater than 0. The
            variance of the noise is 2 learning_rate noise_temperature / N. None is 1/N,
            as in the paper. Choose T for low dimensions.
        normalized: whether the density ratio has its normalising constants. They make
            detailed balance exact, and suit low dimensions.
        prior: such as `mh.priors.Gaussian(scale)`. None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution. In the first step: the loss
            did not reach the sampler.

    Example:

    >>> import keras
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    >>> model.compile(
    ...     optimizer=mh.RSGLD(0.2, train_size=20000, batch_size=100),
    ...     loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    ... )

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", section 2.3 and 3.2.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int,
        batch_size: int,
        temperature: float | Schedule | None = None,
        forward_probability: float = 0.5,
        refresh_probability: float = 0.0,
        beta: float | str = "auto",
        beta_adaptation: str | None = "replay",
        noise_temperature: float | None = None,
        normalized: bool = False,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "rsgld",
        **options: Any,
    ) -> None:
        proposal, adaptation = adapted(
            beta, beta_adaptation, noise_temperature, normalized, forward_probability
        )
        super().__init__(
            learning_rate,
            algorithm=Metropolis(
                None,
                temperature,
                proposal,
                adaptation=adaptation,
                refresh_probability=refresh_probability,
            ),
            train_size=train_size,
            batch_size=batch_size,
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
