"""Transition kernels for `mh.sample`."""

from keras_mhmcmc.transitions import csghmc
from keras_mhmcmc.transitions import csgld
from keras_mhmcmc.transitions import mhbt
from keras_mhmcmc.transitions import mint
from keras_mhmcmc.transitions import psgld
from keras_mhmcmc.transitions import sghmc
from keras_mhmcmc.transitions import sgld

__all__ = ["csghmc", "csgld", "mhbt", "mint", "psgld", "sghmc", "sgld"]
