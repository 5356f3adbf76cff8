"""Proposals for `MHBT` and `MINT`: how the sampler moves before it decides."""

from typing import Any

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import noise_scale
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.proposals import Proposal
from keras_mhmcmc.samplers.parts.proposals import Scales
from keras_mhmcmc.samplers.parts.proposals import SquaredDistances

__all__ = ["Langevin", "Proposal", "RandomWalk", "ReversibleLangevin"]


def __dir__() -> list[str]:
    return __all__


_AT_LEAST_ONE = _validate.Interval(1.0)
_PROBABILITY = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)


@serializable
class RandomWalk(Proposal):
    """Add normal noise whose standard deviation is the learning rate.

    The proposal needs no gradient. It saves one copy of the weights.

    Example:

    >>> import keras_mhmcmc as mh
    >>> walk = mh.proposals.RandomWalk()
    >>> optimizer = mh.MHBT(0.01, train_size=1000, batch_size=100, proposal=walk)

    Reference: Wu, Wang and Wong (2020), section 3.1.
    """

    uses_gradient = False

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        return Scales(step=0.0 * learning_rate, noise=learning_rate, beta=1.0)

    def propose(self, *given: Any) -> tuple[Position, Tensor]:
        position, _, normals, uniform, scales = given
        return proposals.random_walk(position, normals, scales), uniform < 2.0

    def log_q_ratio(self, *move: Any) -> Tensor:
        return 0.0 * move[-1].noise  # symmetric


@serializable
class Langevin(Proposal):
    """Move down the gradient and add normal noise, as SGLD does.

    Args:
        noise_temperature: temperature of the noise, whose variance is
            2 learning_rate noise_temperature / train_size. Greater than 0. None is
            the temperature of the sampler: this is MALA, which suits low dimensions. A
            smaller value allows moves of many weights, and costs acceptance.

    Raises:
        ValueError: `noise_temperature` is not a positive number.

    Example:

    >>> import keras_mhmcmc as mh
    >>> move = mh.proposals.Langevin()
    >>> optimizer = mh.MINT(0.1, train_size=1000, batch_size=100, proposal=move)

    Reference: Wu, Wang and Wong (2020), eq. (5).
    """

    def __init__(self, noise_temperature: float | None = None) -> None:
        self.noise_temperature = _checked_noise_temperature(noise_temperature)

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        if self.noise_temperature is not None:
            temperature = self.noise_temperature
        noise = noise_scale(learning_rate, temperature, train_size)
        return Scales(step=learning_rate, noise=noise, beta=1.0)

    def propose(self, *given: Any) -> tuple[Position, Tensor]:
        position, gradient, normals, uniform, scales = given
        moved = proposals.langevin(position, gradient, normals, scales)
        return moved, uniform < 2.0

    def log_q_ratio(self, *move: Any) -> Tensor:
        return proposals.langevin_log_ratio(*move)


@serializable
class ReversibleLangevin(Proposal):
    """Move down the gradient, or up the gradient with wider noise, as RSGLD does.

    Args:
        beta: factor of the noise of backward moves, at least 1.
        noise_temperature: temperature of the noise, as in `Langevin`, greater than 0.
            None is 1/train_size, which agrees with the paper's results for networks.
        normalized: whether the density ratio has the normalising constants of both
            directions. With True, detailed balance is exact. Without them, as in the
            paper, the variance is too small in low dimension. With them, nothing is
            accepted in high dimension.
        forward_probability: probability of a forward move, in (0, 1]. The paper has
            0.5. With 1 every move goes forward.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> move = mh.proposals.ReversibleLangevin(beta=2.0, normalized=True)
    >>> optimizer = mh.MHBT(0.1, train_size=1000, batch_size=100, proposal=move)

    Reference: Wu, Wang and Wong (2020), eq. (6), (7) and (37).
    """

    has_backward = True

    def __init__(
        self,
        beta: float,
        noise_temperature: float | None = None,
        normalized: bool = False,
        forward_probability: float = 0.5,
    ) -> None:
        self.forward_probability = _validate.number(
            "forward_probability", forward_probability, _PROBABILITY
        )
        self.beta = _validate.number("beta", beta, _AT_LEAST_ONE)
        self.noise_temperature = _checked_noise_temperature(noise_temperature)
        self.normalized = _validate.choice("normalized", normalized, (True, False))

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        temperature = self.noise_temperature
        if temperature is None:
            temperature = 1.0 / train_size
        noise = noise_scale(learning_rate, temperature, train_size)
        return Scales(step=learning_rate, noise=noise, beta=self.beta)

    def propose(self, *given: Any) -> tuple[Position, Tensor]:
        share = self.forward_probability
        return proposals.reversible(*given, forward_probability=share)

    def log_q_ratio(self, *move: Any) -> Tensor:
        distances, (_, gradient, _, scales) = proposals.squared_distances(*move), move
        dimension = tensors.size(gradient, like=scales.noise)
        return self.log_q_ratio_at(distances, scales.beta, dimension)

    def log_q_ratio_at(
        self, distances: SquaredDistances, beta: Tensor, dimension: int
    ) -> Tensor:
        return proposals.reversible_log_ratio(
            distances, beta, dimension, self.normalized, self.forward_probability
        )


def checked_proposal(proposal: Any, default: Proposal) -> Proposal:
    """Return a proposal, `default` for None, or raise an error that lists them."""
    if proposal is None:
        return default
    return _validate.instance(
        "proposal",
        proposal,
        Proposal,
        "one of `mh.proposals`: RandomWalk(), Langevin(), ReversibleLangevin(beta)",
    )


def _checked_noise_temperature(value: Any) -> float | None:
    if value is None:
        return None
    return _validate.number("noise_temperature", value, _validate.POSITIVE)
