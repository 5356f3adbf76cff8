"""Proposals for `MHBT` and `MINT`: how the sampler moves before it decides."""

from keras_mhmcmc.samplers.parts.proposals import Langevin
from keras_mhmcmc.samplers.parts.proposals import Proposal
from keras_mhmcmc.samplers.parts.proposals import RandomWalk
from keras_mhmcmc.samplers.parts.proposals import ReversibleLangevin

__all__ = ["Langevin", "Proposal", "RandomWalk", "ReversibleLangevin"]


def __dir__() -> list[str]:
    return __all__
