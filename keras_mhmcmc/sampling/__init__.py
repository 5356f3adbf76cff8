"""Chains of any density: `sample`, replica exchange, equi-energy."""

from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.equi_energy import equi_energy
from keras_mhmcmc.sampling.replica_exchange import replica_exchange
from keras_mhmcmc.sampling.reuse import log_density
from keras_mhmcmc.sampling.run import sample

__all__ = [
    "ChainState",
    "Draws",
    "equi_energy",
    "log_density",
    "replica_exchange",
    "sample",
]
