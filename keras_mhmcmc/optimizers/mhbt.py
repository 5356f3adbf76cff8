"""Mini-batch Metropolis-Hastings as Keras optimizers: MHBT and MINT."""

from typing import Any
from typing import Literal

from keras_mhmcmc import proposals
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms.metropolis import Metropolis
from keras_mhmcmc.algorithms.tempering import checked_alpha
from keras_mhmcmc.optimizers.network_defaults import network_settings
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.proposals import checked_proposal
from keras_mhmcmc.samplers.base import OF_OPTIMIZER
from keras_mhmcmc.schedules import Schedule


@serializable
class MHBT(Sampler):
    """Mini-batch Metropolis-Hastings with batch tempering, for any proposal.

    It samples exp(-U/T) approximately. The energy U in nats is train_size * loss -
    log prior. If each step draws its batch at random, weights and mini-batches I
    together have exactly the density exp(-U_I/T). `fit` with `shuffle=True` comes close
    to this. A fixed order of batches does not. A proposal whose loss or gradient is not
    finite is rejected. The sampler keeps two copies of the weights, one copy with
    `RandomWalk`.

    Args:
        learning_rate: step of the proposal, as in `keras.optimizers.SGD`; for
            `RandomWalk`, the standard deviation of the step. A number of at least 0, or
            a schedule.
        train_size: number of training examples, N. Defaults to "auto",
            which reads it from `fit`.
        batch_size: number of examples in a mini-batch, m.
        proposal: one of `mh.proposals`. None is `RandomWalk()`.
        temperature: T, greater than 0, or a schedule. None is N/m: energies of two
            batches are then compared at the weight of one batch. In the paper N/T is
            c_n. The bias falls with c_n, and the paper needs c_n below sqrt(m), that is
            T above N / sqrt(m). At the default the samples are wider than exp(-U/T): on
            a logistic regression (N = 565, m = 113) their variance was 4.2 times as
            large in the stiffest directions
            (`examples/benchmarks/laws.py --only metropolis`).
        refresh_probability: probability of a refresh, in [0, 1), for a reversible
            proposal. A refresh proposes the position of the state with the next
            mini-batch, and accepts by the energies alone. The paper has 0. None is 0.1
            for a reversible proposal, and 0 for others.
        warm_up: number of first steps that are plain gradient steps, for a reversible
            proposal. They are burn-in. None is that of `mh.RSGLD` for a reversible
            proposal, and 0 for others.
        rate_adaptation: whether the learning rate follows the forward acceptance, for a
            reversible proposal, until the first sample is kept. None is True for a
            reversible proposal whose rate is no schedule.
        prior: such as `mh.priors.Gaussian(scale)`. None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution. In the first step: the loss
            did not reach the sampler.

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
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        batch_size: int,
        proposal: proposals.Proposal | None = None,
        temperature: float | Schedule | None = None,
        refresh_probability: float | None = None,
        warm_up: int | None = None,
        rate_adaptation: bool | None = None,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "mhbt",
        **options: Any,
    ) -> None:
        proposal = checked_proposal(proposal, proposals.RandomWalk())
        settings = network_settings(
            proposal, learning_rate, refresh_probability, warm_up, rate_adaptation
        )
        super().__init__(
            learning_rate,
            algorithm=Metropolis(OF_OPTIMIZER, temperature, proposal, **settings),
            train_size=train_size,
            batch_size=batch_size,
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )


@serializable
class MINT(Sampler):
    """Mini-batch tempered MCMC: MHBT at the temperature N^(1 - lambda).

    Here lambda = alpha log(m)/log(N). Energies are compared at the weight
    N^lambda = m^alpha, a little less than the weight of one batch. The sampler samples
    exp(-U/T) approximately. The energy U in nats is train_size * loss - log prior. Like
    `MHBT`, it needs shuffled batches. With the learning rate
    `mh.schedules.GeometricCycle` it is CMINT. It keeps two copies of the weights, one
    copy with `RandomWalk`.

    Args:
        learning_rate: step of the proposal, as in `MHBT`.
        train_size: number of training examples, N, at least 2. Defaults to "auto",
            which reads it from `fit`.
        batch_size: number of examples in a mini-batch, m.
        alpha: in (0, 1]. A smaller alpha gives a higher temperature and a smaller bias;
            0.5 is c_n = sqrt(m). Defaults to 0.99. At the default the samples are wider
            than exp(-U/T): on the logistic regression of `MHBT` their variance was 4.4
            times as large in the stiffest directions.
        proposal: one of `mh.proposals`. None is `Langevin()`.
        refresh_probability: as in `MHBT`.
        warm_up: as in `MHBT`.
        rate_adaptation: as in `MHBT`.
        prior: such as `mh.priors.Gaussian(scale)`. None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution. In the first step: the loss
            did not reach the sampler.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MINT(0.1, train_size=10000, batch_size=100)
    >>> round(optimizer.temperature, 1)
    104.7

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        batch_size: int,
        alpha: float = 0.99,
        proposal: proposals.Proposal | None = None,
        refresh_probability: float | None = None,
        warm_up: int | None = None,
        rate_adaptation: bool | None = None,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "mint",
        **options: Any,
    ) -> None:
        proposal = checked_proposal(proposal, proposals.Langevin())
        settings = network_settings(
            proposal, learning_rate, refresh_probability, warm_up, rate_adaptation
        )
        super().__init__(
            learning_rate,
            algorithm=Metropolis(
                OF_OPTIMIZER, None, proposal, checked_alpha(alpha), **settings
            ),
            train_size=train_size,
            batch_size=batch_size,
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
