"""The samplers as Keras optimizers."""

from keras_mhmcmc.optimizers.amagold import AMAGOLD
from keras_mhmcmc.optimizers.barker import Barker
from keras_mhmcmc.optimizers.csgld import CSGHMC
from keras_mhmcmc.optimizers.csgld import CSGLD
from keras_mhmcmc.optimizers.esm import ESM
from keras_mhmcmc.optimizers.mhbt import MHBT
from keras_mhmcmc.optimizers.mhbt import MINT
from keras_mhmcmc.optimizers.psgld import PSGLD
from keras_mhmcmc.optimizers.replicas import independent_processes
from keras_mhmcmc.optimizers.rsgld import RSGLD
from keras_mhmcmc.optimizers.sghmc import SGHMC
from keras_mhmcmc.optimizers.sgld import SGLD
from keras_mhmcmc.optimizers.sgldsa import SGHMCSA
from keras_mhmcmc.optimizers.sgldsa import SGLDSA
from keras_mhmcmc.optimizers.sgnht import SGNHT

__all__ = [
    "AMAGOLD",
    "Barker",
    "CSGHMC",
    "CSGLD",
    "ESM",
    "MHBT",
    "MINT",
    "PSGLD",
    "RSGLD",
    "SGHMC",
    "SGHMCSA",
    "SGLD",
    "SGLDSA",
    "SGNHT",
    "independent_processes",
]
