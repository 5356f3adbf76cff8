"""Float64 transcription of microcanonical Langevin steps, and of the search for a step.

The kick is written with hyperbolic functions, as in the paper. It overflows where its
argument is above 700.
"""

import numpy as np


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


def path(x, u, energy, gradient, step):
    """Position and velocity after a leapfrog step, and its energy error."""
    start = energy(x)
    u, before = kick(u, gradient(x), 0.5 * step)
    x = x + step * u
    u, after = kick(u, gradient(x), 0.5 * step)
    return x, u, before + after + energy(x) - start
