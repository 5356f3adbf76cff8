"""The mathematics of the samplers, and the kernels for `mh.sample` made of it.

The modules hold pure functions of tensors and given draws. `sgld`, `psgld`, `sghmc`,
`csgld`, `csghmc`, `mhbt` and `mint` build kernels for `mh.sample`; they are defined in
`transitions`.
"""

from keras_mhmcmc.kernels import adam
from keras_mhmcmc.kernels import adaptation
from keras_mhmcmc.kernels import batches
from keras_mhmcmc.kernels import contour
from keras_mhmcmc.kernels import equi_energy
from keras_mhmcmc.kernels import exchange
from keras_mhmcmc.kernels import hamiltonian
from keras_mhmcmc.kernels import importance
from keras_mhmcmc.kernels import langevin
from keras_mhmcmc.kernels import layer_noise
from keras_mhmcmc.kernels import metropolis
from keras_mhmcmc.kernels import moves
from keras_mhmcmc.kernels import spike_slab
from keras_mhmcmc.kernels import tensors
from keras_mhmcmc.transitions import csghmc
from keras_mhmcmc.transitions import csgld
from keras_mhmcmc.transitions import mhbt
from keras_mhmcmc.transitions import mint
from keras_mhmcmc.transitions import psgld
from keras_mhmcmc.transitions import sghmc
from keras_mhmcmc.transitions import sgld

__all__ = [
    "adam",
    "adaptation",
    "batches",
    "contour",
    "csghmc",
    "csgld",
    "equi_energy",
    "exchange",
    "hamiltonian",
    "importance",
    "langevin",
    "layer_noise",
    "metropolis",
    "mhbt",
    "mint",
    "moves",
    "psgld",
    "sghmc",
    "sgld",
    "spike_slab",
    "tensors",
]
