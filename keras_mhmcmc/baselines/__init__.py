"""Approximations of a posterior to compare with the samplers, and exact last layers."""

from keras_mhmcmc.baselines.deep import deep_ensemble
from keras_mhmcmc.baselines.last_layer import last_layer_laplace
from keras_mhmcmc.baselines.last_layer import sample_last_layer
from keras_mhmcmc.baselines.swag import swag

__all__ = ["deep_ensemble", "last_layer_laplace", "sample_last_layer", "swag"]
