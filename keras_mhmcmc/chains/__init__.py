"""Chains of many kinds over the kernels."""

from keras_mhmcmc.chains.draws import ChainState
from keras_mhmcmc.chains.draws import Draws
from keras_mhmcmc.chains.equi_energy import equi_energy
from keras_mhmcmc.chains.parallel import ParallelChains
from keras_mhmcmc.chains.replica_exchange import replica_exchange
from keras_mhmcmc.chains.run import sample

__all__ = [
    "ChainState",
    "Draws",
    "ParallelChains",
    "equi_energy",
    "replica_exchange",
    "sample",
]
