"""Steps of the kernels that draw their own data, in float64 and one chain at a time."""

import math

import numpy as np


def arrivals(rate, weights, uniforms, rows, columns):
    """Examples, and the uniform of each, that a Poisson process brings.

    Args:
        rate: of the process, a number.
        weights: of the examples, (N,).
        uniforms: of the blocks in turn, arrays (5, B).
        rows, columns: the grid that two uniforms choose a place of.
    """
    size = len(weights)
    share, alias = alias_table(weights)
    time, found = 0.0, []
    end = rate * rows * columns / size
    for block in uniforms:
        for u in block.T:
            time -= np.log1p(-u[0])
            place = int(u[1] * rows) * columns + int(u[2] * columns)
            if time < end and place < size:
                found.append((place if u[3] < share[place] else alias[place], u[4]))
    assert time >= end, "the test gives too few uniforms"
    return found


def alias_table(weights):
    """Shares and aliases, by the definition: they must give back the weights."""
    size = len(weights)
    scaled = np.asarray(weights, "float64") * size / np.sum(weights)
    share, alias = np.ones(size), np.arange(size)
    small = [i for i in range(size) if scaled[i] < 1]
    large = [i for i in range(size) if scaled[i] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        share[low], alias[low] = scaled[low], high
        scaled[high] += scaled[low] - 1
        if scaled[high] < 1:
            small.append(large.pop())
    return share, alias


def tuna_log_ratio(found, here, there, bounds, distance, chi, temperature):
    """The paper's log r, from its own line for the probability of a stay."""
    c, total = bounds / temperature, np.sum(bounds) / temperature
    log_ratio = 0.0
    for i, u in found:
        before, after = -here[i] / temperature, -there[i] / temperature
        limit = chi * c[i] * total * distance**2
        probability = limit + (after - before + c[i] * distance) / 2
        probability /= limit + c[i] * distance
        if u < probability:
            ratio = (before - after) / (
                c[i] * distance * (1 + 2 * chi * total * distance)
            )
            log_ratio += 2 * np.arctanh(ratio)
    return log_ratio


def poisson_log_ratio(found, here, there, lower, upper, rate, temperature):
    """The paper's log r, with factors phi of the sum of log-likelihoods."""
    widths = (upper - lower) / temperature
    total = widths.sum()
    log_ratio = 0.0
    for i, u in found:
        phi = (here[i] - lower[i]) / temperature
        new_phi = (there[i] - lower[i]) / temperature
        base = rate * widths[i] / total
        if u < (base + phi) / (base + widths[i]):
            log_ratio += np.log1p(new_phi / base) - np.log1p(phi / base)
    return log_ratio


def smh_factors(theta, proposal, here, there, expansion, temperature):
    """The paper's factors, without a factor of the covariance.

    Returns:
        The change of all polynomials in nats, the change of the squared distance from
        the reference in squares of standard deviations, and for each example the bound
        of lambda, and lambda.
    """
    v, w = theta - expansion.reference, proposal - expansion.reference
    covariance, k = temperature * expansion.covariance, expansion.order
    precision = np.linalg.inv(covariance)
    square = lambda u: u @ precision @ u  # noqa: E731

    def polynomials(u):
        t = expansion.features @ u
        value = expansion.slopes * t
        return value if k == 1 else value + expansion.curvatures * t**2 / 2

    change = polynomials(w) - polynomials(v)
    nodes, weights = np.polynomial.legendre.leggauss(3)
    on_the_way = [square(v + (1 + s) / 2 * (w - v)) for s in nodes]
    mean_square = np.dot(weights, on_the_way) / 2
    ends = (square(v) ** ((k + 1) / 2) + square(w) ** ((k + 1) / 2)) / math.factorial(
        k + 1
    )
    way = np.sqrt(square(w - v)) * mean_square ** (k / 2) / math.factorial(k)
    lengths = np.array([np.sqrt(a @ covariance @ a) for a in expansion.features])
    bounds = expansion.bounds * lengths ** (k + 1) * min(ends, way) / temperature
    losses = np.maximum(0, here - there + change) / temperature
    return change.sum(), square(w) - square(v), bounds, losses


def amagold_path(theta, velocity, gradients, normals, settings):
    """The end of a path, its velocity, and rho, in the units of the paper.

    Args:
        theta: start, (d,).
        velocity: v at the start, (d,).
        gradients: function of a position that gives the gradient of U of the next
            mini-batch.
        normals: of the steps, (n, d).
        settings: `learning_rate`, `momentum`, `temperature`, `train_size`.
    """
    h = settings["learning_rate"] / settings["train_size"]  # the paper's sigma^2
    beta = (1 - settings["momentum"]) / (1 + settings["momentum"])
    v, position, rho = velocity.copy(), theta + velocity / 2, 0.0
    for step, z in enumerate(normals):
        gradient = gradients(position)
        noise = 2 * np.sqrt(h * beta * settings["temperature"]) * z
        new = ((1 - beta) * v - h * gradient + noise) / (1 + beta)
        rho += gradient @ (v + new) / 2
        last = step == len(normals) - 1
        position, v = position + (new / 2 if last else new), new
    return position, v, rho


def hmc_path(theta, momentum, gradients, step, steps):
    """The end of a path of Hamiltonian dynamics with unit masses, and its momentum.

    Args:
        theta: start, (d,).
        momentum: at the start, (d,).
        gradients: function of a position that gives the gradient of U over T.
        step: h.
        steps: gradients of the path.
    """
    position, r = theta + step * momentum / 2, momentum.copy()
    for number in range(steps):
        r = r - step * gradients(position)
        position = position + (step / 2 if number == steps - 1 else step) * r
    return position, r
