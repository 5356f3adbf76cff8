"""`PredictiveMixture`: the predictive distribution of a regression, and its scores."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _laws
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation import checks

LEVEL = _validate.Interval(0.0, 1.0, low_open=True)
LEVELS = tuple(k / 20 for k in range(1, 20))  # 5%, 10%, ..., 95%
_BLOCK = 2**18  # numbers that are computed at a time
_PRECISION = 1e-10  # of quantiles, in deviations
_NODES = 384  # of the integral over a mixture that has no closed form
_COUNTS = 1024  # terms of a sum over counts
_LOGITS = np.linspace(-27.0, 27.0, 48)  # of the quantiles that it is split at
_GAUSS = ((0.0, 8 / 9), (-math.sqrt(0.6), 5 / 9), (math.sqrt(0.6), 5 / 9))


class IntervalCalibration(NamedTuple):
    """A calibration curve of central intervals, two arrays of shape (levels,)."""

    expected: Array  # probability of the interval, its level
    observed: Array  # share of targets inside the interval


class PredictiveMixture:
    """A predictive distribution of N examples with D targets each.

    Each member of an ensemble predicts a law, such as a normal distribution, and the
    prediction of the ensemble is the weighted mixture of these laws. The targets of an
    example are independent given the member. `mh.predict_distribution` makes it from a
    model.

    Arrays have the shape (N, D), also if D is 1. The argument `y` of a method holds
    finite targets, shape (N, D), or (N,) if D is 1; others raise a `ValueError`, and so
    do levels and probabilities outside (0, 1). Scores are in the units of the targets,
    logarithms in nats. The scores `rmse`, `nll`, `coverage` and `calibration_error` are
    numbers for all examples together.

    Args:
        law: what the members predict, from the `mixture` of an `mh.losses.Likelihood`.
        weights: S numbers, at least 0 and not all 0, or None for equal weights. They
            are divided by their sum.

    Raises:
        ValueError: `weights` are outside their range or have another shape.

    Reference: Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable
    predictive uncertainty estimation using deep ensembles", section 2.4.
    """

    def __init__(self, law: _laws.Law, weights: npt.ArrayLike | None = None) -> None:
        self.law = law
        self.means = law.mean  # of the members, shape (S, N, D)
        self.weights = checks.as_shares(weights, len(self.means))

    def mean(self) -> Array:
        """Return the mean of each target, shape (N, D)."""
        return np.tensordot(self.weights, self.means, axes=1)

    def std(self) -> Array:
        """Return the standard deviation of each target, shape (N, D).

        Its square is the sum of the squares of `noise_std()` and `member_std()`.
        """
        return np.hypot(self.noise_std(), self.member_std())

    def noise_std(self) -> Array:
        """Return the part of the deviation that the noise makes, shape (N, D).

        Its square is the mean of the members' variances, the aleatoric part. More
        data would not reduce it.
        """
        return np.sqrt(np.tensordot(self.weights, self.law.variance, axes=1))

    def member_std(self) -> Array:
        """Return the standard deviation of the members' means, shape (N, D).

        It is the epistemic part of the uncertainty. More data would reduce it.
        """
        squares = np.square(self.means - self.mean())
        return np.sqrt(np.tensordot(self.weights, squares, axes=1))

    def cdf(self, y: npt.ArrayLike) -> Array:
        """Return the predicted probability of a value of at most each target, (N, D).

        For a calibrated density it is uniform on [0, 1].
        """
        return self._map(_below, self._targets(y))

    def log_prob(self, y: npt.ArrayLike) -> Array:
        """Return each example's log density (N,), or log probability of its counts.

        The targets of an example are independent given the member, not in the mixture.
        So their logarithms are summed within each member, before members are averaged.
        """

        def joint(law: _laws.Law, weights: Array, y: Array) -> Array:
            logs = np.sum(law.log_prob(y), axis=2) + np.log(weights)[:, None]
            return np.logaddexp.reduce(logs, axis=0)

        return self._map(joint, self._targets(y))

    def crps(self, y: npt.ArrayLike) -> Array:
        """Return the continuous ranked probability score of each target, (N, D).

        It is E|X - y| - E|X - X'| / 2 for independent X and X' from the prediction, and
        the absolute error for a prediction without spread. Mixtures of normals have it
        in closed form, in a time that grows with the square of the number of members
        if a member is far narrower than the mixture; other laws integrate numerically.

        Reference: Grimit, Gneiting, Berrocal and Johnson (2006), "The continuous ranked
        probability score for circular variables", for mixtures of normals.
        """

        def score(law: _laws.Law, weights: Array, y: Array) -> Array:
            away = np.tensordot(weights, law.distance(y), axes=1)
            return away - _half_distance(law, weights)

        return self._map(score, self._targets(y))

    def quantile(self, q: float) -> Array:
        """Return the value (N, D) that each target is below with a probability of `q`.

        It is exact to 1e-10 of a deviation. For counts it is the smallest count with at
        least this probability up to it.
        """
        q = _validate.number("q", q, LEVEL)
        return self._map(functools.partial(_quantile, q=q))

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return `(low, high)`, the ends (N, D) of the central interval of each target.

        Args:
            level: probability of the interval, in (0, 1). Defaults to 0.9, from the 5%
                quantile to the 95% quantile.
        """
        level = _validate.number("level", level, LEVEL)
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    def sample(self, n: int, seed: int = 0) -> Array:
        """Return draws from the prediction, shape (n, N, D).

        Each draw comes from one member for all examples: a curve, and noise around it.

        Args:
            n: number of draws, at least 1.
            seed: integer that fixes the draws. Defaults to 0.
        """
        n = _validate.integer("n", n, 1)
        rng = np.random.default_rng(_validate.seed(seed))
        chosen = rng.choice(len(self.weights), size=n, p=self.weights)
        return self.law.members(chosen).draws(rng)

    def rmse(self, y: npt.ArrayLike) -> float:
        """Return the root mean squared error of the mean."""
        return math.sqrt(np.mean(np.square(self._targets(y) - self.mean())))

    def nll(self, y: npt.ArrayLike) -> float:
        """Return the mean of minus `log_prob`, in nats per example."""
        return float(-np.mean(self.log_prob(y)))

    def coverage(self, y: npt.ArrayLike, level: float = 0.9) -> float:
        """Return the share of targets in their central intervals, in [0, 1].

        It is about `level` for a calibrated prediction. A count is inside with the
        share of its probability that is.
        """
        level = _validate.number("level", level, LEVEL)
        return float(np.mean(self._central(self._targets(y)) <= level))

    def calibration(
        self, y: npt.ArrayLike, levels: npt.ArrayLike = LEVELS
    ) -> IntervalCalibration:
        """Return the observed share of targets in central intervals of many levels.

        Args:
            y: finite targets, shape (N, D), or (N,) if D is 1.
            levels: probabilities of the intervals, shape (levels,), in (0, 1).
                Defaults to 0.05, 0.1, ..., 0.95.

        Reference: Kuleshov, Fenner and Ermon (2018), "Accurate uncertainties for deep
        learning using calibrated regression", section 3.5.
        """
        expected = checks.as_finite("levels", levels, ranks=(1,), axes="(levels,)")
        for level in expected:
            _validate.number("levels", float(level), LEVEL)
        inside = np.sort(self._central(self._targets(y)), axis=None)
        observed = np.searchsorted(inside, expected, side="right") / len(inside)
        return IntervalCalibration(expected, observed)

    def calibration_error(self, y: npt.ArrayLike) -> float:
        """Return the mean gap of the calibration curve, |observed - expected|.

        The levels are 0.05, 0.1, ..., 0.95. About 0 is best. An interval that never
        holds the target, or always does, gives 0.5.
        """
        curve = self.calibration(y)
        return float(np.mean(np.abs(curve.observed - curve.expected)))

    def _targets(self, y: npt.ArrayLike) -> Array:
        y = checks.as_targets("y", y, self.means.shape[1:])
        wrong = (y < 0.0) | (y != np.floor(y))
        if self.law.is_count and np.any(wrong):
            raise ValueError(
                "Argument `y` must be counts, 0, 1, 2, ..., for a likelihood of "
                f"counts. Received: {y[wrong][0]:g}"
            )
        return y

    def _central(self, y: Array) -> Array:
        """Return the level of the central interval that ends at each target."""
        below = self._map(_below, y)
        if self.law.is_count:  # drawn from the levels that its probability takes up
            share = np.random.default_rng(0).uniform(size=y.shape)
            below -= share * (below - self._map(_below, y - 1.0))
        return 2.0 * np.abs(below - 0.5)

    def _map(self, function: Callable[..., Array], *arrays: Array) -> Array:
        """Return `function(law, weights, *arrays)`, for some examples at a time."""
        is_kept = self.weights > 0.0
        law, weights, count = self.law, self.weights, self.means.shape[1]
        if not np.all(is_kept):
            law, weights = law.members(is_kept), weights[is_kept]
        numbers = max(1, np.size(self.law.variance) // count)
        size = max(1, _BLOCK // numbers)
        parts = [slice(start, start + size) for start in range(0, count, size)]
        return np.concatenate(
            [
                function(law.examples(part), weights, *(a[part] for a in arrays))
                for part in parts
            ]
        )


class NormalMixture(PredictiveMixture):
    """The `PredictiveMixture` of members with normal noise of one known size.

    Args:
        means: predicted means of S members, shape (S, N), or (S, N, D) for D targets.
            Add a first axis of length 1 for a single network.
        noise_std: standard deviation of the noise, in units of the target, greater
            than 0. It is that of `mh.losses.GaussianNLL`.
        weights: as in `PredictiveMixture`.

    Raises:
        ValueError: an argument is outside its range or has another shape.

    Example:

    >>> mixture = NormalMixture([[0.0], [2.0]], noise_std=1.0, weights=[0.5, 0.5])
    >>> mixture.mean(), round(mixture.nll([1.0]), 4), mixture.crps([1.0]).round(4)
    (array([[1.]]), 1.4189, array([[0.3594]]))
    >>> low, high = mixture.interval(0.9)
    >>> low.round(3), high.round(3)
    (array([[-1.284]]), array([[3.284]]))
    """

    def __init__(
        self,
        means: npt.ArrayLike,
        noise_std: float,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        means = checks.as_finite(
            "means", means, ranks=(2, 3), axes="(members, examples)"
        )
        noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)
        means = means.reshape(1, *means.shape[:2], -1)
        ones = np.ones_like(means)
        super().__init__(_laws.NormalLaw(means, noise_std * ones, ones), weights)


def _below(law: _laws.Law, weights: Array, y: Array) -> Array:
    """Return the probabilities of at most `y`."""
    return np.tensordot(weights, law.cdf(y), axes=1)


def _quantile(law: _laws.Law, weights: Array, q: float) -> Array:
    """Return the smallest values with a probability of at least `q` up to them."""
    # The quantile of a mixture lies between those of its members.
    ends = law.bracket(q)
    low, high = np.min(ends[0], axis=0), np.max(ends[1], axis=0)
    if law.is_count:
        low, high = np.maximum(np.floor(low), 0.0) - 1.0, np.ceil(high) + 1.0
        while np.any(high - low > 1.0 + np.spacing(high)):
            middle = np.floor(0.5 * (low + high))
            is_above = _below(law, weights, middle) >= q
            low = np.where(is_above, low, middle)
            high = np.where(is_above, middle, high)
        return high
    digits = 4.0 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
    precision = np.maximum(_PRECISION * np.sqrt(np.min(law.variance, axis=0)), digits)
    halvings = math.ceil(math.log2(max(np.max((high - low) / precision), 1.0)))
    value = 0.5 * (low + high)
    for step in range(8 * (halvings + 1)):
        excess = _below(law, weights, value) - q
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


def _half_distance(law: _laws.Law, weights: Array) -> Array:
    """Return E|X - X'| / 2 of two independent draws, the integral of F (1 - F)."""
    if law.is_count:
        return _sum_of_counts(law, weights)
    normals = law.normals()
    if normals is None:
        return _integral(law, weights)
    shares, means, stds = normals
    low = np.min(means - 8.0 * stds, axis=0)
    width = np.max(means + 8.0 * stds, axis=0) - low
    # The trapezoidal rule is exact to 1e-4 of the smallest deviation if its steps are
    # no longer, and the faster one of many members.
    steps = np.max(width / np.min(stds, axis=0))
    if steps < len(means) // 2:  # not if NaN
        steps = math.ceil(steps)
        step, total = width / steps, np.zeros_like(low)
        for number in range(1, steps):
            share = _below(law, weights, low + number * step)
            total += share * (1.0 - share)
        return total * step
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
    low, high = (_quantile(law, weights, q) for q in (1e-12, 1.0 - 1e-12))
    span = high - low
    counts = np.arange(min(np.max(span), _COUNTS) + 1.0)[:, None, None]
    if np.max(span) <= _COUNTS:
        nodes = low + np.minimum(counts, span)
    else:  # even steps, and steps that grow: the law may be narrow or very skew
        share = counts[::2] / _COUNTS
        growing = np.expm1(share * np.log1p(span))
        nodes = low + np.floor(np.concatenate([share * span, growing]))
        nodes = np.sort(nodes, axis=0)
    shares = np.stack([_below(law, weights, y) for y in nodes])
    parts = shares * (1.0 - shares)
    left, right = parts[:-1], parts[1:]
    width = np.diff(nodes, axis=0)
    # Sums over the counts from each node on, up to the next one.
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
            part = _below(law, weights, middle + half * node)
            total += weight * half * part * (1.0 - part)
    return total
