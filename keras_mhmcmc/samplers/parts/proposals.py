"""Proposals of Metropolis-Hastings: where a move goes, and how likely its way back is.

Paper: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", eq. (5) to (7), and eq. (37) and (38) of appendix D of the preprint. The
paper's ascent direction g of the mean log-likelihood is minus our `gradient`, so that
the signs read as in SGD.

Equations, with Z standard normal and Delta = theta' - theta:

         random walk   theta' = theta + delta Z
    (5)  Langevin      theta' = theta - epsilon grad + s Z
    (6)  reversible    theta' = theta - epsilon grad + s Z       with probability p
                       theta' = theta + epsilon grad + s beta Z  with probability 1 - p

    s = sqrt(2 epsilon T_noise / N).  The paper has T_noise = 1/N and p = 1/2.

The density of a reversible move is a mixture of both directions. Up to the constant
(2 pi s^2)^(-d/2), which both ways have,

    (7)  q(theta -> theta') = p exp(-out_forward)
                              + (1 - p) gamma exp(-out_backward / beta^2)
         out_forward = |Delta + epsilon grad|^2 / (2 s^2)
         out_backward = |Delta - epsilon grad|^2 / (2 s^2)
    (37) gamma = 1: the paper drops the normalising constants, gamma = beta^(-d)

`normalized=True` keeps gamma = beta^(-d), which gives exact detailed balance. For the
way back, with grad' the gradient at theta', back_forward is
|Delta - epsilon grad'|^2 / (2 s^2); back_backward has the other sign.

With d weights the distances are about d/2, and float32 would lose their difference. But
two distances differ by inner products:

    change_forward = back_forward - out_forward = -epsilon (P + epsilon Q) / (2 s^2)
    change_backward = back_backward - out_backward = epsilon (P - epsilon Q) / (2 s^2)
    P = 2 Delta.(grad + grad'),  Q = |grad|^2 - |grad'|^2

    log_odds_backward = out_forward - out_backward / beta^2 + log(gamma (1 - p) / p)
    p_backward = 1 / (1 + exp(-log_odds_backward)),   p_forward = 1 - p_backward

    log q(theta' -> theta) - log q(theta -> theta')
        = log(p_forward exp(-change_forward)
              + p_backward exp(-change_backward / beta^2))

| paper             | name                  | shape              | unit                |
|-------------------|-----------------------|--------------------|---------------------|
| -g                | `gradient`            | list of tensors    | nats/example/weight |
| epsilon           | `step`                | scalar, () or (K,) | weight^2 example/nat|
| sqrt(2 epsilon)/n | `noise`, s            | scalar, () or (K,) | weights             |
| delta             | `noise`               | scalar, () or (K,) | weights             |
| 1/2, here p       | `forward_probability` | float              | 1                   |
"""

import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import Configurable
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import POSITIVE
from keras_mhmcmc.samplers.base import UP_TO_ONE
from keras_mhmcmc.samplers.base import OrNone
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import checked
from keras_mhmcmc.samplers.base import noise_scale
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

AT_LEAST_ONE = _validate.Interval(1.0)
HEAT = OrNone(POSITIVE)  # of the noise


class Scales(NamedTuple):
    """What drew a proposal; both directions of its density use these values."""

    step: Tensor  # epsilon
    noise: Tensor  # s
    beta: Tensor  # widening of the backward noise; 1 where there is no backward move


STILL = Scales(step=0.0, noise=0.0, beta=1.0)  # a move that stays where it is


class SquaredDistances(NamedTuple):
    """Two squared distances and two differences of such, all divided by 2 s^2."""

    out_forward: Tensor  # |Delta + epsilon grad|^2
    out_backward: Tensor  # |Delta - epsilon grad|^2
    change_forward: Tensor  # |Delta - epsilon grad'|^2 - |Delta + epsilon grad|^2
    change_backward: Tensor  # |Delta + epsilon grad'|^2 - |Delta - epsilon grad|^2


class Proposal(Configurable):
    """Abstract: how a move is drawn, and how likely its way back is."""

    # Whether the gradient of the state is needed, a copy of the weights.
    uses_gradient = True
    # Whether moves go in two directions, which are counted apart.
    has_backward = False

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        """Return the scales that the next move is drawn with."""
        raise NotImplementedError

    def propose(
        self,
        position: Position,
        gradient: Position,
        normals: Sequence[Tensor],
        uniform: Tensor,
        scales: Scales,
    ) -> tuple[Position, Tensor]:
        """Return the proposed position, and whether the move goes forward."""
        raise NotImplementedError

    def log_q_ratio(
        self,
        delta: Position,
        gradient: Position,
        new_gradient: Position,
        scales: Scales,
    ) -> Tensor:
        """Return log q(theta' -> theta) - log q(theta -> theta'), () or (K,)."""
        raise NotImplementedError

    def log_q_ratio_at(
        self, distances: SquaredDistances, beta: Tensor, dimension: int
    ) -> Tensor:
        """Return the same under `beta`, for proposals whose beta is adapted.

        `beta` may have one more axis than the distances: a ratio for each value.
        """
        raise NotImplementedError


def only_if_reversible(proposal: Proposal, **settings: Any) -> None:
    for name, value in settings.items():
        if value and not proposal.has_backward:
            raise ValueError(
                f"Argument `{name}` must be {type(value)()!r} unless the proposal is "
                "`mh.proposals.ReversibleLangevin(beta)`. "
                f"Received: {name}={value}, proposal={proposal!r}"
            )


def langevin(
    position: Position, gradient: Position, normals: Sequence[Tensor], scales: Scales
) -> Position:
    step, noise = -scales.step, scales.noise
    return tensors.add_terms(position, (step, gradient), (noise, normals))


def langevin_log_ratio(
    delta: Position, gradient: Position, new_gradient: Position, scales: Scales
) -> Tensor:
    """Return log q(theta' -> theta) - log q(theta -> theta') of a Langevin move."""
    lists = delta, gradient, new_gradient
    products = tensors.sum_products(_pairs, *lists, like=scales.noise)
    change = _change(products, scales.step)
    return -_inverse_variance(scales.noise) * change


def squared_distances(
    delta: Position, gradient: Position, new_gradient: Position, scales: Scales
) -> SquaredDistances:
    """Return the squared distances of a move, without cancellation in float32."""
    step, noise = scales.step, scales.noise

    def pairs(delta: Tensor, gradient: Tensor, new_gradient: Tensor) -> list[Any]:
        along = ops.cast(tensors.along_chains(step, delta), delta.dtype)
        out = delta + along * gradient
        return [*_pairs(delta, gradient, new_gradient), (out, out)]

    lists = delta, gradient, new_gradient
    *products, out = tensors.sum_products(pairs, *lists, like=noise)
    scale = _inverse_variance(noise)
    return SquaredDistances(
        out_forward=scale * out,
        out_backward=scale * (out - 4.0 * step * products[0]),
        change_forward=scale * _change(products, step),
        change_backward=scale * _change(products, -step),
    )


def reversible_log_ratio(
    distances: SquaredDistances,
    beta: Tensor,
    dimension: int,
    normalized: bool,
    forward_probability: float,
) -> Tensor:
    """Return log q(theta' -> theta) - log q(theta -> theta') of a reversible move.

    `beta` may have one more axis than the distances: one ratio for each of its values.
    """
    log_odds_backward = -math.inf  # no move goes backward
    if forward_probability < 1.0:
        log_odds_backward = math.log1p(-forward_probability)
        log_odds_backward -= math.log(forward_probability)
    if normalized:
        log_odds_backward = log_odds_backward - dimension * ops.log(beta)
    widening = 1.0 / ops.square(beta)
    log_odds_backward = (
        distances.out_forward - distances.out_backward * widening + log_odds_backward
    )
    return ops.logaddexp(
        ops.log_sigmoid(-log_odds_backward) - distances.change_forward,
        ops.log_sigmoid(log_odds_backward) - distances.change_backward * widening,
    )


def strong_gradient_limit(distances: SquaredDistances) -> Tensor:
    """Return the beta at which the strong-gradient regime ends, from a forward move.

    Above it, the wide Gaussian of the backward direction explains the forward move
    better than the Gaussian that drew it: out_backward / beta^2 < out_forward. For a
    long gradient it is 2 epsilon |grad| / (s sqrt(d)), where eq. (38) changes sign.
    """
    ratio = distances.out_backward / ops.maximum(distances.out_forward, 1e-30)
    return ops.sqrt(ops.maximum(ratio, 1.0))


def onset_of_backward(distances: SquaredDistances) -> Tensor:
    """Return sqrt(a) |grad'|, a = epsilon^2 / (2 s^2), from a forward move.

    From about this beta on backward moves are accepted: the noise of one weight,
    beta s sqrt(2), is as long as the whole step epsilon |grad'|. Gradients of states
    are shorter than grad': a state waits longest where its batch has a short one.
    """
    # a |grad|^2, up to noise, and a (|grad'|^2 - |grad|^2)
    here = 0.25 * (distances.out_backward - distances.out_forward)
    change = 0.5 * (distances.change_forward + distances.change_backward)
    return ops.sqrt(ops.maximum(here + change, 0.0))


def strong_gradient_beta(gradient: Position, scales: Scales, like: Tensor) -> Tensor:
    """Return a beta in the middle of the regime: epsilon |grad| / (s sqrt(d)).

    The regime ends at twice this value. `like` is () or (K,), for K chains.
    """
    length = ops.sqrt(tensors.sum_squares(gradient, like=like))
    root = tensors.size(gradient, like=like) ** 0.5
    beta = scales.step * length / (ops.maximum(scales.noise, 1e-30) * root)
    return ops.maximum(beta, 1.0)


def _pairs(delta: Tensor, gradient: Tensor, new_gradient: Tensor) -> list[Any]:
    return [
        (delta, gradient),
        (delta, new_gradient),
        (gradient, gradient),
        (new_gradient, new_gradient),
    ]


def _change(products: Sequence[Tensor], step: Tensor) -> Tensor:
    """Return |Delta - step grad'|^2 - |Delta + step grad|^2."""
    here, there, squares, new_squares = products
    return -step * (2.0 * (here + there) + step * (squares - new_squares))


def _inverse_variance(noise: Tensor) -> Tensor:
    """Return 1 / (2 s^2), and 0 where nothing moves, since s is 0."""
    variance = 2.0 * ops.square(noise)
    return ops.where(variance > 0, 1.0 / ops.maximum(variance, 1e-37), 0.0)


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
        return tensors.add_scaled(position, scales.noise, normals), uniform < 2.0

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
        self.noise_temperature = checked("noise_temperature", noise_temperature, HEAT)

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        if self.noise_temperature is not None:
            temperature = self.noise_temperature
        noise = noise_scale(learning_rate, temperature, train_size)
        return Scales(step=learning_rate, noise=noise, beta=1.0)

    def propose(self, *given: Any) -> tuple[Position, Tensor]:
        position, gradient, normals, uniform, scales = given
        return langevin(position, gradient, normals, scales), uniform < 2.0

    def log_q_ratio(self, *move: Any) -> Tensor:
        return langevin_log_ratio(*move)


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
        self.forward_probability = checked(
            "forward_probability", forward_probability, UP_TO_ONE
        )
        self.beta = checked("beta", beta, AT_LEAST_ONE)
        self.noise_temperature = checked("noise_temperature", noise_temperature, HEAT)
        self.normalized = checked("normalized", normalized, (True, False))

    def scales(
        self, learning_rate: Tensor, temperature: Tensor, train_size: int
    ) -> Scales:
        temperature = self.noise_temperature
        if temperature is None:
            temperature = 1.0 / train_size
        noise = noise_scale(learning_rate, temperature, train_size)
        return Scales(step=learning_rate, noise=noise, beta=self.beta)

    def propose(self, *given: Any) -> tuple[Position, Tensor]:
        position, gradient, normals, uniform, scales = given
        forward = uniform < self.forward_probability
        step = ops.where(forward, -scales.step, scales.step)
        noise = ops.where(forward, scales.noise, scales.noise * scales.beta)
        return tensors.add_terms(position, (step, gradient), (noise, normals)), forward

    def log_q_ratio(self, *move: Any) -> Tensor:
        distances, (_, gradient, _, scales) = squared_distances(*move), move
        dimension = tensors.size(gradient, like=scales.noise)
        return self.log_q_ratio_at(distances, scales.beta, dimension)

    def log_q_ratio_at(
        self, distances: SquaredDistances, beta: Tensor, dimension: int
    ) -> Tensor:
        return reversible_log_ratio(
            distances, beta, dimension, self.normalized, self.forward_probability
        )


def checked_proposal(proposal: Any, default: Proposal) -> Proposal:
    if proposal is None:
        return default
    return _validate.instance(
        "proposal",
        proposal,
        Proposal,
        "one of `mh.proposals`: RandomWalk(), Langevin(), ReversibleLangevin(beta)",
    )
