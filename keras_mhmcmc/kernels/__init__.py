"""Build transition kernels for `mh.sample`, with checked arguments."""

from keras_mhmcmc.kernels.contour import csghmc
from keras_mhmcmc.kernels.contour import csgld
from keras_mhmcmc.kernels.diffusions import psgld
from keras_mhmcmc.kernels.diffusions import sghmc
from keras_mhmcmc.kernels.diffusions import sgld
from keras_mhmcmc.kernels.metropolis import mhbt
from keras_mhmcmc.kernels.metropolis import mint
from keras_mhmcmc.kernels.metropolis import rsgld
from keras_mhmcmc.kernels.spike_slab import sghmcsa
from keras_mhmcmc.kernels.spike_slab import sgldsa

__all__ = [
    "csghmc",
    "csgld",
    "mhbt",
    "mint",
    "psgld",
    "rsgld",
    "sghmc",
    "sghmcsa",
    "sgld",
    "sgldsa",
]


def __dir__() -> list[str]:
    return __all__
