"""`NormalMixture`: the predictive distribution of a regression, and its scores.

Papers: Grimit, Gneiting, Berrocal and Johnson (2006), "The continuous ranked
probability score for circular variables and its application to mesoscale forecast
ensemble verification", for the continuous ranked probability score (CRPS) of a mixture
of normals; Kuleshov, Fenner and Ermon (2018), "Accurate uncertainties for
deep learning using calibrated regression", for the calibration of intervals.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import as_finite
from keras_mhmcmc.evaluation.checks import as_shares
from keras_mhmcmc.evaluation.checks import as_targets
from keras_mhmcmc.evaluation.metrics import normal

LEVEL = _validate.Interval(0.0, 1.0, low_open=True)
LEVELS = tuple(k / 20 for k in range(1, 20))  # 5%, 10%, ..., 95%
_PRECISION = 1e-10  # of quantiles, in units of the noise
_BLOCK = 2**18  # numbers that are computed at a time


class IntervalCalibration(NamedTuple):
    """A calibration curve of central intervals, two arrays of shape (levels,)."""

    expected: Array  # probability of the interval, its level
    observed: Array  # share of targets inside the interval


class NormalMixture:
    """A predictive distribution for each example: a weighted mixture of normals.

    Member s of an ensemble predicts the mean m_s of a target with normal noise. The
    prediction of the ensemble is the mixture, sum over s of
    weight_s Normal(m_s, noise_std^2). With one member it is a normal distribution.
    `mh.predict_distribution` makes it from a model.

    All scores are in the units of the targets; the NLL is in nats. To return to other
    units, multiply `means`, `noise_std` and the targets by the same number.

    Args:
        means: predicted means of S members, shape (S, N), or (S, N, D) for D outputs.
            Add a first axis of length 1 for a single network.
        noise_std: standard deviation of the noise, in units of the target, greater
            than 0. It is that of `mh.losses.GaussianNLL`.
        weights: S numbers, at least 0 and not all 0, or None for equal weights. They
            are divided by their sum.

    Raises:
        ValueError: an argument is outside its range or has another shape.

    Example:

    >>> mixture = NormalMixture([[0.0], [2.0]], noise_std=1.0, weights=[0.5, 0.5])
    >>> mixture.mean, round(mixture.nll([1.0]), 4), round(mixture.crps([1.0]), 4)
    (array([1.]), 1.4189, 0.3594)
    >>> low, high = mixture.interval(0.9)
    >>> low.round(3), high.round(3)
    (array([-1.284]), array([3.284]))

    Reference: Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable
    predictive uncertainty estimation using deep ensembles", section 2.4, for the
    mixture.
    """

    def __init__(
        self,
        means: npt.ArrayLike,
        noise_std: float,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        self.means = as_finite("means", means, ranks=(2, 3), axes="(members, examples)")
        self.noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)
        self.weights = as_shares(weights, len(self.means))

    @property
    def mean(self) -> Array:
        """Return the weighted mean of the members' means, shape (N,) or (N, D)."""
        return np.tensordot(self.weights, self.means, axes=1)

    @property
    def member_std(self) -> Array:
        """Return the standard deviation of the members' means, shape (N,) or (N, D).

        It is the epistemic part of the uncertainty. Its square plus the square of
        `noise_std` is the variance of the prediction.
        """
        squares = np.square(self.means - self.mean)
        return np.sqrt(np.tensordot(self.weights, squares, axes=1))

    def rmse(self, y: npt.ArrayLike) -> float:
        """Return the root mean squared error of the mean.

        Args:
            y: finite targets, shape (N,) or (N, D).

        Raises:
            ValueError: `y` does not fit the prediction.
        """
        return math.sqrt(np.mean(np.square(self._targets(y) - self.mean)))

    def nll(self, y: npt.ArrayLike) -> float:
        """Return the mean negative log density of the targets, in nats per example.

        The outputs of an example are independent given the member, as in
        `mh.losses.GaussianNLL`. So their logarithms are summed within each member,
        before the densities of the members are averaged.

        Args:
            y: finite targets, shape (N,) or (N, D).

        Raises:
            ValueError: `y` does not fit the prediction.
        """
        residuals = (self._targets(y) - self.means) / self.noise_std
        squares = np.square(residuals).reshape(*self.means.shape[:2], -1)
        constant = math.log(self.noise_std) + 0.5 * math.log(2.0 * math.pi)
        logs = -0.5 * np.sum(squares, axis=2) - squares.shape[2] * constant  # (S, N)
        highest = np.max(logs[self.weights > 0.0], axis=0)
        # A member of weight 0 may have the highest density: it must not overflow.
        powers = np.exp(np.minimum(logs - highest, 0.0))
        return float(-np.mean(np.log(self.weights @ powers) + highest))

    def crps(self, y: npt.ArrayLike) -> float:
        """Return the mean continuous ranked probability score, in units of `y`.

        It is E|X - y| - E|X - X'| / 2 for independent X and X' from the prediction, in
        closed form. It generalises the absolute error: that is its value without
        noise and with one member. Outputs are scored one by one and averaged. The time
        grows with the square of the number of members.

        Args:
            y: finite targets, shape (N,) or (N, D).

        Raises:
            ValueError: `y` does not fit the prediction.

        Reference: Grimit et al. (2006), the equation for mixtures of normals.
        """
        y = self._targets(y)
        away = self._average(
            lambda means: normal.absolute_mean(y - means, self.noise_std)
        )
        spread = normal.absolute_mean(np.zeros(()), math.sqrt(2.0) * self.noise_std)
        apart = np.sum(np.square(self.weights)) * spread + np.zeros_like(y)
        for i in range(1, len(self.means)):
            pairs = self.means[:i] - self.means[i]
            distances = normal.absolute_mean(pairs, math.sqrt(2.0) * self.noise_std)
            share = 2.0 * self.weights[i] * self.weights[:i]
            apart += np.tensordot(share, distances, axes=1)
        return float(np.mean(away - 0.5 * apart))

    def cdf(self, y: npt.ArrayLike) -> Array:
        """Return the predicted probability of a value below each target.

        For a calibrated prediction these values are uniform on [0, 1]: they are the
        probability integral transform.

        Args:
            y: finite targets, shape (N,) or (N, D).

        Returns:
            A float64 array of the shape of the prediction, (N,) or (N, D).

        Raises:
            ValueError: `y` does not fit the prediction.
        """
        return self._below(self._targets(y))

    def quantile(self, probability: float) -> Array:
        """Return the quantile of each prediction, by bisection and Newton's method.

        Args:
            probability: probability of a value below the quantile, in (0, 1).

        Returns:
            A float64 array of shape (N,) or (N, D), to 1e-10 of `noise_std`.

        Raises:
            ValueError: `probability` is not in (0, 1).
        """
        probability = _validate.number("probability", probability, LEVEL)
        # The quantile of a mixture lies between those of its members.
        shift = self.noise_std * NormalDist().inv_cdf(probability)
        used = self.means[self.weights > 0.0]
        low, high = np.min(used, axis=0) + shift, np.max(used, axis=0) + shift
        precision = _PRECISION * self.noise_std
        halvings = math.ceil(math.log2(max(np.max(high - low) / precision, 1.0)))
        value = 0.5 * (low + high)
        for step in range(8 * (halvings + 1)):
            excess = self._below(value) - probability
            low = np.where(excess < 0.0, value, low)
            high = np.where(excess < 0.0, high, value)
            density = np.maximum(self._density(value), np.finfo("float64").tiny)
            newton = value - excess / density
            is_found = np.abs(newton - value) <= precision
            # Each eighth step halves the bracket, so that it always closes.
            is_newton = (newton >= low) & (newton <= high) & (step % 8 < 7)
            value = np.where(is_newton | is_found, newton, 0.5 * (low + high))
            if np.all(is_found | (high - low <= precision)):
                break
        return np.clip(value, low, high)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return the ends of the central interval of each prediction.

        Args:
            level: probability of the interval, in (0, 1). Defaults to 0.9, from the 5%
                quantile to the 95% quantile.

        Returns:
            `(low, high)`, two float64 arrays of shape (N,) or (N, D).

        Raises:
            ValueError: `level` is not in (0, 1).
        """
        level = _validate.number("level", level, LEVEL)
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    def coverage(self, y: npt.ArrayLike, level: float = 0.9) -> float:
        """Return the share of targets in their central intervals.

        Args:
            y: finite targets, shape (N,) or (N, D).
            level: probability of the intervals, in (0, 1). Defaults to 0.9.

        Returns:
            A float in [0, 1]. It is about `level` for a calibrated prediction.

        Raises:
            ValueError: `y` does not fit the prediction, or `level` is not in (0, 1).
        """
        level = _validate.number("level", level, LEVEL)
        return float(np.mean(2.0 * np.abs(self.cdf(y) - 0.5) <= level))

    def calibration(
        self, y: npt.ArrayLike, levels: npt.ArrayLike = LEVELS
    ) -> IntervalCalibration:
        """Return the observed share of targets in central intervals of many levels.

        `mh.plots.interval_calibration` draws the curve.

        Args:
            y: finite targets, shape (N,) or (N, D).
            levels: probabilities of the intervals, shape (levels,), in (0, 1).
                Defaults to 0.05, 0.1, ..., 0.95.

        Returns:
            A named tuple of two arrays: `expected`, the levels, and `observed`, the
            share of targets inside.

        Raises:
            ValueError: `y` does not fit the prediction, or `levels` are not in (0, 1).

        Reference: Kuleshov et al. (2018), section 3.5, with central intervals.
        """
        expected = as_finite("levels", levels, ranks=(1,), axes="(levels,)")
        for level in expected:
            _validate.number("levels", float(level), LEVEL)
        inside = np.sort(2.0 * np.abs(self.cdf(y) - 0.5), axis=None)
        observed = np.searchsorted(inside, expected, side="right") / len(inside)
        return IntervalCalibration(expected, observed)

    def calibration_error(self, y: npt.ArrayLike) -> float:
        """Return the mean gap of the calibration curve, |observed - expected|.

        The levels are 0.05, 0.1, ..., 0.95. About 0 is best. An interval that never
        holds the target, or always does, gives 0.5.

        Args:
            y: finite targets, shape (N,) or (N, D).

        Raises:
            ValueError: `y` does not fit the prediction.
        """
        curve = self.calibration(y)
        return float(np.mean(np.abs(curve.observed - curve.expected)))

    def _targets(self, y: npt.ArrayLike) -> Array:
        return as_targets("y", y, self.means.shape[1:])

    def _below(self, values: Array) -> Array:
        """Return the mixture's distribution function at values (N,) or (N, D)."""
        return self._average(
            lambda means: normal.below((values - means) / self.noise_std)
        )

    def _density(self, values: Array) -> Array:
        """Return the mixture's density at values (N,) or (N, D)."""
        return self._average(
            lambda means: (
                normal.density((values - means) / self.noise_std) / self.noise_std
            )
        )

    def _average(self, function: Callable[[Array], Array]) -> Array:
        """Return the weighted mean over members of a function of their means."""
        size = max(1, _BLOCK // max(1, self.means[0].size))
        total = np.zeros(self.means.shape[1:])
        for start in range(0, len(self.means), size):
            part = slice(start, start + size)
            values = function(self.means[part])
            total += np.tensordot(self.weights[part], values, axes=1)
        return total
