"""Tests on growing batches, in float64 and one chain at a time."""

import numpy as np
import scipy.special
import scipy.stats


def batch_of(differences, order, count):
    """Mean, standard deviation and variance of the mean of the first examples."""
    found = differences[order[:count]]
    spread = found.var(ddof=1) if count > 1 else 0.0
    size = len(differences)
    return found.mean(), np.sqrt(spread), spread / count * (1 - count / size)


def sizes(total, block):
    """Sizes of the batch from look to look."""
    return [min(n, total) for n in range(block, total + block, block)]


def box_muller(u, v):
    return np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v)


def barker(differences, order, prior, uniforms, settings):
    """Delta* + X_nc + X_corr without the last, and the size of the batch.

    Args:
        differences: of the log-likelihoods, (N,).
        order: of the examples, (N,).
        prior: difference of the log priors.
        uniforms: two, of X_nc.
        settings: `temperature`, `block_size`.
    """
    total, temperature = len(differences), settings["temperature"]
    for count in sizes(total, settings["block_size"]):
        mean, _, variance = batch_of(differences, order, count)
        noise = (total / temperature) ** 2 * variance
        if noise < 1:
            break
    delta = (total * mean + prior) / temperature
    return delta + np.sqrt(max(1 - noise, 0)) * box_muller(*uniforms), count


def austerity(differences, order, threshold, epsilon, block_size):
    """lbar - mu_0 at the end of the sequential test, and the size of the batch."""
    total = len(differences)
    for count in sizes(total, block_size):
        mean, _, variance = batch_of(differences, order, count)
        if count == total:
            break
        t = abs(mean - threshold) / np.sqrt(variance)
        if scipy.stats.t.sf(t, count - 1) < epsilon:
            break
    return mean - threshold, count


def confidence(differences, order, threshold, reach, delta, block_size):
    """lbar - psi when the concentration bound decides, and the size of the batch."""
    total = len(differences)
    looks, count = 0, block_size
    while True:
        count = min(count, total)
        mean, deviation, _ = batch_of(differences, order, count)
        looks += 1
        level = np.log(3 / (delta / (2 * looks**2)))
        width = deviation * np.sqrt(2 * level / count) + 6 * reach * level / count
        if count == total or abs(mean - threshold) >= width:
            return mean - threshold, count
        count *= 2


def mixture(values, probabilities, y):
    """Distribution function at y of a standard normal plus one of some values."""
    return scipy.special.ndtr(y[:, None] - values) @ probabilities


def barker_chain(start, batches, log_likelihoods, log_prior, settings):
    """The states of a chain whose test gets one mini-batch after the other.

    Args:
        start: theta, (d,).
        batches: for each step whether it begins an epoch, the numbers of its examples,
            its normals (d,), two uniforms of X_nc, and X_corr.
        log_likelihoods: function of theta, (N,).
        log_prior: function of theta.
        settings: `learning_rate`, `min_examples`, `temperature`.

    Returns:
        theta after each step, and the size of each test that has ended.
    """
    theta, step, found, sizes_of_tests = start, np.zeros_like(start), [], []
    temperature = settings["temperature"]
    for begins, rows, normals, uniforms, correction in batches:
        if begins:
            test = []
        test = [*test, *rows]
        differences = log_likelihoods(theta + step) - log_likelihoods(theta)
        total = len(differences)
        mean, _, variance = batch_of(differences, np.array(test), len(test))
        prior = log_prior(theta + step) - log_prior(theta)
        delta = (total * mean + prior) / temperature
        noise = (total / temperature) ** 2 * variance
        if noise < 1 and len(test) >= min(settings["min_examples"], total):
            normal = np.sqrt(1 - noise) * box_muller(*uniforms)
            theta = theta + step * (delta + normal + correction > 0)
            sizes_of_tests.append(len(test))
            step, test = settings["learning_rate"] * normals, []
        found.append(theta)
    return np.array(found), sizes_of_tests
