"""Eq. (13) to (17) of the spike-and-slab samplers, literally, in float64.

rho and kappa are kept, each with its own average, and densities are not logarithms.
"""

from typing import NamedTuple

import numpy as np


class Latents(NamedTuple):
    rho: list
    kappa: list
    sigma: np.ndarray  # of each group
    delta: np.ndarray


def first(shapes, groups, sigma, delta, v0, v1):
    count = max(groups) + 1
    rho = [np.full(shape, delta) for shape in shapes]
    kappa = [(1 - r) / v0 + r / v1 for r in rho]
    return Latents(rho, kappa, np.full(count, sigma), np.full(count, delta))


def density(x, variance):
    return np.exp(-(x**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


def expected(weights, old, groups, v0, v1, a, b, nu, lam, examples, rss=None):
    """One EM step: eq. (13), (14), (15), (16)."""
    rho, kappa = [], []
    for beta, g in zip(weights, groups, strict=True):
        slab = old.delta[g] * density(beta, old.sigma[g] ** 2 * v1)
        spike = (1 - old.delta[g]) * density(beta, old.sigma[g] ** 2 * v0)
        rho.append(slab / (slab + spike))
        kappa.append((1 - rho[-1]) / v0 + rho[-1] / v1)
    return Latents(rho, kappa, *of_sums(weights, rho, kappa, groups, locals()))


def of_sums(weights, rho, kappa, groups, given):
    a, b, nu, lam = (given[name] for name in ("a", "b", "nu", "lam"))
    sigma, delta = [], []
    total = sum((k * x**2).sum() for k, x in zip(kappa, weights, strict=True))
    everything = sum(x.size for x in weights)
    for group in range(max(groups) + 1):
        mine = [i for i, g in enumerate(groups) if g == group]
        p = sum(weights[i].size for i in mine)
        if given["rss"] is None:
            squares = sum((kappa[i] * weights[i] ** 2).sum() for i in mine)
            sigma.append(np.sqrt((squares + nu * lam) / (p + nu + 2)))
        else:
            count = given["examples"] + everything + nu
            sigma.append(np.sqrt((given["rss"] + total + nu * lam) / count))
        share = sum(rho[i].sum() for i in mine)
        delta.append((share + a - 1) / (a + b + p - 2))
    return np.array(sigma), np.array(delta)


def averaged(old, new, omega):
    def mix(x, y):
        return (1 - omega) * x + omega * y

    return Latents(
        [mix(x, y) for x, y in zip(old.rho, new.rho, strict=True)],
        [mix(x, y) for x, y in zip(old.kappa, new.kappa, strict=True)],
        mix(old.sigma, new.sigma),
        mix(old.delta, new.delta),
    )


def prior_energy(weights, latents, groups):
    return sum(
        (k * x**2).sum() / (2 * latents.sigma[g] ** 2)
        for k, x, g in zip(latents.kappa, weights, groups, strict=True)
    )
