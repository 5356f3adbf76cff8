"""Preconditioned SGLD as a Keras optimizer."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import psgld
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.schedules import Schedule


@serializable
class PSGLD(Sampler):
    """Preconditioned SGLD: Langevin dynamics with RMSprop's step for each weight.

    It samples exp(-U/T), up to the bias of a finite step, of gradient noise, and of a
    curvature correction that is left out, as in the paper's experiments. The energy U
    in nats is train_size * loss - log prior. On a logistic regression of 565
    examples the standard deviation was 9 to 10% too large with batches of 113, and 24
    to 33% too large with all of the data (`examples/benchmarks/laws.py --only psgld`).
    The sampler keeps one copy of the weights.

    Args:
        learning_rate: factor of the preconditioned gradient of the mean loss, as in
            `keras.optimizers.RMSprop`. A number of at least 0, or a schedule.
        train_size: number of training examples, N. Defaults to "auto",
            which reads it from `fit`.
        decay: share of the second moment that each step keeps, in [0, 1). Defaults to
            0.99.
        epsilon: number added to the root of the second moment, greater than 0. The
            largest preconditioner is 1/epsilon. Defaults to 1e-5.
        temperature: T, at least 0, or a schedule. 1 gives the posterior. Defaults to 1.
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
    >>> optimizer = mh.PSGLD(1e-3, train_size=1000)

    Reference: Li, Chen, Carlson and Carin (2016), "Preconditioned stochastic gradient
    Langevin dynamics for deep neural networks", algorithm 1.
    """

    usual_rate = 0.001

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        decay: float = 0.99,
        epsilon: float = 1e-5,
        temperature: float | Schedule = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "psgld",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=psgld.PSGLD(None, temperature, decay, epsilon),
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
