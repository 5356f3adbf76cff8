"""The samplers as Keras optimizers."""

from keras_mhmcmc.optimizers.mhbt import MHBT
from keras_mhmcmc.optimizers.mhbt import MINT
from keras_mhmcmc.optimizers.psgld import PSGLD
from keras_mhmcmc.optimizers.rsgld import RSGLD
from keras_mhmcmc.optimizers.sghmc import SGHMC
from keras_mhmcmc.optimizers.sgld import SGLD

__all__ = ["MHBT", "MINT", "PSGLD", "RSGLD", "SGHMC", "SGLD"]
