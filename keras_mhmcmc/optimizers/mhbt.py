"""Mini-batch Metropolis-Hastings as Keras optimizers: MHBT and MINT."""

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc import proposals
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import metropolis
from keras_mhmcmc.optimizers.metropolis import MetropolisSampler
from keras_mhmcmc.optimizers.sampler import checked_temperature


@serializable
class MHBT(MetropolisSampler):
    """Mini-batch Metropolis-Hastings with batch tempering, for any proposal.

    Samples exp(-U/T) approximately, with U the energy in nats, train_size * loss -
    log prior. Weights and mini-batches I together have the density exp(-U_I/T) exactly,
    if each step draws its batch at random; `fit` with `shuffle=True` comes close, and a
    fixed order of batches does not. A loss or gradient that is not finite is a rejected
    proposal. Keeps two copies of the weights, one with `RandomWalk`.

    Args:
        learning_rate: step of the proposal: as in `keras.optimizers.SGD` for
            `Langevin` and `ReversibleLangevin`, the standard deviation of the step for
            `RandomWalk`; at least 0, or a schedule.
        train_size: number of training examples, N.
        batch_size: number of examples in a mini-batch, m.
        proposal: one of `mh.proposals`; defaults to a random walk.
        temperature: T, greater than 0, or a schedule. Defaults to N/m, at which the
            energies of two batches are compared at the weight of one batch. c_n in the
            paper is N/T; the bias falls with it, and the paper asks for c_n below
            sqrt(m), so for T above N / sqrt(m). At the default the samples are wider
            than exp(-U/T): on a logistic regression (N = 565, m = 113) their variance
            was 4.2 times as large in the stiffest directions
            (`examples/benchmarks/laws.py --only metropolis`).
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the draws repeatable; None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, in the first step, the loss
            did not arrive.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MHBT(
    ...     0.05, train_size=1000, batch_size=100, proposal=mh.proposals.Langevin()
    ... )

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", algorithm 1.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        batch_size,
        proposal=None,
        temperature=None,
        prior=None,
        seed=None,
        name="mhbt",
        **options,
    ):
        super().__init__(
            learning_rate,
            train_size=train_size,
            batch_size=batch_size,
            proposal=proposals.checked(proposal, proposals.RandomWalk()),
            temperature=batch_temperature(temperature, train_size, batch_size),
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )

    def get_config(self):
        """The arguments of the constructor."""
        proposal = keras.saving.serialize_keras_object(self.proposal)
        return super().get_config() | {"proposal": proposal}


@serializable
class MINT(MetropolisSampler):
    """Mini-batch tempered MCMC: MHBT at the temperature N^(1 - lambda).

    lambda = alpha log(m)/log(N), so that the energies are compared with the weight
    N^lambda = m^alpha of a little less than one batch. Samples exp(-U/T)
    approximately, with U the energy in nats; as `MHBT` it needs shuffled batches. CMINT
    is MINT with the learning rate `mh.schedules.GeometricCycle`. Keeps two copies of
    the weights, one with `RandomWalk`.

    Args:
        learning_rate: step of the proposal, as in `MHBT`.
        train_size: number of training examples, N, at least 2.
        batch_size: number of examples in a mini-batch, m.
        alpha: in (0, 1]; smaller is a higher temperature and a smaller bias; 0.5 is
            c_n = sqrt(m). At the default the samples are wider than exp(-U/T): on a
            logistic regression (N = 565, m = 113) their variance was 4.4 times as large
            in the stiffest directions, as in `MHBT`.
        proposal: one of `mh.proposals`; defaults to `Langevin()`.
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the draws repeatable; None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, in the first step, the loss
            did not arrive.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MINT(0.1, train_size=10000, batch_size=100)
    >>> round(optimizer.temperature, 1)
    104.7

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        batch_size,
        alpha=0.99,
        proposal=None,
        prior=None,
        seed=None,
        name="mint",
        **options,
    ):
        share = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
        alpha = _validate.number("alpha", alpha, share)
        super().__init__(
            learning_rate,
            train_size=train_size,
            batch_size=batch_size,
            proposal=proposals.checked(proposal, proposals.Langevin()),
            temperature=_mint_temperature(alpha, train_size, batch_size),
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
        self.alpha = alpha

    def get_config(self):
        """The arguments of the constructor."""
        config = super().get_config()
        del config["temperature"]
        proposal = keras.saving.serialize_keras_object(self.proposal)
        return config | {"alpha": self.alpha, "proposal": proposal}


def batch_temperature(temperature, train_size, batch_size):
    """The temperature, N/m unless one is given."""
    if temperature is not None:
        return checked_temperature(temperature, _validate.POSITIVE)
    train_size = _validate.integer("train_size", train_size, 1)
    return train_size / _validate.batch_size(batch_size, train_size)


def _mint_temperature(alpha, train_size, batch_size):
    train_size = _validate.integer("train_size", train_size, 2)
    batch_size = _validate.batch_size(batch_size, train_size)
    return metropolis.mint_temperature(alpha, train_size, batch_size)
