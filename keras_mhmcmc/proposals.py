"""Proposals for `MHBT` and `MINT`: what the sampler's moves look like."""

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import Configurable
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import langevin
from keras_mhmcmc.algorithms import moves
from keras_mhmcmc.algorithms import tensors

__all__ = ["Langevin", "Proposal", "RandomWalk", "ReversibleLangevin"]


def __dir__() -> list[str]:
    return __all__


_AT_LEAST_ONE = _validate.Interval(1.0)


class Proposal(Configurable):
    """Abstract: how a move is drawn, and how likely its way back is."""

    # Whether the gradient of the state is needed, a copy of the weights.
    uses_gradient = True
    # Whether moves go in two directions, which are counted apart.
    has_backward = False

    def scales(self, learning_rate, temperature, train_size):
        """What the next move is drawn with, a `moves.Scales`."""
        raise NotImplementedError

    def propose(self, position, gradient, normals, uniform, scales):
        """The proposed position, and whether the move goes forward."""
        raise NotImplementedError

    def log_ratio(self, delta, gradient, new_gradient, scales, chains=False):
        """log density of the way back minus that of the way there."""
        raise NotImplementedError


@serializable
class RandomWalk(Proposal):
    """A step of normal noise whose standard deviation is the learning rate.

    Needs no gradient, and one copy of the weights less than the other proposals.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MHBT(
    ...     0.01, train_size=1000, batch_size=100, proposal=mh.proposals.RandomWalk()
    ... )

    Reference: Wu, Wang and Wong (2020), section 3.1.
    """

    uses_gradient = False

    def scales(self, learning_rate, temperature, train_size):
        return moves.Scales(step=0.0 * learning_rate, noise=learning_rate, beta=1.0)

    def propose(self, position, gradient, normals, uniform, scales):
        return moves.random_walk(position, normals, scales), uniform < 2.0

    def log_ratio(self, delta, gradient, new_gradient, scales, chains=False):
        return 0.0 * scales.noise  # symmetric

    def get_config(self):
        return {}


@serializable
class Langevin(Proposal):
    """The SGLD move: a gradient step with normal noise.

    Args:
        noise_temperature: temperature of the proposal's noise, whose variance is
            2 learning_rate noise_temperature / train_size; greater than 0. Defaults to
            the sampler's temperature, the choice of MALA, which suits low dimensions.
            A smaller value makes smaller moves of many weights; it costs acceptance.

    Raises:
        ValueError: `noise_temperature` is not a positive number.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MINT(
    ...     0.1, train_size=1000, batch_size=100, proposal=mh.proposals.Langevin()
    ... )

    Reference: Wu, Wang and Wong (2020), eq. (5).
    """

    def __init__(self, noise_temperature=None):
        self.noise_temperature = _noise_temperature(noise_temperature)

    def scales(self, learning_rate, temperature, train_size):
        if self.noise_temperature is not None:
            temperature = self.noise_temperature
        noise = langevin.noise_scale(learning_rate, temperature, train_size)
        return moves.Scales(step=learning_rate, noise=noise, beta=1.0)

    def propose(self, position, gradient, normals, uniform, scales):
        return moves.langevin(position, gradient, normals, scales), uniform < 2.0

    def log_ratio(self, delta, gradient, new_gradient, scales, chains=False):
        return moves.langevin_log_ratio(delta, gradient, new_gradient, scales, chains)

    def get_config(self):
        return {"noise_temperature": self.noise_temperature}


@serializable
class ReversibleLangevin(Proposal):
    """The RSGLD move: down the gradient, or up it with wider noise.

    Args:
        beta: factor, at least 1, of the backward move's noise.
        noise_temperature: temperature of the noise, as in `Langevin`; greater than 0.
            Defaults to 1/train_size, with which the paper's network results agree.
        normalized: if True, the density ratio carries the normalising constants of
            both directions, and detailed balance is exact. The default, False, is the
            paper's ratio, which leaves them out: in high dimension nothing would be
            accepted otherwise, and in low dimension the variance comes out too small.

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

    def __init__(self, beta, noise_temperature=None, normalized=False):
        self.beta = _validate.number("beta", beta, _AT_LEAST_ONE)
        self.noise_temperature = _noise_temperature(noise_temperature)
        self.normalized = _validate.choice("normalized", normalized, (True, False))

    def scales(self, learning_rate, temperature, train_size):
        temperature = self.noise_temperature
        if temperature is None:
            temperature = 1.0 / train_size
        noise = langevin.noise_scale(learning_rate, temperature, train_size)
        return moves.Scales(step=learning_rate, noise=noise, beta=self.beta)

    def propose(self, position, gradient, normals, uniform, scales):
        return moves.reversible(position, gradient, normals, uniform, scales)

    def squared_distances(self, delta, gradient, new_gradient, scales, chains=False):
        """The squared lengths from which the ratio follows for every beta."""
        return moves.squared_distances(delta, gradient, new_gradient, scales, chains)

    def log_ratio_at(self, squared_distances, beta, dimension):
        """`log_ratio` of a move of these distances, had `beta` been another."""
        return moves.reversible_log_ratio(
            squared_distances, beta, dimension, self.normalized
        )

    def log_ratio(self, delta, gradient, new_gradient, scales, chains=False):
        squared_distances = self.squared_distances(
            delta, gradient, new_gradient, scales, chains
        )
        dimension = tensors.size(gradient, chains)
        return self.log_ratio_at(squared_distances, scales.beta, dimension)

    def get_config(self):
        return {
            "beta": self.beta,
            "noise_temperature": self.noise_temperature,
            "normalized": self.normalized,
        }


def _noise_temperature(value):
    if value is None:
        return None
    return _validate.number("noise_temperature", value, _validate.POSITIVE)


def checked(proposal, default):
    """A proposal, `default` where there is none, or a `ValueError` that lists them."""
    if proposal is None:
        return default
    return _validate.instance(
        "proposal",
        proposal,
        Proposal,
        "one of `mh.proposals`: RandomWalk(), Langevin(), ReversibleLangevin(beta)",
    )
