"""Stochastic gradient Langevin dynamics (SGLD).

Paper: Welling and Teh (2011), "Bayesian learning via stochastic gradient Langevin
dynamics", eq. (4). The paper's epsilon_t is 2 epsilon / N here, and its T is 1.

Target: exp(-U(theta)/T), up to the bias of a finite step and of gradient noise.

Equation, with Z standard normal:

    theta <- theta - epsilon grad(U/N) + sqrt(2 epsilon T / N) Z
"""

import dataclasses
from typing import Any
from typing import Literal
from typing import NamedTuple

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors


class State(NamedTuple):
    point: base.Position


@dataclasses.dataclass(frozen=True)
class sgld(base.Diffusion):
    """Make stochastic gradient Langevin dynamics, a kernel for `mh.sample`.

    It samples exp(-U/T), up to the bias of a finite step and of gradient noise. The
    energy U in nats is minus the log density. On a Gaussian with precision L, with
    eta = learning_rate / N and V the variance of the gradient of U/N between
    independent mini-batches, the variance of the samples is

        (T + learning_rate N V / 2) / (L (1 - eta L / 2)).

    Args:
        learning_rate: factor of the gradient of U/N, as in `keras.optimizers.SGD`. With
            `log_density` N is 1. A number of at least 0, or a schedule.
        temperature: T, at least 0, or a schedule. 1 gives the posterior, 0 gives SGD.
            Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sgld(0.1)

    Reference: Welling and Teh (2011), eq. (4).
    """

    learning_rate: base.Rate
    _: dataclasses.KW_ONLY
    temperature: base.Rate = 1.0

    def init(self, position: base.Position) -> State:
        return State(position)

    def move(self, current: base.Current, evaluation: base.Evaluation) -> State:
        rate, size = evaluation.learning_rate, evaluation.train_size
        noise = base.noise_scale(rate, evaluation.temperature, size)
        terms = (-rate * evaluation.multiplier, current.gradient)
        position = current.position
        return State(tensors.add_terms(position, terms, (noise, evaluation.normals)))


@serializable
class SGLD(Sampler):
    """Stochastic gradient Langevin dynamics: SGD with the right amount of noise.

    It samples exp(-U/T), up to the bias of a finite step and of gradient noise that
    `mh.kernels.sgld` gives. The energy U in nats is train_size * loss - log prior. The
    sampler keeps no copy of the weights.

    Other arguments are those of `mh.kernels.sgld`.

    Args:
        train_size: number of training examples, N. It sets the scale of the
            noise. Defaults to "auto", which reads it from `fit`.
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
    >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    >>> model.compile(optimizer=mh.SGLD(0.1), loss=loss)

    Reference: that of `mh.kernels.sgld`.
    """

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        temperature: base.Rate = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "sgld",
        **options: Any,
    ) -> None:
        algorithm = base.of_optimizer(sgld, locals())
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, nan_policy=nan_policy)
