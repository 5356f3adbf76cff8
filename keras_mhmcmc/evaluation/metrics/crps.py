"""The continuous ranked probability score (CRPS) of normals and of samples.

Paper: Gneiting and Raftery (2007), "Strictly proper scoring rules, prediction, and
estimation". `NormalMixture.crps` is the score of a mixture of normals.
"""

import math

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _laws
from keras_mhmcmc import _validate
from keras_mhmcmc.evaluation.checks import as_finite
from keras_mhmcmc.evaluation.checks import as_shares
from keras_mhmcmc.evaluation.checks import as_targets


def crps_normal(mean: npt.ArrayLike, std: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return the mean CRPS of normal predictions, each with its own deviation.

    Args:
        mean: predicted means, shape (N,) or (N, D).
        std: standard deviations, greater than 0, of the shape of `mean`, or one number.
        y: finite targets, shape (N,) or (N, D).

    Returns:
        A float, at least 0, in units of `y`.

    Raises:
        ValueError: an argument is outside its range or has another shape.

    Example:

    >>> round(crps_normal([0.0, 1.0], 1.0, [0.0, 2.0]), 4)
    0.4181

    Reference: Gneiting and Raftery (2007), eq. (21).
    """
    mean = as_finite("mean", mean, ranks=(1, 2), axes="(examples,)")
    std = _validate.array("Argument `std`", std)
    if std.shape not in ((), mean.shape) or not np.all((std > 0.0) & (std < np.inf)):
        raise ValueError(
            "Argument `std` must be finite and greater than 0: one number, or an array "
            f"of the shape of `mean`, {mean.shape}. Received: shape {std.shape}, with "
            f"values between {np.min(std, initial=np.inf):g} and "
            f"{np.max(std, initial=-np.inf):g}"
        )
    z = (as_targets("y", y, mean.shape) - mean) / std
    scores = z * (2.0 * _laws.normal_cdf(z) - 1.0) + 2.0 * _laws.normal_density(z)
    return float(np.mean(std * (scores - 1.0 / math.sqrt(math.pi))))


def crps_samples(
    samples: npt.ArrayLike, y: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Return the mean CRPS of predictions that are given by weighted samples.

    The prediction is the discrete distribution on the samples. Its score,
    E|X - y| - E|X - X'| / 2, is exact and takes a sort of the samples. Draw samples
    with noise: means alone say nothing about it. `NormalMixture.crps` needs no draws.

    Args:
        samples: samples of each prediction, shape (S, N) or (S, N, D).
        y: finite targets, shape (N,) or (N, D).
        weights: S numbers, at least 0 and not all 0, or None for equal weights. They
            are divided by their sum.

    Returns:
        A float, at least 0, in units of `y`.

    Raises:
        ValueError: an argument is outside its range or has another shape.

    Example:

    >>> crps_samples([[0.0], [2.0]], [1.0])
    0.5

    Reference: Gneiting and Raftery (2007), eq. (21).
    """
    samples = as_finite("samples", samples, ranks=(2, 3), axes="(samples, examples)")
    shares = as_shares(weights, len(samples))
    y = as_targets("y", y, samples.shape[1:])
    away = np.tensordot(shares, np.abs(samples - y), axes=1)
    order = np.argsort(samples, axis=0)
    values = np.take_along_axis(samples, order, axis=0)
    below = np.cumsum(shares[order], axis=0)[:-1]
    # Between neighbours the distribution function is constant.
    apart = 2.0 * np.sum(below * (1.0 - below) * np.diff(values, axis=0), axis=0)
    return float(np.mean(away - 0.5 * apart))
