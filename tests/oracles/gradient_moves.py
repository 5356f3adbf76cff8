"""Proposals along a gradient in float64, with the densities of both ways in full."""

import numpy as np


def barker(theta, gradient, normals, uniforms, scale):
    """Each weight moves by its normal number, or by its negative."""
    proposal = theta.copy()
    for j, (z, u) in enumerate(zip(scale * normals, uniforms, strict=True)):
        proposal[j] += z if u < 1 / (1 + np.exp(-z * gradient[j])) else -z
    return proposal


def barker_log_density(start, end, gradient, scale):
    """log q(start -> end): normal numbers times twice the probability of their sign."""
    away = end - start
    normal = -away @ away / (2 * scale**2)
    return normal + np.sum(np.log(2 / (1 + np.exp(-away * gradient))))


def counts_gradient(counts, values, slopes, prior, lower, upper, rate, temperature):
    """The gradient of sum_i s_i log(lambda M_i / L + phi_i) + log prior / T.

    Args:
        counts: s_i, (N,).
        values: log-likelihoods, (N,).
        slopes: their gradients, (N, d).
        prior: gradient of the log prior, (d,).
        lower, upper: bounds, (N,) each.
        rate: lambda.
        temperature: T.
    """
    widths = (upper - lower) / temperature
    terms = rate * widths / widths.sum() + (values - lower) / temperature
    return (counts / terms) @ slopes / temperature + prior / temperature


def poisson_counts(found, values, lower, upper, rate, temperature):
    """How often each example stays among the arrivals, (N,)."""
    widths = (upper - lower) / temperature
    base = rate * widths / widths.sum()
    counts = np.zeros(len(values))
    for i, u in found:
        phi = (values[i] - lower[i]) / temperature
        counts[i] += u < (base[i] + phi) / (base[i] + widths[i])
    return counts
