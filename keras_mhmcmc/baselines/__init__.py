"""Cheap approximations of a posterior, to compare with the samplers."""

from keras_mhmcmc.baselines.swag import SWAG

__all__ = ["SWAG"]
