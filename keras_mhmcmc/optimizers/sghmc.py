"""Stochastic gradient Hamiltonian Monte Carlo as a Keras optimizer."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import sghmc
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.schedules import Schedule


@serializable
class SGHMC(Sampler):
    """Stochastic gradient Hamiltonian Monte Carlo: SGD with momentum and noise.

    It samples exp(-U/T), up to the bias of a finite step and of gradient noise. The
    energy U in nats is train_size * loss - log prior. The sampler keeps one copy of the
    weights.

    On a Gaussian, let L be the curvature of U in some direction, so that the variance
    of the target is T / L. Let eta = learning_rate / N, and let mu be the momentum. Let
    V be the variance of the gradient of U/N over independent mini-batches. Then the
    variance of the samples in this direction is

        (T + learning_rate N V / (2 (1 - mu))) / (L (1 - eta L / (2 (1 + mu)))).

    At the same learning rate, the bias of the step is about 1 / (1 + mu) times that of
    `mh.SGLD`, and the bias of gradient noise is 1 / (1 - mu) times as large. Small
    batches therefore need a small learning rate.

    The formula above is for `integrator="euler"`. With "baoab" the variance is

        (T + learning_rate N V (1 + mu) / (4 (1 - mu) (1 - eta L / 4))) / L.

    So on a Gaussian "baoab" has no bias of the step. For mu near 1 its bias of gradient
    noise is about that of "euler". Both integrators need one gradient for each step.
    Take "baoab" if gradient noise is small: with all of the data in each batch.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum. A number of at least
            0, or a schedule.
        train_size: number of training examples, N. It sets the scale of the
            noise. Defaults to "auto", which reads it from `fit`.
        momentum: share of the velocity that each step keeps, in [0, 1). The friction is
            1 - momentum with "euler", and -log(momentum) in each step with "baoab".
            Defaults to 0.9.
        temperature: T, at least 0, or a schedule. 1 gives the posterior, 0 gives SGD.
            Defaults to 1.
        integrator: how a step moves. "euler" is SGD with momentum, and noise in the
            velocity. It is stable for eta L < 2 (1 + mu). "baoab" moves by half the
            velocity, applies friction and noise, and moves by half the new velocity. It
            is stable for eta L < 4. Over all later steps a gradient moves the weights
            by learning_rate / (1 - mu) times the gradient with "euler", and by
            learning_rate (1 + mu) / (2 (1 - mu)) times with "baoab". Defaults to
            "euler".
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
    >>> optimizer = mh.SGHMC(0.01, train_size=1000, momentum=0.9)

    Reference: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte
    Carlo", eq. (15); for "baoab", Leimkuhler and Matthews (2013), "Rational
    construction of stochastic numerical methods for molecular sampling".
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        momentum: float = 0.9,
        temperature: float | Schedule = 1.0,
        integrator: str = "euler",
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sghmc",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=sghmc.SGHMC(None, temperature, momentum, integrator),
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
