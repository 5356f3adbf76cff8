"""Proposals for `MHBT` and `MINT`: how the sampler moves before it decides."""

from collections.abc import Sequence
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
    >>> optimizer = mh.MHBT(
    ...     0.01, train_size=1000, batch_size=100, proposal=mh.proposals.RandomWalk()
    ... )

    Reference: Wu, Wang and Wong (2020), section 3.1.
    """

    uses_gradient = False

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        return Scales(step=0.0 * learning_rate, noise=learning_rate, beta=1.0)

    def propose(
        self,
        position: Position,
        gradient: Position,
        normals: Sequence[Tensor],
        uniform: Tensor,
        scales: Scales,
    ) -> tuple[Position, Tensor]:
        return proposals.random_walk(position, normals, scales), uniform < 2.0

    def log_q_ratio(
        self,
        delta: Position,
        gradient: Position,
        new_gradient: Position,
        scales: Scales,
    ) -> Tensor:
        return 0.0 * scales.noise  # symmetric

    def get_config(self) -> dict[str, Any]:
        return {}


@serializable
class Langevin(Proposal):
    """Move down the gradient and add normal noise, as SGLD does.

    Args:
        noise_temperature: temperature of the proposal's noise, greater than 0. The
            variance of the noise is 2 learning_rate noise_temperature / train_size.
            None is the temperature of the sampler: this is MALA, which suits low
            dimensions. A smaller value allows moves of many weights, and costs
            acceptance.

    Raises:
        ValueError: `noise_temperature` is not a positive number.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MINT(
    ...     0.1, train_size=1000, batch_size=100, proposal=mh.proposals.Langevin()
    ... )

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

    def propose(
        self,
        position: Position,
        gradient: Position,
        normals: Sequence[Tensor],
        uniform: Tensor,
        scales: Scales,
    ) -> tuple[Position, Tensor]:
        return proposals.langevin(position, gradient, normals, scales), uniform < 2.0

    def log_q_ratio(
        self,
        delta: Position,
        gradient: Position,
        new_gradient: Position,
        scales: Scales,
    ) -> Tensor:
        return proposals.langevin_log_ratio(delta, gradient, new_gradient, scales)

    def get_config(self) -> dict[str, Any]:
        return {"noise_temperature": self.noise_temperature}


@serializable
class ReversibleLangevin(Proposal):
    """Move down the gradient, or up the gradient with wider noise, as RSGLD does.

    Args:
        beta: factor of the noise of backward moves, at least 1.
        noise_temperature: temperature of the noise, as in `Langevin`, greater than 0.
            None is 1/train_size, which agrees with the paper's results for networks.
        forward_probability: probability of a forward move, in (0, 1]. The paper has
            0.5. With 1 every move goes forward.
        normalized: whether the density ratio has the normalising constants of both
            directions. With True, detailed balance is exact. The default, False, is
            the paper's ratio, without the constants. In low dimension it makes the
            variance too small. In high dimension nothing is accepted without it.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MHBT(
    ...     0.1,
    ...     train_size=1000,
    ...     batch_size=100,
    ...     proposal=mh.proposals.ReversibleLangevin(beta=2.0, normalized=True),
    ... )

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
        self.counts_weights = self.normalized

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        temperature = self.noise_temperature
        if temperature is None:
            temperature = 1.0 / train_size
        noise = noise_scale(learning_rate, temperature, train_size)
        return Scales(step=learning_rate, noise=noise, beta=self.beta)

    def propose(
        self,
        position: Position,
        gradient: Position,
        normals: Sequence[Tensor],
        uniform: Tensor,
        scales: Scales,
    ) -> tuple[Position, Tensor]:
        return proposals.reversible(
            position, gradient, normals, uniform, scales, self.forward_probability
        )

    def log_q_ratio(
        self,
        delta: Position,
        gradient: Position,
        new_gradient: Position,
        scales: Scales,
    ) -> Tensor:
        distances = proposals.squared_distances(delta, gradient, new_gradient, scales)
        dimension = tensors.size(gradient, like=scales.noise)
        return self.log_q_ratio_at(distances, scales.beta, dimension)

    def log_q_ratio_at(
        self, distances: SquaredDistances, beta: Tensor, dimension: int
    ) -> Tensor:
        return proposals.reversible_log_ratio(
            distances, beta, dimension, self.normalized, self.forward_probability
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "beta": self.beta,
            "noise_temperature": self.noise_temperature,
            "normalized": self.normalized,
            "forward_probability": self.forward_probability,
        }


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
