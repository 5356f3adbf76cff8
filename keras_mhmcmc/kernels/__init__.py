"""The kernels for `mh.sample`, by their public names."""

from keras_mhmcmc.samplers.amagold import amagold
from keras_mhmcmc.samplers.barker import barker
from keras_mhmcmc.samplers.contour import csghmc
from keras_mhmcmc.samplers.contour import csgld
from keras_mhmcmc.samplers.growing import austerity
from keras_mhmcmc.samplers.growing import confidence
from keras_mhmcmc.samplers.hmc import hmc
from keras_mhmcmc.samplers.ivon import ivon
from keras_mhmcmc.samplers.mclmc import mclmc
from keras_mhmcmc.samplers.mhbt import mhbt
from keras_mhmcmc.samplers.mhbt import mint
from keras_mhmcmc.samplers.mhbt import rsgld
from keras_mhmcmc.samplers.poisson import poisson
from keras_mhmcmc.samplers.psgld import psgld
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld
from keras_mhmcmc.samplers.sgmclmc import sgmclmc
from keras_mhmcmc.samplers.sgnht import sgnht
from keras_mhmcmc.samplers.smh import smh
from keras_mhmcmc.samplers.spike_slab import sghmcsa
from keras_mhmcmc.samplers.spike_slab import sgldsa
from keras_mhmcmc.samplers.tuna import tuna

__all__ = [
    "amagold",
    "austerity",
    "barker",
    "confidence",
    "csghmc",
    "csgld",
    "hmc",
    "ivon",
    "mclmc",
    "mhbt",
    "mint",
    "poisson",
    "psgld",
    "rsgld",
    "sghmc",
    "sghmcsa",
    "sgld",
    "sgldsa",
    "sgmclmc",
    "sgnht",
    "smh",
    "tuna",
]


def __dir__() -> list[str]:
    return __all__
