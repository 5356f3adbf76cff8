"""Chains of many kinds over the kernels."""

from keras_mhmcmc.chains.draws import ChainState
from keras_mhmcmc.chains.draws import Draws
from keras_mhmcmc.chains.parallel import ParallelChains
from keras_mhmcmc.chains.run import sample

__all__ = ["ChainState", "Draws", "ParallelChains", "sample"]
