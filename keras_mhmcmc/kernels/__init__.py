"""The mathematics of the samplers: pure functions of tensors and given draws."""

from keras_mhmcmc.kernels import adaptation
from keras_mhmcmc.kernels import hamiltonian
from keras_mhmcmc.kernels import langevin
from keras_mhmcmc.kernels import metropolis
from keras_mhmcmc.kernels import moves
from keras_mhmcmc.kernels import tensors

__all__ = ["adaptation", "hamiltonian", "langevin", "metropolis", "moves", "tensors"]
