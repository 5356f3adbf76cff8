"""Importance weights: their effective number, and resampling.

Papers: Kong, Liu and Wong (1994), "Sequential imputations and Bayesian missing data
problems", for the effective sample size; Kitagawa (1996), "Monte Carlo filter and
smoother for non-Gaussian nonlinear state space models", for systematic resampling.

Equations, with w_i the weights of S draws, up to a factor:

    ESS = (sum w_i)^2 / sum w_i^2
    W_i = sum_{l <= i} w_l / sum w
    draw j of n is the i with W_{i-1} <= (j + U)/n < W_i,  U uniform on [0, 1)

The weights are numpy arrays: sums of millions of weights need float64.
"""

import numpy as np

from keras_mhmcmc._types import Array


def effective_sample_size(weights: Array) -> float:
    """Return how many draws of equal weight the S draws are worth, from 1 to S."""
    weights = np.ravel(np.asarray(weights, "float64"))
    weights = weights / weights.max()
    return float(weights.sum() ** 2 / np.square(weights).sum())


def systematic(weights: Array, uniform: float, num_draws: int) -> Array:
    """Return the indices of n draws with equal weights, increasing, shape (n,)."""
    ends = np.cumsum(np.ravel(np.asarray(weights, "float64")))
    places = (np.arange(num_draws) + uniform) / num_draws * ends[-1]
    # A place may be rounded up to the last end.
    return np.minimum(np.searchsorted(ends, places, side="right"), len(ends) - 1)
