"""Cheap approximations of a posterior, to compare with the samplers."""

from keras_mhmcmc.baselines.deep import deep_ensemble
from keras_mhmcmc.baselines.laplace import last_layer_laplace
from keras_mhmcmc.baselines.swag import SWAG

__all__ = ["SWAG", "deep_ensemble", "last_layer_laplace"]
