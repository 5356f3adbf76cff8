"""The standard normal distribution in float64, which NumPy lacks."""

import math

import numpy as np

from keras_mhmcmc._types import Array

_erfc = np.frompyfunc(math.erfc, 1, 1)


def density(x: Array) -> Array:
    """Return the density of the standard normal distribution at each x."""
    return np.exp(-0.5 * np.square(x)) / math.sqrt(2.0 * math.pi)


def below(x: Array) -> Array:
    """Return the probability of a value below each x."""
    return 0.5 * np.asarray(_erfc(-math.sqrt(0.5) * x), "float64")


def absolute_mean(mean: Array, std: float) -> Array:
    """Return E|X| of normal X with these means and this standard deviation.

    It is the function A of Grimit et al. (2006).
    """
    z = mean / std
    return 2.0 * std * density(z) + mean * (2.0 * below(z) - 1.0)
