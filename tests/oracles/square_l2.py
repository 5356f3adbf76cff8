"""The Square attack in the L2 ball, of one image in float64, as the paper writes it.

Andriushchenko, Croce, Flammarion and Hein (2020), equation (2) and algorithm 3.
"""

import math

import numpy as np


def eta(h1, h2):
    """Equation (2), element by element, for h1 >= h2."""
    n = h1 // 2
    result = np.zeros((h1, h2))
    for r in range(1, h1 + 1):
        for s in range(1, h2 + 1):
            m = n - max(abs(r - h1 // 2 - 1), abs(s - h2 // 2 - 1))
            result[r - 1, s - 1] = sum(1.0 / (n + 1 - k) ** 2 for k in range(m + 1))
    return result


def bumps(h):
    """The pattern of a window of h x h, the bump that is up at the top."""
    k = h // 2
    halves = [eta(h, k).T, eta(h, h - k).T]
    both = [half / np.linalg.norm(half) for half in halves]
    pattern = np.concatenate([both[0], -both[1]])
    return pattern / np.linalg.norm(pattern)


def query(x, current, epsilon, h, corners, pattern, signs):
    """The image that algorithm 3 asks for, before it is clipped."""
    (r1, s1), (r2, s2) = corners
    nu = current - x
    channels = x.shape[-1]
    unused = max(epsilon**2 - np.sum(nu**2), 0.0)
    result = nu.copy()
    for i in range(channels):
        window = nu[r1 : r1 + h, s1 : s1 + h, i]
        length = np.linalg.norm(window)
        added = signs[i] * pattern + (window / length if length else 0.0)
        in_one = np.zeros(x.shape[:2], bool)
        in_one[r1 : r1 + h, s1 : s1 + h] = True
        in_one[r2 : r2 + h, s2 : s2 + h] = True
        available = math.sqrt(np.sum(nu[..., i][in_one] ** 2) + unused / channels)
        result[r2 : r2 + h, s2 : s2 + h, i] = 0.0
        result[r1 : r1 + h, s1 : s1 + h, i] = added / np.linalg.norm(added) * available
    return x + result
