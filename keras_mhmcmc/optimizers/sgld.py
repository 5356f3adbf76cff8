"""Stochastic gradient Langevin dynamics as a Keras optimizer."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import sgld
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.schedules import Schedule


@serializable
class SGLD(Sampler):
    """Stochastic gradient Langevin dynamics: SGD with the right amount of noise.

    It samples exp(-U/T), up to the bias of a finite step and of gradient noise. The
    energy U in nats is train_size * loss - log prior. The sampler keeps no copy of the
    weights.

    On a Gaussian with precision L, with eta = learning_rate / N and V the variance of
    the gradient of U/N between independent mini-batches, the variance of the samples is

        (T + learning_rate N V / 2) / (L (1 - eta L / 2)).

    Args:
        learning_rate: factor of the gradient of the mean loss, as in
            `keras.optimizers.SGD`. A number of at least 0, or a schedule.
        train_size: number of training examples, N. It sets the scale of the
            noise. Defaults to "auto", which reads it from `fit`.
        temperature: T, at least 0, or a schedule. 1 gives the posterior, 0 gives SGD.
            Defaults to 1.
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

    >>> import keras
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    >>> model.compile(
    ...     optimizer=mh.SGLD(0.1),
    ...     loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    ... )

    Reference: Welling and Teh (2011), "Bayesian learning via stochastic gradient
    Langevin dynamics", eq. (4).
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        temperature: float | Schedule = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sgld",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=sgld.SGLD(None, temperature),
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
