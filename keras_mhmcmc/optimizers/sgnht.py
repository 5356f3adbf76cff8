"""The stochastic gradient Nose-Hoover thermostat as a Keras optimizer."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import sgnht
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.schedules import Schedule


@serializable
class SGNHT(Sampler):
    """Stochastic gradient Nose-Hoover thermostat: SGHMC whose friction adapts.

    It samples exp(-U/T), up to the bias of a finite step. The energy U in nats is
    train_size * loss - log prior. The sampler keeps one copy of the weights, and one
    number for each chain: the thermostat, which is the friction of the next step.

    Mini-batches make the velocities of `mh.SGHMC` hotter than T, and its samples too
    wide. Here the thermostat rises while the velocities are hotter than T, and falls
    while they are colder. So it absorbs gradient noise of unknown size, if the noise is
    the same in all directions and at all positions. Otherwise it absorbs the mean over
    the weights: directions with more noise stay too hot, and others become too cold.

    Let eta = learning_rate / N, let L be the precision of a Gaussian that is the same
    in all directions, and let V be the variance of the gradient of U/N between
    independent mini-batches. For many weights the variance of the samples is T / L, and
    the mean xi of the thermostat solves

        xi (1 - eta L / (2 (2 - xi))) = 1 - momentum + learning_rate N V / (2 T).

    The right side must be below 1, which is the largest thermostat. A thermostat that
    stays at 1 in `diagnostics()` says that it is not: then the samples are too wide.
    Lower the learning rate, or take larger batches. The thermostat follows the noise in
    about xi / thermostat_rate steps, which are part of the burn-in.

    With few weights the thermostat fluctuates by sqrt(thermostat_rate / weights). At
    eta L = 0.1 the variance of a single weight was 0.4% too small at momentum 0.9, 1.6%
    at 0.8 and 6.3% at 0.6 (standard errors 0.06% and less). The bias falls as
    1 / weights.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum. A number of at least
            0, or a schedule.
        train_size: number of training examples, N. It sets the scale of the
            noise. Defaults to "auto", which reads it from `fit`.
        momentum: share of the velocity that a step keeps without gradient noise, in
            [0, 1). 1 - momentum is the first value of the thermostat. Defaults to 0.9.
        temperature: T, at least 0, or a schedule. 1 gives the posterior. At 0 the
            thermostat stays as it is, and the sampler is SGD with momentum. Defaults to
            1.
        thermostat_rate: what the thermostat changes by in a step whose velocities are
            twice as hot as T, in [0, 1]. 0 gives `mh.SGHMC`. The paper has
            learning_rate / N, which is very slow for networks. Defaults to None,
            (1 - momentum)^2 / 2: the fastest one that does not swing.
        prior: such as `mh.priors.Gaussian(scale)`. None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        nan_policy: what to do when the loss or a gradient is NaN or infinite. The chain
            then stands still. At the end of the epoch "stop" warns, and
            `mh.PosteriorSamples` ends `fit`; "raise" raises an error.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, with `nan_policy="raise"`.
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGNHT(0.01, train_size=1000, momentum=0.9)

    Reference: Ding, Fang, Babbush, Chen, Skeel and Neven (2014), "Bayesian sampling
    using stochastic gradient thermostats", algorithm 2.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        momentum: float = 0.9,
        temperature: float | Schedule = 1.0,
        thermostat_rate: float | None = None,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sgnht",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=sgnht.SGNHT(None, temperature, momentum, thermostat_rate),
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
