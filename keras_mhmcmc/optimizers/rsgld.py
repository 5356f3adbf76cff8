"""Reversible SGLD with an adapted beta as a Keras optimizer."""

from typing import Any

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms.beta_adaptation import BetaAdaptation
from keras_mhmcmc.algorithms.metropolis import Metropolis
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.proposals import ReversibleLangevin
from keras_mhmcmc.schedules import Schedule


@serializable
class RSGLD(Sampler):
    """Mini-batch Metropolis-Hastings with reversible SGLD proposals.

    A step goes down the gradient, or, as often, up it with noise that is wider by a
    factor beta, and is then accepted or rejected on the next mini-batch.
    Samples exp(-U/T) approximately with `normalized=True` and a fixed beta, where U is
    the energy in nats, train_size * loss - log prior. The paper's ratio and noise, the
    defaults, move networks, and are nearly an optimizer: on a Bayesian
    logistic regression (N = 565, d = 31, learning rate 0.5) a chain of 2,000 to 20,000
    steps had 9 to 21% of the posterior's standard deviation
    (`examples/benchmarks/laws.py --only rsgld`).
    A loss or gradient that is not finite is a rejected proposal. Keeps two copies of
    the weights.

    Args:
        learning_rate: epsilon, as in `keras.optimizers.SGD`; at least 0, or a schedule.
        train_size: number of training examples, N.
        batch_size: number of examples in a mini-batch, m.
        temperature: T, greater than 0, or a schedule. Defaults to N/m (c_n = m).
        beta: factor, at least 1, of the backward move's noise; "auto" chooses the
            first one from the first forward proposals.
        beta_adaptation: "replay" chooses, at the end of each epoch of N // m steps,
            the smallest beta that would have given 90% of the best acceptance;
            "paper" is the rule of the paper; None keeps beta fixed, which is what
            the theory of Markov chains asks for (with "auto": after its first choice).
        noise_temperature: temperature of the proposal's noise, whose variance is
            2 learning_rate noise_temperature / N; greater than 0. Defaults to 1/N, as
            in the paper; T is the choice for low dimensions.
        normalized: if True, the density ratio carries its normalising constants, and
            detailed balance is exact: for low dimensions.
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the draws repeatable; None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, in the first step, the loss
            did not arrive.

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
        beta: float | str = "auto",
        beta_adaptation: str | None = "replay",
        noise_temperature: float | None = None,
        normalized: bool = False,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "rsgld",
        **options: Any,
    ) -> None:
        adaptation = BetaAdaptation.of(beta, beta_adaptation, normalized)
        proposal = ReversibleLangevin(
            adaptation.first or 1.0, noise_temperature, normalized
        )
        super().__init__(
            learning_rate,
            algorithm=Metropolis(None, temperature, proposal, adaptation=adaptation),
            train_size=train_size,
            batch_size=batch_size,
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
