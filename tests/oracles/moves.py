"""Proposals of Metropolis-Hastings and their densities; a position is one vector.

The log ratio is computed from its definition, as a difference of the log densities of
two points under two proposals. `normalized=False` leaves the normalising constants of
the Gaussians out, as the paper does in eq. (37).
"""

import numpy as np


def random_walk(position, normals, noise):
    return position + noise * normals


def langevin(position, gradient, normals, step, noise):
    return position - step * gradient + noise * normals


def reversible(
    position, gradient, normals, uniform, step, noise, beta, forward_probability=0.5
):
    """The proposed position, and whether it went forward (down the gradient)."""
    if uniform < forward_probability:
        return position - step * gradient + noise * normals, True
    return position + step * gradient + beta * noise * normals, False


def log_normal(x, mean, deviation, normalized=True):
    """Log density of a spherical normal distribution."""
    log_density = -0.5 * np.sum(((x - mean) / deviation) ** 2)
    if normalized:
        log_density -= len(x) * np.log(deviation * np.sqrt(2 * np.pi))
    return log_density


def log_sum_exp(terms):
    highest = max(terms)
    return highest + np.log(sum(np.exp(term - highest) for term in terms))


def log_q_random_walk(start, end, noise):
    return log_normal(end, start, noise)


def log_q_langevin(start, gradient, end, step, noise):
    return log_normal(end, start - step * gradient, noise)


def log_q_reversible(
    start, gradient, end, step, noise, beta, normalized, forward_probability=0.5
):
    """Log density of the mixture of a move down and a wider move up the gradient."""
    down = log_normal(end, start - step * gradient, noise, normalized)
    up = log_normal(end, start + step * gradient, beta * noise, normalized)
    if forward_probability == 1.0:
        return down
    backward_probability = 1.0 - forward_probability
    return log_sum_exp(
        [np.log(forward_probability) + down, np.log(backward_probability) + up]
    )


def langevin_log_ratio(start, gradient, end, new_gradient, step, noise):
    """log q(end -> start) - log q(start -> end)."""
    there = log_q_langevin(start, gradient, end, step, noise)
    back = log_q_langevin(end, new_gradient, start, step, noise)
    return back - there


def reversible_log_ratio(
    start,
    gradient,
    end,
    new_gradient,
    step,
    noise,
    beta,
    normalized,
    forward_probability=0.5,
):
    """log q(end -> start) - log q(start -> end)."""
    drawn = step, noise, beta, normalized, forward_probability
    there = log_q_reversible(start, gradient, end, *drawn)
    back = log_q_reversible(end, new_gradient, start, *drawn)
    return back - there


def metropolis_log_ratio(energy, new_energy, temperature, log_q_ratio):
    """Log of pi(end) q(end -> start) / (pi(start) q(start -> end))."""
    return -(new_energy - energy) / temperature + log_q_ratio


def strong_gradient_limit(start, gradient, end, step, noise):
    """The beta that ends the strong-gradient regime, found by bisection; at least 1.

    There the Gaussians of both directions, without their constants, explain a move
    equally well. The wide one explains it the better the wider it is.
    """
    down = log_normal(end, start - step * gradient, noise, False)

    def is_beyond(beta):
        return log_normal(end, start + step * gradient, beta * noise, False) >= down

    low, high = 0.0, np.log(1e12)
    if is_beyond(1.0):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_beyond(np.exp(middle)) else (middle, high)
    return np.exp(high)


def replay_limit(start, gradient, end, new_gradient, step, noise):
    """The largest beta that a forward move allows to choose.

    The way back of a forward move is a backward move. Where its noise is as long as its
    step, beta is sqrt(a) |grad'|, and a fifth of it may be chosen.
    """
    scale = 1.0 / (2.0 * noise**2)
    squares = new_gradient @ new_gradient - gradient @ gradient
    here = -step * scale * ((end - start) @ gradient)
    onset = max(here + scale * step**2 * squares, 0.0) ** 0.5
    return max(strong_gradient_limit(start, gradient, end, step, noise), onset / 5)
