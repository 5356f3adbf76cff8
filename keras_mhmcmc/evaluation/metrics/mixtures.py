"""Distribution function, quantiles and spread of a weighted mixture of laws.

Arrays that are returned have the shape (examples, targets). `weights` are the members'
weights, which sum to 1.
"""

import math

import numpy as np

from keras_mhmcmc import _laws
from keras_mhmcmc._types import Array

_PRECISION = 1e-10  # of quantiles, in deviations
_NODES = 384  # of the integral over a mixture that has no closed form
_COUNTS = 1024  # terms of a sum over counts
_LOGITS = np.linspace(-27.0, 27.0, 48)  # of the quantiles that it is split at
_GAUSS = ((0.0, 8 / 9), (-math.sqrt(0.6), 5 / 9), (math.sqrt(0.6), 5 / 9))


def below(law: _laws.Law, weights: Array, y: Array) -> Array:
    """Return the probabilities of at most `y`."""
    return np.tensordot(weights, law.cdf(y), axes=1)


def quantile(law: _laws.Law, weights: Array, q: float) -> Array:
    """Return the smallest values with a probability of at least `q` up to them."""
    law, weights = law.members(weights > 0.0), weights[weights > 0.0]
    # The quantile of a mixture lies between those of its members.
    ends = law.bracket(q)
    low, high = np.min(ends[0], axis=0), np.max(ends[1], axis=0)
    if law.is_count:
        low, high = np.maximum(np.floor(low), 0.0) - 1.0, np.ceil(high) + 1.0
        while np.any(high - low > 1.0 + np.spacing(high)):
            middle = np.floor(0.5 * (low + high))
            is_above = below(law, weights, middle) >= q
            low = np.where(is_above, low, middle)
            high = np.where(is_above, middle, high)
        return high
    digits = 4.0 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
    precision = np.maximum(_PRECISION * np.sqrt(np.min(law.variance, axis=0)), digits)
    halvings = math.ceil(math.log2(max(np.max((high - low) / precision), 1.0)))
    value = 0.5 * (low + high)
    for step in range(8 * (halvings + 1)):
        excess = below(law, weights, value) - q
        low = np.where(excess < 0.0, value, low)
        high = np.where(excess < 0.0, high, value)
        density = np.tensordot(weights, np.exp(law.log_prob(value)), axes=1)
        newton = value - excess / np.maximum(density, np.finfo("float64").tiny)
        is_found = np.abs(newton - value) <= precision
        # Each eighth step halves the bracket, so that it always closes.
        is_newton = (newton >= low) & (newton <= high) & (step % 8 < 7)
        value = np.where(is_newton | is_found, newton, 0.5 * (low + high))
        if np.all(is_found | (high - low <= precision)):
            break
    return np.clip(value, low, high)


def half_distance(law: _laws.Law, weights: Array) -> Array:
    """Return E|X - X'| / 2 of two independent draws, the integral of F (1 - F)."""
    law, weights = law.members(weights > 0.0), weights[weights > 0.0]
    if law.is_count:
        return _sum_of_counts(law, weights)
    normals = law.normals()
    if normals is None:
        return _integral(law, weights)
    shares, means, stds = normals
    shares = shares * np.repeat(weights, len(shares) // len(weights))[:, None, None]
    own = _laws.normal_distance(np.zeros_like(means), math.sqrt(2.0) * stds)
    apart = np.sum(np.square(shares) * own, axis=0)
    for i in range(1, len(means)):
        both = np.hypot(stds[:i], stds[i])
        distances = _laws.normal_distance(means[:i] - means[i], both)
        apart += 2.0 * np.sum(shares[i] * shares[:i] * distances, axis=0)
    return 0.5 * apart


def _sum_of_counts(law: _laws.Law, weights: Array) -> Array:
    """Return the sum of F (1 - F); over a wide range by the trapezoidal rule."""
    low, high = (quantile(law, weights, q) for q in (1e-12, 1.0 - 1e-12))
    span = high - low
    counts = np.arange(min(np.max(span), _COUNTS) + 1.0)[:, None, None]
    if np.max(span) <= _COUNTS:
        nodes = low + np.minimum(counts, span)
    else:  # even steps, and steps that grow: the law may be narrow or very skew
        share = counts[::2] / _COUNTS
        growing = np.expm1(share * np.log1p(span))
        nodes = low + np.floor(np.concatenate([share * span, growing]))
        nodes = np.sort(nodes, axis=0)
    masses = [np.tensordot(weights, np.exp(law.log_prob(y)), axes=1) for y in nodes]
    width, mass = np.diff(nodes, axis=0), np.stack(masses)
    left, right = mass[:-1], mass[1:]
    # Sums over the counts after each node, up to the next one.
    parts = 0.5 * (width * (left + right) + right - left)
    first = below(law, weights, low)[None]
    lower = np.concatenate([first, first + np.cumsum(parts, axis=0)])
    upper = np.concatenate([np.cumsum(parts[::-1], axis=0)[::-1], np.zeros_like(first)])
    left, right = (lower * upper)[:-1], (lower * upper)[1:]
    return 0.5 * np.sum(width * (left + right) + left - right, axis=0)


def _integral(law: _laws.Law, weights: Array) -> Array:
    """Return the integral of F (1 - F), by Gauss's rule between members' quantiles."""
    ends = np.sort(
        np.concatenate([law.bracket(1.0 / (1.0 + math.exp(-x)))[0] for x in _LOGITS]),
        axis=0,
    )
    if len(ends) > _NODES:
        ends = ends[np.linspace(0, len(ends) - 1, _NODES).astype("int64")]
    total = np.zeros(ends.shape[1:])
    for left, right in zip(ends[:-1], ends[1:], strict=True):
        middle, half = 0.5 * (left + right), 0.5 * (right - left)
        for node, weight in _GAUSS:
            part = below(law, weights, middle + half * node)
            total += weight * half * part * (1.0 - part)
    return total
