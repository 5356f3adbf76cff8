"""Reversible SGLD with an adapted beta as a Keras optimizer."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms.beta_adaptation import BetaAdaptation
from keras_mhmcmc.algorithms.metropolis import Metropolis
from keras_mhmcmc.algorithms.tempering import root_weight
from keras_mhmcmc.optimizers.network_defaults import REFRESH_PROBABILITY
from keras_mhmcmc.optimizers.network_defaults import WARM_UP
from keras_mhmcmc.optimizers.network_defaults import adaptation_or_none
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.proposals import ReversibleLangevin
from keras_mhmcmc.samplers.base import OF_OPTIMIZER
from keras_mhmcmc.schedules import Schedule


@serializable
class RSGLD(Sampler):
    """Mini-batch Metropolis-Hastings with reversible SGLD proposals.

    Each proposal moves down the gradient (forward) or up the gradient with noise
    beta times wider (backward). It is accepted or rejected on the next
    mini-batch. A proposal whose loss or gradient is not finite is rejected. The run
    begins with `warm_up` plain gradient steps. Without them, and with the paper's other
    settings, a chain of a convolutional network freezes.

    With `normalized=True` and a fixed beta the sampler samples exp(-U/T) approximately.
    The energy U in nats is train_size * loss - log prior. The defaults, the paper's
    ratio and noise, let networks move, but make the sampler nearly an optimizer. On a
    Bayesian logistic regression (N = 565, d = 31, learning rate 0.5) a chain of 6,000
    steps had 6 to 8% of the posterior's standard deviation, and 11 to 14% with the
    paper's settings (`examples/benchmarks/laws.py --only rsgld --steps 6000`). The
    sampler keeps two copies of the weights.

    Args:
        learning_rate: epsilon, as in `keras.optimizers.SGD`. A number of at least 0, or
            a schedule.
        train_size: number of training examples, N. Defaults to "auto",
            which reads it from `fit`.
        batch_size: number of examples in a mini-batch, m.
        temperature: T, greater than 0, or a schedule. None is N / (2 sqrt(m)), so that
            c_n = 2 sqrt(m): refreshes are then accepted as often with any m. The paper
            has N/m (c_n = m).
        forward_probability: probability of a forward move, in (0, 1]. The paper has
            0.5.
        refresh_probability: probability of a refresh, in [0, 1). A refresh proposes the
            position of the state with the next mini-batch, and accepts by the energies
            alone. The paper has 0.
        warm_up: number of first steps that are plain gradient steps, at least 0. They
            are burn-in: `mh.PosteriorSamples` keeps no sample of them, and acceptance
            is not reported. None is 500. If `mh.PosteriorSamples` is passed to the
            first `fit`, None is at most a quarter of its steps; with a long `burn_in`,
            half of that, up to ten epochs of N // m steps. The paper has 0.
        rate_adaptation: whether the learning rate follows the acceptance of forward
            moves after the warm-up. It falls by 30% after a window in which fewer than
            a quarter are accepted, and rises by 10% again, up to the rate that was
            given, where more than half are. Windows have 16, 32, 64, ... forward moves,
            up to an epoch. The first kept sample freezes the rate: choose the `burn_in`
            of `mh.PosteriorSamples` so that some windows end before it. The logs have
            the rate as `learning_rate`. The paper has False.
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
        train_size: int | Literal["auto"] = "auto",
        batch_size: int,
        temperature: float | Schedule | None = None,
        forward_probability: float = 0.9,
        refresh_probability: float = REFRESH_PROBABILITY,
        warm_up: int | None = None,
        rate_adaptation: bool = True,
        beta: float | str = "auto",
        beta_adaptation: str | None = "replay",
        noise_temperature: float | None = None,
        normalized: bool = False,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "rsgld",
        **options: Any,
    ) -> None:
        adaptation = BetaAdaptation.of(beta, beta_adaptation)
        proposal = ReversibleLangevin(
            adaptation.first or 1.0, noise_temperature, normalized, forward_probability
        )
        super().__init__(
            learning_rate,
            algorithm=Metropolis(
                OF_OPTIMIZER,
                temperature,
                proposal,
                adaptation=adaptation,
                refresh_probability=refresh_probability,
                warm_up=WARM_UP if warm_up is None else warm_up,
                rate_adaptation=adaptation_or_none(rate_adaptation),
                energy_weight=root_weight,
            ),
            train_size=train_size,
            batch_size=batch_size,
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
