"""The contour update, factor and weight of one chain, in float64, by loops and sums.

theta itself is kept, not its logarithm, and a subregion is looked up among boundaries.
"""

import numpy as np


def boundaries(energy_min, energy_gap, partitions):
    """u_1, ..., u_{m-1}."""
    return energy_min + energy_gap * np.arange(partitions - 1)


def index_of(energy, bounds):
    """J, from 0: the first boundary that is not below the energy."""
    for i, bound in enumerate(bounds):
        if energy <= bound:
            return i
    return len(bounds)


def weighing(theta, index, forward):
    """theta(J), but theta(m-1) above the last boundary: Psi does not change there."""
    return theta[-2] if index == len(theta) - 1 and not forward else theta[index]


def updated(theta, index, step, exponent, rho=0.0, forward=False):
    """Eq. (10), (15) or (57), divided by the sum where rho makes it differ from 1."""
    new = np.empty_like(theta)
    for i in range(len(theta)):
        rate = weighing(theta, index, forward) ** exponent
        rate += step * rho if i >= index else 0.0
        new[i] = theta[i] + step * rate * ((i == index) - theta[i])
    return new / new.sum()


def updated_together(theta, indices, step, exponent, rho=0.0):
    """The field of each chain at the same theta, and their mean."""
    field = np.zeros_like(theta)
    for index in indices:
        for i in range(len(theta)):
            rate = weighing(theta, index, False) ** exponent
            rate += step * rho if i >= index else 0.0
            field[i] += rate * ((i == index) - theta[i]) / len(indices)
    new = theta + step * field
    return new / new.sum()


def slope(theta, index, gap, forward, limit=None, zeta=1.0, temperature=1.0):
    """d log Psi / du in subregion J, as the largest factor limits it."""
    last = len(theta) - 1
    if index == last:
        return 0.0
    if forward:
        upper, lower = theta[min(index + 1, last)], theta[index]
    else:
        upper, lower = theta[index], theta[max(index - 1, 0)]
    value = (np.log(upper) - np.log(lower)) / gap
    if limit is not None:
        scale = zeta * temperature
        value = np.clip(value, (-limit - 1) / scale, (limit - 1) / scale)
    return value


def multiplier(theta, index, gap, zeta, temperature, forward=False, limit=None):
    """1 + zeta T d log Psi / du."""
    return 1 + zeta * temperature * slope(
        theta, index, gap, forward, limit, zeta, temperature
    )


def log_weight(
    theta, energy, bounds, gap, zeta, temperature, forward=False, limit=None
):
    """zeta log Psi(U), from the upper end of the subregion down."""
    index = index_of(energy, bounds)
    end = weighing(theta, index, False)
    if forward:
        end = theta[min(index + 1, len(theta) - 1)]
    upper = bounds[0] + gap * index
    rise = slope(theta, index, gap, forward, limit, zeta, temperature)
    return zeta * (np.log(end) + rise * (energy - upper))


# The mixture of the paper's section 4.1.


def mixture_energy(x):
    parts = [np.log(w) - 0.5 * (x - m) ** 2 for w, m in ((0.4, -6), (0.6, 4))]
    return 0.5 * np.log(2 * np.pi) - np.logaddexp(*parts)


def mixture_gradient(x):
    share = 1 / (1 + 1.5 * np.exp(0.5 * (x + 6) ** 2 - 0.5 * (x - 4) ** 2))
    return x - 4 + 10 * share
