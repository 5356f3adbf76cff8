"""Swaps of replica exchange, from their definition, in float64."""

import math

import numpy as np


def accept_swap(energies, temperatures, variances, uniform):
    """Whether a cold and a hot replica swap, by the ratio of the joint densities.

    The product of both laws after the swap over that before it, with the mean of
    exp(noise) taken out: the noise of the exponent is normal.
    """
    (u1, u2), (t1, t2), (v1, v2) = energies, temperatures, variances
    after = -u2 / t1 - u1 / t2
    before = -u1 / t1 - u2 / t2
    noise = (1 / t1 - 1 / t2) ** 2 * (v1 + v2)
    return math.log(uniform) < after - before - noise / 2


def swap(values, pairs):
    """`values`, one row for each replica, with some neighbours exchanged."""
    values = np.array(values)
    for r in pairs:
        values[[r, r + 1]] = values[[r + 1, r]]
    return values


def mean_acceptance(log_ratio, noise_variance, points=200001):
    """Mean of min(1, r) where log r has Gaussian noise and the penalty, by a sum."""
    scale = math.sqrt(noise_variance)
    z = np.linspace(-12, 12, points)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    ratio = np.minimum(1, np.exp(log_ratio - noise_variance / 2 + scale * z))
    return float(np.sum(ratio * density) * (z[1] - z[0]))


def energy_variance(log_likelihoods, train_size, replacement):
    """Variance of N times the mean of a random batch, by its textbook estimate."""
    m = len(log_likelihoods)
    mean_variance = np.var(log_likelihoods, ddof=1) / m
    if not replacement:
        mean_variance *= (train_size - m) / train_size
    return train_size**2 * mean_variance
