"""Stochastic gradient Hamiltonian Monte Carlo as a Keras optimizer."""

from typing import Any

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import sghmc
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.schedules import Schedule


@serializable
class SGHMC(Sampler):
    """Stochastic gradient Hamiltonian Monte Carlo: SGD with momentum, and noise.

    Samples exp(-U/T), with U the energy in nats, train_size * loss - log prior, up to
    the bias of a finite step and of gradient noise. Keeps one copy of the weights.

    On a Gaussian with precision L, with eta = learning_rate / N, mu the momentum and V
    the variance of the gradient of U/N between independent mini-batches, the variance
    of the samples is

        (T + learning_rate N V / (2 (1 - mu))) / (L (1 - eta L / (2 (1 + mu)))).

    At the same learning rate the bias of the step is smaller than that of `mh.SGLD`, by
    the factor 1 / (1 + mu), and that of gradient noise is 1 / (1 - mu) times as large:
    small batches ask for a small rate.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum; a number that is at
            least 0, or a schedule.
        train_size: number of training examples, N. It sets the scale of the noise.
        momentum: share of the velocity that is kept at each step, in [0, 1). It is not
            the friction, which is 1 - momentum.
        temperature: T, at least 0, or a schedule. 1 is the posterior, 0 is SGD.
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable; None draws one.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`; "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, or an option of the Keras base
            class is given that would change the sampled law.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGHMC(0.01, train_size=1000, momentum=0.9)

    Reference: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte
    Carlo", eq. (15).
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int,
        momentum: float = 0.9,
        temperature: float | Schedule = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sghmc",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=sghmc.SGHMC(None, temperature, momentum),
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
