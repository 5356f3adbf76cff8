"""Float64 transcription of microcanonical Langevin steps, and of the search for a step.

The kick is written with hyperbolic functions, as in the paper. It overflows where its
argument is above 700.
"""

import numpy as np

MINIMAL_NORM = 0.1931833275037836  # McLachlan (1995), and Omelyan et al. (2003)


def kick(u, gradient, step):
    """The velocity after a kick, and the change of the kinetic energy.

    Args:
        u: unit vector, (d,).
        gradient: of U/T, (d,).
        step: time of the kick.
    """
    rest = len(u) - 1
    size = np.linalg.norm(gradient)
    if size == 0.0:
        return u, 0.0
    e = -gradient / size
    delta = step * size / rest
    along = e @ u
    below = np.cosh(delta) + along * np.sinh(delta)
    moved = u + e * (np.sinh(delta) + along * (np.cosh(delta) - 1.0))
    return moved / below, rest * np.log(below)


def refresh(u, normals, step, length):
    """The velocity after a partial refresh over a time `step`."""
    nu = np.sqrt(np.expm1(2.0 * step / length) / len(u))
    moved = u + nu * normals
    return moved / np.linalg.norm(moved)


def path(x, u, energy, gradient, step, integrator="leapfrog"):
    """Position and velocity after a deterministic step, and its energy error."""
    share = 0.5 if integrator == "leapfrog" else MINIMAL_NORM
    drifts = [1.0] if integrator == "leapfrog" else [0.5, 0.5]
    kicks = [1.0 - 2.0 * share] * (len(drifts) - 1) + [share]
    start = energy(x)
    u, change = kick(u, gradient(x), share * step)
    for drift, time in zip(drifts, kicks, strict=True):
        x = x + drift * step * u
        u, more = kick(u, gradient(x), time * step)
        change += more
    return x, u, change + energy(x) - start
