"""Data sets as NumPy arrays, for examples and tests."""

from keras_mhmcmc.datasets.loading import load
from keras_mhmcmc.datasets.loading import load_test
from keras_mhmcmc.datasets.loading import rows
from keras_mhmcmc.datasets.scaling import standardized

__all__ = ["load", "load_test", "rows", "standardized"]


def __dir__() -> list[str]:
    return __all__
