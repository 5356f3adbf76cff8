"""Posteriors with known moments, for the papers' figures and for trying a sampler."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor

__all__ = ["GaussianMean", "TiedMeans", "mirrored"]

_REPRESENTABLE = _validate.Interval(-1000.0, 1000.0)  # float32 keeps four decimals


def __dir__() -> list[str]:
    return __all__


class GaussianMean:
    """The posterior of the mean of normal data, in closed form.

    The model is theta ~ N(0, I_d) and x_i ~ N(theta, I_d). At temperature T the target
    exp(-U/T) is normal. Its mean is sum(x)/(n + 1), and the variance of each
    coordinate is T/(n + 1).

    Pass `log_likelihood`, `log_prior` and `data` to `mh.sample` for chains on
    mini-batches. `log_density` is the same target for full-batch chains. It needs only
    the mean of the data.

    Args:
        train_size: number of examples n, at least 1.
        dimension: length d of theta, at least 1.
        true_mean: each coordinate of the mean of the data's distribution, in
            [-1000, 1000). Defaults to 2.
        seed: integer that makes the data repeatable. Defaults to 0.

    Attributes:
        data: float32 array of shape (n, d).

    Example:

    >>> import keras_mhmcmc as mh
    >>> target = mh.targets.GaussianMean(train_size=1000, dimension=2)
    >>> mean, covariance = target.moments(temperature=10.0)
    >>> float(round(covariance[0, 0], 5))
    0.00999

    Reference: Wu, Wang and Wong (2020), section 3.1.
    """

    def __init__(
        self, train_size: int, dimension: int, true_mean: float = 2.0, seed: int = 0
    ) -> None:
        train_size = _validate.integer("train_size", train_size, 1)
        dimension = _validate.integer("dimension", dimension, 1)
        true_mean = _validate.number("true_mean", true_mean, _REPRESENTABLE)
        rng = np.random.default_rng(_validate.seed(seed))
        noise = rng.standard_normal((train_size, dimension), dtype="float32")
        self.data = true_mean + noise
        self._mean = self.data.sum(0, dtype="float64") / (train_size + 1)
        self._centre = _tensor(self._mean)

    def log_likelihood(self, position: Tensor, batch: Tensor) -> Tensor:
        """Return log p(x|theta), up to a constant, of a batch (n, d): nats, (n,)."""
        return -0.5 * ops.sum(ops.square(batch - position), axis=-1)

    def log_prior(self, position: Tensor) -> Tensor:
        """Return the log density of the prior at theta (d,), up to a constant."""
        return -0.5 * ops.sum(ops.square(position))

    def log_density(self, position: Tensor) -> Tensor:
        """Return the log posterior density of all data at theta (d,), 0 at its mode."""
        squares = ops.square(position - self._centre)
        return -0.5 * (len(self.data) + 1) * ops.sum(squares)

    def moments(self, temperature: float = 1.0) -> tuple[Array, Array]:
        """Return the mean (d,) and covariance (d, d) of exp(-U/T), T > 0, float64."""
        temperature = _validate.number("temperature", temperature, _validate.POSITIVE)
        variance = temperature / (len(self.data) + 1)
        return self._mean.copy(), variance * np.eye(len(self._mean))


_LAST = 120  # of the points of an axis of a grid of `TiedMeans`


class TiedMeans:
    """The posterior of a two-component Gaussian mixture with tied means, two modes.

    The priors are theta_1 ~ N(0, 10) and theta_2 ~ N(0, 1), where the second number is
    the variance. Each x_i comes from N(theta_1, 2) or N(theta_1 + theta_2, 2), with
    probability 1/2 each. Swapping the components leaves the likelihood unchanged.
    Therefore the posterior has two modes, near the data's theta and near
    (theta_1 + theta_2, -theta_2). Their weights differ only by the prior.

    Chains use it as `GaussianMean`. `log_density` groups the data into 2048 cells and
    places the examples of a cell at their mean. Near the modes its differences between
    positions are exact to 1e-6 n nats.

    Args:
        train_size: number of examples n, at least 1.
        theta: (theta_1, theta_2) of the data's distribution, each in [-1000, 1000];
            theta_2 is not 0. Defaults to (0, 1).
        seed: integer that makes the data repeatable. Defaults to 0.

    Attributes:
        data: float32 array of shape (n,).
        modes: float64 array of shape (2, 2), `theta` and its mirror image.

    Example:

    >>> import keras_mhmcmc as mh
    >>> target = mh.targets.TiedMeans(train_size=1000, theta=(0.0, 2.0))
    >>> target.modes.tolist()
    [[0.0, 2.0], [2.0, -2.0]]

    Reference: Welling and Teh (2011), section 5.1; Wu, Wang and Wong (2020), section
    3.1; Li and Wong (2017), section 4.1.
    """

    _CELLS = 2048
    _VARIANCES = (10.0, 1.0)  # of the prior
    _NOISE = 2.0  # variance of an example

    def __init__(
        self, train_size: int, theta: npt.ArrayLike = (0.0, 1.0), seed: int = 0
    ) -> None:
        train_size = _validate.integer("train_size", train_size, 1)
        theta = _validate.array("Argument `theta`", theta)
        if theta.shape != (2,) or not (abs(theta) <= 1000.0).all() or theta[1] == 0:
            raise ValueError(
                "Argument `theta` must be two numbers in [-1000, 1000], of which the "
                f"second is not 0. Received: theta={theta.tolist()}"
            )
        rng = np.random.default_rng(_validate.seed(seed))
        second = rng.integers(0, 2, train_size)
        noise = rng.standard_normal(train_size)
        means = theta[0] + theta[1] * second
        self.data = (means + math.sqrt(self._NOISE) * noise).astype("float32")
        self.modes = np.array([theta, mirrored(theta)])
        self._points, self._counts = _condensed(self.data, self._CELLS)
        self._reference = self._log_mixture(self._points, theta[0], theta.sum(), np)
        arrays = (self._points, self._counts, self._reference)
        self._tensors = [_tensor(array) for array in arrays]

    def log_likelihood(self, position: Tensor, batch: Tensor) -> Tensor:
        """Return log p(x|theta), up to a constant, of a batch (n,): nats, (n,)."""
        return self._log_mixture(batch, position[0], position[0] + position[1], ops)

    def log_prior(self, position: Tensor) -> Tensor:
        """Return the log density of the prior at theta (2,), up to a constant."""
        first, second = self._VARIANCES
        return -0.5 * (position[0] ** 2 / first + position[1] ** 2 / second)

    def log_density(self, position: Tensor) -> Tensor:
        """Return the log posterior of all data at theta (2,), up to a constant."""
        points, counts, reference = self._tensors
        first, second = position[0], position[0] + position[1]
        # Relative to the density at a mode: the sum itself is too large for float32.
        ratio = self._log_mixture(points, first, second, ops) - reference
        log_likelihood = ops.sum(counts * ratio)
        return log_likelihood + self.log_prior(position)

    def log_density_grid(self, theta_1: npt.ArrayLike, theta_2: npt.ArrayLike) -> Array:
        """Return `log_density` on a grid (n, m), in float64.

        `theta_1` (n,) and `theta_2` (m,) have numbers in [-1e6, 1e6].
        """
        first, second = _axis("theta_1", theta_1), _axis("theta_2", theta_2)
        rows = [self._log_likelihoods(a, a + second) for a in first]
        priors = [self.log_prior((a, second)) for a in first]
        return np.array(rows) + np.array(priors)

    def moments(self, temperature: float = 1.0) -> tuple[Array, Array]:
        """Return the mean (2,) and covariance (2, 2) of exp(-U/T), T > 0, in float64.

        They are integrals over a grid of the two components' means. If the modes are
        apart, the grid covers the one whose first mean is the smaller one, and its
        mirror image covers the other mode.
        """
        temperature = _validate.number("temperature", temperature, _validate.POSITIVE)
        low, high = np.sort([self.modes[0, 0], self.modes[0].sum()])
        # Many deviations of the data and of the tempered prior, cut down below.
        reach = 6.0 * math.sqrt(self._NOISE)
        reach += 8.0 * math.sqrt(sum(self._VARIANCES) * temperature)
        box = np.array([[low - reach, high + reach]] * 2)
        for _ in range(8):
            points, values = self._half(box, temperature)
            inside = np.argwhere(values.max(axis=0) > values.max() - 25.0)
            ends = np.clip([inside.min(0) - 2, inside.max(0) + 2], 0, _LAST)
            axes = [np.linspace(low, high, _LAST + 1) for low, high in box]
            box = np.array([axis[end] for axis, end in zip(axes, ends.T, strict=True)])
        if box[0, 1] >= box[1, 0]:  # the modes overlap: one square holds both
            axis = np.linspace(box.min(), box.max(), 2 * _LAST + 1)
            points, values = self._on_grid(axis, axis, temperature)
        else:
            points, values = self._half(box, temperature)
        points = np.moveaxis(points, -3, -1).reshape(-1, 2)
        weights = np.exp(values - values.max()).ravel()
        mean = np.average(points, axis=0, weights=weights)
        return mean, np.cov(points.T, aweights=weights, ddof=0)

    def _half(self, box: Array, temperature: float) -> tuple[Array, Array]:
        """Return theta (2, 2, n, n) and log densities (2, n, n) of both modes."""
        first, second = (np.linspace(low, high, _LAST + 1) for low, high in box)
        points, values = self._on_grid(first, second, temperature)
        mirror = np.moveaxis(mirrored(np.moveaxis(points, 0, -1)), -1, 0)
        prior = self.log_prior(mirror) - self.log_prior(points)
        both = np.stack([values, values + prior / temperature])
        both[:, first[:, None] > second] = -np.inf
        return np.stack([points, mirror]), both

    def _on_grid(
        self, first: Array, second: Array, temperature: float
    ) -> tuple[Array, Array]:
        """Return theta (2, n, m) and log densities (n, m) at means of components."""
        rows = [self._log_likelihoods(mean, second) for mean in first]
        means = np.meshgrid(first, second, indexing="ij")
        points = np.stack([means[0], means[1] - means[0]])
        return points, (np.array(rows) + self.log_prior(points)) / temperature

    def _log_likelihoods(self, first: float, second: Array) -> Array:
        second = np.asarray(second)[:, None]
        ratio = self._log_mixture(self._points, first, second, np) - self._reference
        return ratio @ self._counts

    def _log_mixture(self, x: Any, first: Any, second: Any, library: Any) -> Any:
        # `library` is NumPy or Keras' `ops`.
        scale = -0.5 / self._NOISE
        return library.logaddexp(scale * (x - first) ** 2, scale * (x - second) ** 2)


def mirrored(theta: npt.ArrayLike) -> Array:
    """Return positions of `TiedMeans` (..., 2) with the two components swapped.

    They are (theta_1 + theta_2, -theta_2). Integers become float64.

    Args:
        theta: positions (theta_1, theta_2), array of shape (..., 2).

    Example:

    >>> mirrored([0.0, 1.0]).tolist()
    [1.0, -1.0]
    """
    theta = _validate.array("Argument `theta`", theta, dtype=None)
    if not np.issubdtype(theta.dtype, np.floating):
        theta = theta.astype("float64")
    if theta.shape[-1:] != (2,) or not np.isfinite(theta).all():
        raise ValueError(
            "Argument `theta` must be finite and have the shape (..., 2), for theta_1 "
            f"and theta_2. Received: shape {theta.shape}, {_validate.shown(theta)}"
        )
    return np.stack([theta[..., 0] + theta[..., 1], -theta[..., 1]], -1)


def _axis(name: str, values: npt.ArrayLike) -> Array:
    values = _validate.array(f"Argument `{name}`", values)
    if values.ndim != 1 or not (abs(values) <= 1e6).all():
        raise ValueError(
            f"Argument `{name}` must be an array of shape (n,) of numbers in "
            "[-1e6, 1e6], the points of an axis of the grid. "
            f"Received: {name}={_validate.shown(values)}"
        )
    return values


def _tensor(array: Array) -> Tensor:
    return ops.convert_to_tensor(array.astype("float32"))


def _condensed(data: Array, cells: int) -> tuple[Array, Array]:
    """Return the float64 means and sizes of the non-empty cells of equal width."""
    data = data.astype("float64")
    low, width = data.min(), max(np.ptp(data) / cells, 1e-12)
    cell = np.minimum((data - low) / width, cells - 1).astype("int64")
    counts = np.bincount(cell, minlength=cells)
    sums = np.bincount(cell, weights=data, minlength=cells)
    return sums[counts > 0] / counts[counts > 0], counts[counts > 0].astype("float64")
