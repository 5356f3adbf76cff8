"""Transition kernels for `mh.sample`: what `mh.kernels.sgld` and its siblings build.

They take the same arguments as the optimizers of the same name; the sizes N and m come
from the data. A step evaluates the energy (and the gradient) of K chains once, at the
positions that `point` gives; `decide` says where the chains are then, and `move` goes
on from there. What a step records is a position that was evaluated, with its own
energy: for a Metropolis-Hastings kernel the chain's state, otherwise the point from
which the step moved on.
"""

from keras_mhmcmc.transitions.contour import csghmc
from keras_mhmcmc.transitions.contour import csgld
from keras_mhmcmc.transitions.kernel import Kernel
from keras_mhmcmc.transitions.kernel import Record
from keras_mhmcmc.transitions.kernel import Step
from keras_mhmcmc.transitions.metropolis import mhbt
from keras_mhmcmc.transitions.metropolis import mint
from keras_mhmcmc.transitions.stochastic_gradient import psgld
from keras_mhmcmc.transitions.stochastic_gradient import sghmc
from keras_mhmcmc.transitions.stochastic_gradient import sgld

__all__ = [
    "Kernel",
    "Record",
    "Step",
    "csghmc",
    "csgld",
    "mhbt",
    "mint",
    "psgld",
    "sghmc",
    "sgld",
]
