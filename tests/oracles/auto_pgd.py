"""Auto-PGD of Croce and Hein (2020), of one example, in float64.

The loop is that of algorithm 1. As in the authors' code, a checkpoint looks at the
steps that were taken before it, and replaces the point from which the next step begins.
"""

import math

import numpy as np


def checkpoints(steps):
    """w_j = ceil(p_j N), by the recursion of section 3.1, in exact hundredths."""
    p = [0, 22]
    while p[-1] < 100:
        p.append(p[-1] + max(p[-1] - p[-2] - 3, 6))
    return sorted({math.ceil(hundredths * steps / 100) for hundredths in p[1:]})


def project(point, x, epsilon, norm, low, high):
    """The nearest point of the ball within the limits, which x keeps.

    In the L2 ball it is clip(x + t (point - x)): bisection finds the largest t.
    """
    if norm == "linf":
        return np.clip(x + np.clip(point - x, -epsilon, epsilon), low, high)
    at = lambda t: np.clip(x + t * (point - x), low, high)
    length = lambda t: np.linalg.norm(at(t) - x)
    if length(1.0) <= epsilon:
        return at(1.0)
    inside, outside = 0.0, 1.0
    for _ in range(60):
        t = 0.5 * (inside + outside)
        inside, outside = (t, outside) if length(t) <= epsilon else (inside, t)
    return at(inside)


def ascend(point, gradient, size, norm):
    if norm == "linf":
        return point + size * np.sign(gradient)
    length = np.linalg.norm(gradient)
    return point + size * gradient / length if length > 0 else point


def run(f, x, epsilon, steps, norm, low=0.0, high=1.0):
    """All points that a run from `x` evaluates; `f(x)` is the loss and its gradient."""
    into = lambda point: project(point, x, epsilon, norm, low, high)
    size, checked, last = 2.0 * epsilon, 0, checkpoints(steps)
    points, values = [x], [f(x)[0]]
    best, best_value = x, values[0]
    best_at_check, size_at_check = best_value, size
    was_raised = []
    current, before, value = x, x, values[0]
    for k in range(steps):
        alpha = 1.0 if k == 0 else 0.75
        z = into(ascend(current, f(current)[1], size, norm))
        ahead = into(current + alpha * (z - current) + (1 - alpha) * (current - before))
        before, current = current, ahead
        points.append(current)
        was_raised.append(f(current)[0] > value)
        value = f(current)[0]
        if value > best_value:
            best, best_value = current, value
        if k + 1 in last:
            few = sum(was_raised[checked:]) < 0.75 * (k + 1 - checked)
            same = size_at_check == size and best_at_check == best_value
            size_at_check, best_at_check = size, best_value
            if few or same:
                size = size / 2.0
                current, value = best, best_value
            checked = k + 1
    return points


def loss_and_slope(z, y, loss):
    """A loss of logits, and its derivative with respect to them."""
    unit = np.eye(len(z))
    if loss == "cross_entropy":
        powers = np.exp(z - z.max())
        p = powers / powers.sum()
        return -np.log(p[y]), p - unit[y]
    other = max((k for k in range(len(z)) if k != y), key=lambda k: z[k])
    return z[other] - z[y], unit[other] - unit[y]
