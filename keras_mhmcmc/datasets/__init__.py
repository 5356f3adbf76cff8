"""Data sets as NumPy arrays, for examples and tests."""

from keras_mhmcmc.datasets.loading import KEYS
from keras_mhmcmc.datasets.loading import load

__all__ = ["KEYS", "load"]
