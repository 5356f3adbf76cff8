"""`PredictiveMixture`: the predictive distribution of a regression, and its scores."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _laws
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import as_finite
from keras_mhmcmc.evaluation.checks import as_shares
from keras_mhmcmc.evaluation.checks import as_targets
from keras_mhmcmc.evaluation.metrics import mixtures

LEVEL = _validate.Interval(0.0, 1.0, low_open=True)
LEVELS = tuple(k / 20 for k in range(1, 20))  # 5%, 10%, ..., 95%
_BLOCK = 2**18  # numbers that are computed at a time


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
        self.weights = as_shares(weights, len(self.means))

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
        return self._map(self._below, self._targets(y))

    def log_prob(self, y: npt.ArrayLike) -> Array:
        """Return each example's log density (N,), or log probability of its counts.

        The targets of an example are independent given the member, not in the mixture.
        So their logarithms are summed within each member, before members are averaged.
        """
        with np.errstate(divide="ignore"):  # a weight of 0
            log_weights = np.log(self.weights)[:, None]

        def joint(law: _laws.Law, y: Array) -> Array:
            logs = np.sum(law.log_prob(y), axis=2) + log_weights
            return np.logaddexp.reduce(logs, axis=0)

        return self._map(joint, self._targets(y))

    def crps(self, y: npt.ArrayLike) -> Array:
        """Return the continuous ranked probability score of each target, (N, D).

        It is E|X - y| - E|X - X'| / 2 for independent X and X' from the prediction, and
        the absolute error for a prediction without spread. Mixtures of normals have it
        in closed form, in a time that grows with the square of the number of members;
        other laws integrate numerically.

        Reference: Grimit, Gneiting, Berrocal and Johnson (2006), "The continuous ranked
        probability score for circular variables", for mixtures of normals.
        """

        def score(law: _laws.Law, y: Array) -> Array:
            away = np.tensordot(self.weights, law.distance(y), axes=1)
            return away - mixtures.half_distance(law, self.weights)

        return self._map(score, self._targets(y))

    def quantile(self, q: float) -> Array:
        """Return the value (N, D) that each target is below with a probability of `q`.

        It is exact to 1e-10 of a deviation. For counts it is the smallest count with at
        least this probability up to it.
        """
        q = _validate.number("q", q, LEVEL)
        return self._map(lambda law: mixtures.quantile(law, self.weights, q))

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
        expected = as_finite("levels", levels, ranks=(1,), axes="(levels,)")
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
        y = as_targets("y", y, self.means.shape[1:])
        wrong = (y < 0.0) | (y != np.floor(y))
        if self.law.is_count and np.any(wrong):
            raise ValueError(
                "Argument `y` must be counts, 0, 1, 2, ..., for a likelihood of "
                f"counts. Received: {y[wrong][0]:g}"
            )
        return y

    def _central(self, y: Array) -> Array:
        """Return the level of the central interval that ends at each target.

        The level of a count is drawn from those that its probability takes up, so that
        it is uniform for a calibrated prediction.
        """
        below = self._map(self._below, y)
        if self.law.is_count:
            share = np.random.default_rng(0).uniform(size=y.shape)
            below -= share * (below - self._map(self._below, y - 1.0))
        return 2.0 * np.abs(below - 0.5)

    def _map(self, function: Callable[..., Array], *arrays: Array) -> Array:
        """Return `function(law, *arrays)`, computed for some examples at a time."""
        count = self.means.shape[1]
        numbers = max(1, np.size(self.law.variance) // count)
        size = max(1, _BLOCK // numbers)
        parts = [slice(start, start + size) for start in range(0, count, size)]
        return np.concatenate(
            [
                function(self.law.examples(part), *(array[part] for array in arrays))
                for part in parts
            ]
        )

    def _below(self, law: _laws.Law, y: Array) -> Array:
        return mixtures.below(law, self.weights, y)


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
        means = as_finite("means", means, ranks=(2, 3), axes="(members, examples)")
        noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)
        means = means.reshape(1, *means.shape[:2], -1)
        ones = np.ones_like(means)
        super().__init__(_laws.NormalLaw(means, noise_std * ones, ones), weights)


def crps_normal(mean: npt.ArrayLike, std: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return the mean CRPS of normal predictions, in units of `y`.

    Args:
        mean: predicted means, shape (N,) or (N, D).
        std: standard deviations, greater than 0, of the shape of `mean`, or one number.
        y: finite targets, shape (N,) or (N, D).

    Raises:
        ValueError: an argument is outside its range or has another shape.

    Example:

    >>> round(crps_normal([0.0, 1.0], 1.0, [0.0, 2.0]), 4)
    0.4181

    Reference: Gneiting and Raftery (2007), "Strictly proper scoring rules, prediction,
    and estimation", eq. (21).
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
    """Return the mean CRPS of predictions given by weighted samples, in units of `y`.

    The prediction is the discrete distribution on the samples. Its score,
    E|X - y| - E|X - X'| / 2, is exact and takes a sort of the samples. Draw samples
    with noise: means alone say nothing about it. `NormalMixture.crps` needs no draws.

    Args:
        samples: samples of each prediction, shape (S, N) or (S, N, D).
        y: finite targets, shape (N,) or (N, D).
        weights: as in `mutual_information`.

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
