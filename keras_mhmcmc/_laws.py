"""Laws of targets given the outputs of each member of an ensemble, in float64.

The parameters of a law are arrays of shape (members, examples, targets).
"""

import dataclasses
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any
from typing import Self

import numpy as np

from keras_mhmcmc._types import Array

_LOG_2_PI = math.log(2.0 * math.pi)


def normal_density(x: Array) -> Array:
    """Return the density of the standard normal distribution at each x."""
    return np.exp(-0.5 * np.square(x)) / math.sqrt(2.0 * math.pi)


def normal_cdf(x: Array) -> Array:
    """Return the standard normal probability of a value below each x."""
    return np.asarray(_special().ndtr(x))


def normal_distance(mean: Array, std: Array) -> Array:
    """Return E|X| of normal X, the function A of Grimit et al. (2006)."""
    z = mean / std
    return 2.0 * std * normal_density(z) + mean * (2.0 * normal_cdf(z) - 1.0)


def _stirling(xp: Any, z: Any) -> Any:
    """Return log Gamma(z) - (z - 1/2) log z + z - log(2 pi) / 2, z > 0.

    Five steps up make Stirling's series exact to 1e-9. Differences of log gamma
    functions cancel in float32; the formulas below take their large parts apart.
    """
    steps = sum((z + (k + 0.5)) * xp.log1p(1.0 / (z + k)) - 1.0 for k in range(5))
    inverse = 1.0 / (z + 5.0)
    square = inverse * inverse
    return steps + inverse * (1 / 12 - square * (1 / 360 - square / 1260))


def student_t_log_prob(xp: Any, z: Any, df: Any) -> Any:
    """Return Student's t log density at z scales from its centre; xp is the library."""
    half = 0.5 * df
    gammas = half * xp.log1p(0.5 / half) + _stirling(xp, half + 0.5)
    constant = gammas - 0.5 - _stirling(xp, half) - 0.5 * _LOG_2_PI
    return constant - (half + 0.5) * xp.log1p(xp.square(z) / df)


def count_log_prob(xp: Any, y: Any, rate: Any, log_rate: Any, size: Any = None) -> Any:
    """Return the log probability of counts of a negative binomial or Poisson law.

    The saddle-point form of Loader (2000), "Fast and accurate computation of binomial
    probabilities", which is exact and cancels nowhere. `xp` is `numpy` or `keras.ops`,
    and `size` the shape of the gamma law of the rates, or None for a Poisson law.
    """
    positive = xp.maximum(y, 1e-20)
    logs = -y * _log_ratio(xp, log_rate, positive, rate - y)
    logs = logs - 0.5 * (_LOG_2_PI + xp.log(positive)) - _stirling(xp, positive)
    if size is None:
        return logs - (rate - y)
    total = size + y
    logs = logs + total * _log_ratio(xp, xp.log(size + rate), total, rate - y)
    logs = logs - 0.5 * xp.log1p(y / size)
    return logs + _stirling(xp, total) - _stirling(xp, size)


def _log_ratio(xp: Any, log_b: Any, a: Any, difference: Any) -> Any:
    """Return log(a / b), precise also where b - a, the difference, is small."""
    far = xp.log(a) - log_b
    is_near = xp.abs(far) < 0.5
    # Where the form for small differences is not used, its gradient must be finite.
    near = -xp.log1p(xp.where(is_near, difference, 0.0) / a)
    return xp.where(is_near, near, far)


@dataclass(frozen=True)
class Law:
    """Abstract: the law of each target given the outputs of each member.

    The methods return arrays of shape (members, examples, targets). `y` has the shape
    (examples, targets).
    """

    is_count = False  # whether the targets are counts: 0, 1, 2, ...

    @property
    def mean(self) -> Array:
        """Return the means."""
        raise NotImplementedError

    @property
    def variance(self) -> Array:
        """Return the variances, which are finite."""
        raise NotImplementedError

    def cdf(self, y: Array) -> Array:
        """Return the probabilities of at most `y`."""
        raise NotImplementedError

    def log_prob(self, y: Array) -> Array:
        """Return the logarithms of the densities, or of the probabilities of counts."""
        raise NotImplementedError

    def mean_up_to(self, y: Array) -> Array:
        """Return E[X; X <= y], the part of the mean from values up to `y`."""
        raise NotImplementedError

    def draws(self, rng: np.random.Generator) -> Array:
        """Return one draw of each target from each member."""
        raise NotImplementedError

    def distance(self, y: Array) -> Array:
        """Return E|X - y|."""
        return 2.0 * (y * self.cdf(y) - self.mean_up_to(y)) + self.mean - y

    def bracket(self, q: float) -> tuple[Array, Array]:
        """Return ends that hold the quantile of each member."""
        std = np.sqrt(self.variance)  # for Cantelli's inequality
        low = self.mean - std * math.sqrt((1.0 - q) / q)
        return low, self.mean + std * math.sqrt(q / (1.0 - q))

    def normals(self) -> tuple[Array, Array, Array] | None:
        """Return shares, means and deviations if the law is a mixture of normals.

        Their first axis counts the components of all members.
        """
        return None

    def members(self, chosen: Any) -> Self:
        """Return the law with these members."""
        return self._part((..., chosen, slice(None), slice(None)))

    def examples(self, chosen: slice) -> Self:
        """Return the law of these examples."""
        return self._part((..., chosen, slice(None)))

    def _part(self, place: Any) -> Self:
        parts = [getattr(self, one.name) for one in dataclasses.fields(self)]
        return type(self)(*(part[place] for part in parts))


@dataclass(frozen=True)
class NormalLaw(Law):
    """Mixtures of normals, one a target; shape (K, members, examples, targets)."""

    means: Array
    stds: Array
    shares: Array  # probabilities of the K components

    @property
    def mean(self) -> Array:
        return np.sum(self.shares * self.means, axis=0)

    @property
    def variance(self) -> Array:
        squares = np.square(self.stds) + np.square(self.means - self.mean)
        return np.sum(self.shares * squares, axis=0)

    def cdf(self, y: Array) -> Array:
        return np.sum(self.shares * normal_cdf(self._scaled(y)), axis=0)

    def log_prob(self, y: Array) -> Array:
        with np.errstate(divide="ignore"):  # a share of 0
            logs = np.log(self.shares) - np.log(self.stds) - 0.5 * _LOG_2_PI
        logs = logs - 0.5 * np.square(self._scaled(y))
        return np.logaddexp.reduce(logs, axis=0)

    def mean_up_to(self, y: Array) -> Array:
        z = self._scaled(y)
        parts = self.means * normal_cdf(z) - self.stds * normal_density(z)
        return np.sum(self.shares * parts, axis=0)

    def bracket(self, q: float) -> tuple[Array, Array]:
        ends = self.means + self.stds * NormalDist().inv_cdf(q)
        return np.min(ends, axis=0), np.max(ends, axis=0)

    def draws(self, rng: np.random.Generator) -> Array:
        if len(self.shares) == 1:
            return self.means[0] + self.stds[0] * rng.normal(size=self.means.shape[1:])
        ends = np.cumsum(self.shares, axis=0)
        chosen = np.sum(ends[:-1] < rng.uniform(size=ends.shape[1:]), axis=0)[None]
        means = np.take_along_axis(self.means, chosen, axis=0)[0]
        stds = np.take_along_axis(self.stds, chosen, axis=0)[0]
        return means + stds * rng.normal(size=means.shape)

    def normals(self) -> tuple[Array, Array, Array]:
        # Members first, so that their weights can be repeated.
        parts = [np.swapaxes(p, 0, 1) for p in (self.shares, self.means, self.stds)]
        shares, means, stds = (p.reshape(-1, *p.shape[2:]) for p in parts)
        return shares, means, stds

    def _scaled(self, y: Array) -> Array:
        return (y - self.means) / self.stds


@dataclass(frozen=True)
class StudentTLaw(Law):
    """Student's t distributions."""

    locations: Array
    scales: Array
    df: Array  # above 2

    @property
    def mean(self) -> Array:
        return self.locations

    @property
    def variance(self) -> Array:
        return np.square(self.scales) * self.df / (self.df - 2.0)

    def cdf(self, y: Array) -> Array:
        return np.asarray(_special().stdtr(self.df, self._scaled(y)))

    def log_prob(self, y: Array) -> Array:
        z = self._scaled(y)
        return np.asarray(student_t_log_prob(np, z, self.df) - np.log(self.scales))

    def mean_up_to(self, y: Array) -> Array:
        z = self._scaled(y)
        density = np.exp(self.log_prob(y)) * self.scales
        part = density * (self.df + np.square(z)) / (self.df - 1.0)
        return self.locations * self.cdf(y) - self.scales * part

    def draws(self, rng: np.random.Generator) -> Array:
        return self.locations + self.scales * rng.standard_t(self.df)

    def bracket(self, q: float) -> tuple[Array, Array]:
        end = self.locations + self.scales * _special().stdtrit(self.df, q)
        return end, end

    def _scaled(self, y: Array) -> Array:
        return (y - self.locations) / self.scales


@dataclass(frozen=True)
class PoissonLaw(Law):
    """Poisson distributions with these rates."""

    rates: Array

    is_count = True

    @property
    def mean(self) -> Array:
        return self.rates

    @property
    def variance(self) -> Array:
        return self.rates

    def cdf(self, y: Array) -> Array:
        below = _special().gammaincc(np.maximum(np.floor(y), 0.0) + 1.0, self.rates)
        return np.where(y < 0.0, 0.0, below)

    def log_prob(self, y: Array) -> Array:
        return np.asarray(count_log_prob(np, y, self.rates, np.log(self.rates)))

    def mean_up_to(self, y: Array) -> Array:
        return self.rates * self.cdf(y - 1.0)

    def draws(self, rng: np.random.Generator) -> Array:
        return rng.poisson(self.rates).astype("float64")


@dataclass(frozen=True)
class NegativeBinomialLaw(Law):
    """Negative binomial distributions: Poisson with rates that have a gamma law."""

    rates: Array  # the means
    sizes: Array  # shapes of the gamma laws: the variance is rate + rate^2 / size

    is_count = True

    @property
    def mean(self) -> Array:
        return self.rates

    @property
    def variance(self) -> Array:
        return self.rates * (1.0 + self.rates / self.sizes)

    def cdf(self, y: Array) -> Array:
        return self._cdf(y, self.sizes, self.rates / (self.rates + self.sizes))

    def log_prob(self, y: Array) -> Array:
        logs = count_log_prob(np, y, self.rates, np.log(self.rates), self.sizes)
        return np.asarray(logs)

    def mean_up_to(self, y: Array) -> Array:
        share = self.rates / (self.rates + self.sizes)
        return self.rates * self._cdf(y - 1.0, self.sizes + 1.0, share)

    def draws(self, rng: np.random.Generator) -> Array:
        rates = self.rates * rng.gamma(self.sizes) / self.sizes
        return rng.poisson(rates).astype("float64")

    @staticmethod
    def _cdf(y: Array, sizes: Array, share: Array) -> Array:
        counts = np.maximum(np.floor(y), 0.0) + 1.0
        return np.where(y < 0.0, 0.0, _special().betaincc(counts, sizes, share))


def _special() -> Any:
    from scipy import special  # takes a tenth of a second

    return special
