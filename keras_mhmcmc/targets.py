"""Posteriors whose moments are known: for the papers' figures, and to try a sampler."""

import math

import numpy as np
from keras import ops

from keras_mhmcmc import _validate

_REPRESENTABLE = _validate.Interval(-1000.0, 1000.0)  # to four digits, with noise 1


class GaussianMean:
    """The posterior of the mean of normal data, in closed form.

    theta ~ N(0, I_d) and x_i ~ N(theta, I_d). At temperature T the law exp(-U/T) is
    normal, with the mean sum(x)/(n + 1) and the variance T/(n + 1) of each coordinate.

    `log_likelihood`, `log_prior` and `data` are what `mh.sample` takes;
    `log_density` is the same law for full-batch chains, from the data's mean alone.

    Args:
        train_size: number of examples, n.
        dimension: length of theta, d.
        true_mean: each coordinate of the mean that the data are drawn with, in
            [-1000, 1000).
        seed: integer that makes the data repeatable.

    Attributes:
        data: float32 array of shape (n, d).

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> target = mh.targets.GaussianMean(train_size=1000, dimension=2)
    >>> mean, covariance = target.moments(temperature=10.0)
    >>> float(round(covariance[0, 0], 5))
    0.00999

    Reference: Wu, Wang and Wong (2020), section 3.1.
    """

    def __init__(self, train_size, dimension, true_mean=2.0, seed=0):
        train_size = _validate.integer("train_size", train_size, 1)
        dimension = _validate.integer("dimension", dimension, 1)
        true_mean = _validate.number("true_mean", true_mean, _REPRESENTABLE)
        rng = np.random.default_rng(_validate.seed(seed))
        noise = rng.standard_normal((train_size, dimension), dtype="float32")
        self.data = true_mean + noise
        self._mean = self.data.sum(0, dtype="float64") / (train_size + 1)
        self._centre = _tensor(self._mean)

    def log_likelihood(self, position, batch):
        """Log-likelihood of each example of a batch, without its constant."""
        return -0.5 * ops.sum(ops.square(batch - position), axis=-1)

    def log_prior(self, position):
        """Log density of the prior, without its constant."""
        return -0.5 * ops.sum(ops.square(position))

    def log_density(self, position):
        """Log posterior density given all of the data, 0 at its mode."""
        squares = ops.square(position - self._centre)
        return -0.5 * (len(self.data) + 1) * ops.sum(squares)

    def moments(self, temperature=1.0):
        """Mean (d,) and covariance (d, d) of exp(-U/T), float64."""
        temperature = _validate.number("temperature", temperature, _validate.POSITIVE)
        variance = temperature / (len(self.data) + 1)
        return self._mean.copy(), variance * np.eye(len(self._mean))


class TiedMeans:
    """The posterior of a mixture of two Gaussians with tied means: two equal modes.

    theta_1 ~ N(0, 10), theta_2 ~ N(0, 1), and x_i is drawn from N(theta_1, 2) or
    N(theta_1 + theta_2, 2), with probability 1/2 each. The likelihood does not change
    when the components change places, so that there are two modes, near the theta of
    the data and near (theta_1 + theta_2, -theta_2), of equal weight but for the prior.

    `log_likelihood`, `log_prior` and `data` are what `mh.sample` takes;
    `log_density` is the same law for full-batch chains: the data are sorted into 2048
    cells, and each cell counts as many examples at their mean. Differences of it
    between positions are right to 1e-6 n nats near the modes.

    Args:
        train_size: number of examples, n.
        theta: (theta_1, theta_2) that the data are drawn with, in [-1000, 1000];
            theta_2 is not 0.
        seed: integer that makes the data repeatable.

    Attributes:
        data: float32 array of shape (n,).
        modes: float64 array (2, 2), `theta` and its mirror image.

    Raises:
        ValueError: an argument is outside its range.

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

    def __init__(self, train_size, theta=(0.0, 1.0), seed=0):
        train_size = _validate.integer("train_size", train_size, 1)
        theta = _validate.array("Argument `theta`", theta)
        if theta.shape != (2,) or not (abs(theta) <= 1000.0).all() or theta[1] == 0:
            raise ValueError(
                "Argument `theta` must be two numbers in [-1000, 1000], theta_1 and "
                f"theta_2, the second one not 0. Received: theta={theta.tolist()}"
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

    def log_likelihood(self, position, batch):
        """Log-likelihood of each example of a batch, without its constant."""
        return self._log_mixture(batch, position[0], position[0] + position[1], ops)

    def log_prior(self, position):
        """Log density of the prior, without its constant."""
        first, second = self._VARIANCES
        return -0.5 * (position[0] ** 2 / first + position[1] ** 2 / second)

    def log_density(self, position):
        """Log posterior density given all of the data, up to a constant."""
        points, counts, reference = self._tensors
        first, second = position[0], position[0] + position[1]
        # Against the density at a mode: float32 would not hold the sum itself.
        ratio = self._log_mixture(points, first, second, ops) - reference
        log_likelihood = ops.sum(counts * ratio)
        return log_likelihood + self.log_prior(position)

    def log_density_grid(self, theta_1, theta_2):
        """`log_density` in float64 on a grid, shape (len(theta_1), len(theta_2)).

        Args:
            theta_1: numbers in [-1e6, 1e6], shape (n,), the grid's first axis.
            theta_2: numbers in [-1e6, 1e6], shape (m,), its second axis.

        Raises:
            ValueError: an argument is of another kind or shape.
        """
        theta_1, theta_2 = _axis("theta_1", theta_1), _axis("theta_2", theta_2)
        rows = [self._log_likelihoods(a, a + theta_2) for a in theta_1]
        priors = [self.log_prior((a, theta_2)) for a in theta_1]
        return np.array(rows) + np.array(priors)

    def moments(self, temperature=1.0):
        """Mean (2,) and covariance (2, 2) of exp(-U/T), float64, by quadrature.

        On a grid of the components' means around one mode, on its side of the line
        where both are equal, and on the mirror image of that grid.
        """
        temperature = _validate.number("temperature", temperature, _validate.POSITIVE)
        low, high = np.sort([self.modes[0, 0], self.modes[0].sum()])
        reach = 6.0 * math.sqrt(self._NOISE)
        box = np.array([[low - reach, high + reach]] * 2)
        for _ in range(6):
            axes = [np.linspace(*side, 121) for side in box]
            values = [self._log_likelihoods(a, axes[1]) for a in axes[0]]
            values = np.array(values) / temperature
            values[axes[0][:, None] > axes[1]] = -np.inf
            inside = np.argwhere(values > values.max() - 25.0)
            ends = np.clip([inside.min(0) - 1, inside.max(0) + 1], 0, 120)
            box = np.array([axis[end] for axis, end in zip(axes, ends.T, strict=True)])
        first, second = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
        points = np.stack([first, second - first], 1)
        points = np.concatenate([points, mirrored(points)])
        values = np.tile(values.ravel(), 2)
        values = values + self.log_prior(points.T) / temperature
        weights = np.exp(values - values.max())
        mean = np.average(points, axis=0, weights=weights)
        return mean, np.cov(points.T, aweights=weights, ddof=0)

    def _log_likelihoods(self, first, second):
        """Log-likelihood of all data at a first mean and several second ones."""
        second = np.asarray(second)[:, None]
        ratio = self._log_mixture(self._points, first, second, np) - self._reference
        return ratio @ self._counts

    def _log_mixture(self, x, first, second, library):
        scale = -0.5 / self._NOISE
        return library.logaddexp(scale * (x - first) ** 2, scale * (x - second) ** 2)


def mirrored(theta):
    """Positions (..., 2) of `TiedMeans` with the two components in each other's place.

    Args:
        theta: array of shape (..., 2). One of floats keeps its dtype.

    Raises:
        ValueError: `theta` is of another kind or shape.

    Example:

    >>> mirrored([0.0, 1.0]).tolist()
    [1.0, -1.0]
    """
    theta = _validate.array("Argument `theta`", theta, dtype=None)
    if not np.issubdtype(theta.dtype, np.floating):
        theta = theta.astype("float64")
    if theta.ndim == 0 or theta.shape[-1] != 2:
        raise ValueError(
            "Argument `theta` must have the shape (..., 2), for theta_1 and theta_2. "
            f"Received: shape {theta.shape}"
        )
    return np.stack([theta[..., 0] + theta[..., 1], -theta[..., 1]], -1)


def _axis(name, values):
    """The points of one axis of a grid, (n,), or a `ValueError` that names them."""
    values = _validate.array(f"Argument `{name}`", values)
    if values.ndim != 1 or not (abs(values) <= 1e6).all():
        raise ValueError(
            f"Argument `{name}` must be numbers in [-1e6, 1e6] of shape (n,), the "
            f"points of an axis of the grid. Received: {name}={_validate.shown(values)}"
        )
    return values


def _tensor(array):
    return ops.convert_to_tensor(array.astype("float32"))


def _condensed(data, cells):
    """Means and sizes of the cells of equal width that hold any data, float64."""
    data = data.astype("float64")
    low, width = data.min(), max(np.ptp(data) / cells, 1e-12)
    cell = np.minimum((data - low) / width, cells - 1).astype("int64")
    counts = np.bincount(cell, minlength=cells)
    sums = np.bincount(cell, weights=data, minlength=cells)
    return sums[counts > 0] / counts[counts > 0], counts[counts > 0].astype("float64")
