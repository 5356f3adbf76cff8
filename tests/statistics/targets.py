"""Targets with known moments: energies U_I, exact draws, and expectations.

A target has the loss and its gradient, as a model would give them to an optimizer: the
mean over N examples, or over mini-batch I, without the prior. In nats the energy is
U_I = N loss_I + |x|^2 / (2 scale^2), and the law is exp(-U_I/T) on position and batch.
What depends on `xp` is written once for `numpy`, in float64, and for `keras.ops`.

A law is looked at through the functions of `Target.functions`: the coordinates, their
products of two, and the sign of each, all of the standardised position.
"""

import copy

import numpy as np
import scipy.special
import scipy.stats
from keras import ops

from tests.statistics.logistic_moments import FEATURES
from tests.statistics.logistic_moments import LABELS
from tests.statistics.logistic_moments import MOMENTS
from tests.statistics.logistic_moments import PRIOR_SCALE


def constant(array, xp):
    """An array that the target holds, for `xp`."""
    if xp is np:
        return np.asarray(array, "float64")
    return ops.convert_to_tensor(np.asarray(array, "float32"))


class Target:
    """Abstract: a law on position and mini-batch."""

    temperature = 1.0
    prior_scale = None  # None: a flat prior
    batches = 1
    batch_size = None  # None: all examples
    is_linear = False  # whether the gradient is affine in the position
    zeta = 0.75  # how far a contour sampler flattens its energy

    train_size: int
    dimension: int
    # The largest curvature of U that chains meet, in nats: it limits the step.
    curvature: float

    def loss(self, x, batch, xp=np):
        """The mean loss of each chain, (K,), for positions (K, d) and batches (K,)."""
        raise NotImplementedError

    def slope(self, x, batch, xp=np):
        """The gradient of `loss`, (K, d)."""
        raise NotImplementedError

    def draw(self, rng, count):
        """Exact draws of position and batch."""
        raise NotImplementedError

    def mean_and_covariance(self):
        """Of the position."""
        raise NotImplementedError

    def positive(self):
        """The chance that each standardised coordinate is above 0."""
        raise NotImplementedError

    def whole(self):
        """The same target with one batch, of all examples."""
        return self

    # What follows from these.

    def loss_and_gradient(self, x, batch):
        """What an optimizer is given."""
        return self.loss(x, batch, ops), self.slope(x, batch, ops)

    @property
    def prior_precision(self):
        return 0.0 if self.prior_scale is None else self.prior_scale**-2

    def energy(self, x, batch):
        """U_I in nats, float64."""
        prior = 0.5 * self.prior_precision * (x**2).sum(axis=1)
        return self.train_size * self.loss(x, batch) + prior

    def gradient(self, x, batch):
        """The gradient of U_I/N, float64."""
        return self.slope(x, batch) + self.prior_precision / self.train_size * x

    def rate(self, step):
        """The learning rate with which a step times the largest curvature is `step`."""
        return step * self.train_size / self.curvature

    def functions(self, x):
        """Functions (..., J) of positions (..., d), whose expectations are compared."""
        mean, covariance = self.mean_and_covariance()
        z = (x - mean) / np.sqrt(np.diag(covariance))
        first, second = self._pairs()
        products = z[..., first] * z[..., second]
        return np.concatenate([z, products, z > 0], axis=-1)

    def names(self):
        """The names of the functions."""
        pairs = zip(*self._pairs(), strict=True)
        return (
            [f"x{i}" for i in range(self.dimension)]
            + [f"x{i}x{j}" for i, j in pairs]
            + [f"x{i}>0" for i in range(self.dimension)]
        )

    def expectations(self):
        """Of the functions, (J,), under the target."""
        mean, covariance = self.mean_and_covariance()
        known = self.expectations_of_moments(mean, covariance)
        known[-self.dimension :] = self.positive()
        return known

    def expectations_of_moments(self, mean, covariance):
        """Of the functions under a law of which these are known; else NaN."""
        own_mean, own_covariance = self.mean_and_covariance()
        deviation = np.sqrt(np.diag(own_covariance))
        z = (mean - own_mean) / deviation
        products = covariance / np.outer(deviation, deviation) + np.outer(z, z)
        unknown = np.full(self.dimension, np.nan)
        return np.concatenate([z, products[self._pairs()], unknown])

    def _pairs(self):
        return np.triu_indices(self.dimension)


class Gaussian(Target):
    """U = (x - centre)' A (x - centre) / 2, with the precision A in nats."""

    is_linear = True
    train_size = 50

    def __init__(self, precision, centre, temperature):
        self.precision = np.array(precision, "float64")
        self.centre = np.array(centre, "float64")
        self.temperature = temperature
        self.dimension = len(self.centre)
        self.curvature = np.linalg.eigvalsh(self.precision)[-1]

    def loss(self, x, batch, xp=np):
        offset = x - constant(self.centre, xp)
        return 0.5 * xp.sum(offset * self.slope(x, batch, xp), axis=1)

    def slope(self, x, batch, xp=np):
        offset = x - constant(self.centre, xp)
        return xp.matmul(offset, constant(self.precision / self.train_size, xp))

    def affine(self):
        """The slope as H x - c, of each batch."""
        slope = self.precision / self.train_size
        return slope[None], (slope @ self.centre)[None]

    def draw(self, rng, count):
        x = rng.multivariate_normal(*self.mean_and_covariance(), size=count)
        return x, np.zeros(count, int)

    def mean_and_covariance(self):
        return self.centre, self.temperature * np.linalg.inv(self.precision)

    def positive(self):
        return 0.5


class Skewed(Target):
    """U = sum of exp(x) - a x: exp(x) has the law Gamma(a/T, scale T).

    A wrong sign anywhere moves the mean and the variance of this law, which is not
    symmetric.
    """

    train_size = 30
    temperature = 1.5
    dimension = 2
    shape = np.array([1.5, 3.0])
    curvature = 12.0  # of one draw in 2000
    zeta = 0.4  # flattened further, its long tail would be crossed too slowly

    def loss(self, x, batch, xp=np):
        terms = xp.exp(x) - constant(self.shape, xp) * x
        return xp.sum(terms, axis=1) / self.train_size

    def slope(self, x, batch, xp=np):
        return (xp.exp(x) - constant(self.shape, xp)) / self.train_size

    @property
    def _gamma(self):
        return scipy.stats.loggamma(
            self.shape / self.temperature, loc=np.log(self.temperature)
        )

    def draw(self, rng, count):
        shape = self.shape / self.temperature
        gammas = rng.gamma(shape, self.temperature, (count, 2))
        return np.log(gammas), np.zeros(count, int)

    def mean_and_covariance(self):
        return self._gamma.mean(), np.diag(self._gamma.var())

    def positive(self):
        return self._gamma.sf(self._gamma.mean())


class Regression(Target):
    """Linear regression with known noise and a normal prior, on mini-batches.

    The data are four batches of twelve examples, each drawn with equal chances. For a
    given batch exp(-U_I/T) is normal, so that the law on position and batch is a
    mixture of four.
    """

    is_linear = True
    train_size = 48
    batch_size = 12
    batches = 4
    temperature = 4.0
    dimension = 3
    prior_scale = 0.4
    noise = 1.5

    def __init__(self):
        rng = np.random.default_rng(31)
        x = rng.normal(size=(self.train_size, 3)) * [1.0, 0.7, 0.5]
        y = x @ [0.7, -0.4, 0.3] + self.noise * rng.normal(size=self.train_size)
        x = x.reshape(self.batches, self.batch_size, 3)
        y = y.reshape(self.batches, self.batch_size)
        scale = 1.0 / (self.batch_size * self.noise**2)
        # Mean squared residuals over 2 noise^2, as x' H x / 2 - c' x + k.
        self._set(
            scale * np.einsum("bmi,bmj->bij", x, x),
            scale * np.einsum("bmi,bm->bi", x, y),
            0.5 * scale * (y**2).sum(axis=1),
        )

    def _set(self, h, c, k):
        self._h, self._c, self._k = h, c, k
        self.batches = len(k)
        precision = self.train_size * h + self.prior_precision * np.eye(3)
        self.curvature = np.linalg.eigvalsh(precision).max()
        # Of the normal law that each batch gives.
        self._means = np.linalg.solve(precision, self.train_size * c[..., None])[..., 0]
        self._covariances = self.temperature * np.linalg.inv(precision)
        lowest = self.energy(self._means, np.arange(self.batches))
        log_mass = -lowest / self.temperature
        log_mass += 0.5 * np.linalg.slogdet(self._covariances)[1]
        self._shares = np.exp(log_mass - scipy.special.logsumexp(log_mass))

    def whole(self):
        whole = copy.copy(self)
        whole.batch_size = self.train_size
        parts = (self._h, self._c, self._k)
        whole._set(*(part.mean(axis=0, keepdims=True) for part in parts))
        return whole

    def affine(self):
        """The slope as H x - c, of each batch."""
        return self._h, self._c

    def loss(self, x, batch, xp=np):
        h, c, k = self._of(batch, xp)
        half = 0.5 * xp.matmul(h, x[..., None])[..., 0] - c
        return xp.sum(half * x, axis=1) + k

    def slope(self, x, batch, xp=np):
        h, c, _ = self._of(batch, xp)
        return xp.matmul(h, x[..., None])[..., 0] - c

    def _of(self, batch, xp):
        parts = (self._h, self._c, self._k)
        return [xp.take(constant(part, xp), batch, axis=0) for part in parts]

    def draw(self, rng, count):
        batch = rng.choice(self.batches, count, p=self._shares)
        roots = np.linalg.cholesky(self._covariances)[batch]
        normals = rng.normal(size=(count, 3, 1))
        return self._means[batch] + (roots @ normals)[..., 0], batch

    def mean_and_covariance(self):
        mean = self._shares @ self._means
        offsets = self._means - mean
        between = np.einsum("b,bi,bj->ij", self._shares, offsets, offsets)
        within = np.einsum("b,bij->ij", self._shares, self._covariances)
        return mean, within + between

    def positive(self):
        mean, _ = self.mean_and_covariance()
        deviations = np.sqrt(np.diagonal(self._covariances, axis1=1, axis2=2))
        return self._shares @ scipy.stats.norm.sf((mean - self._means) / deviations)


class Logistic(Target):
    """Logistic regression with a normal prior; the moments are those of long NUTS."""

    train_size = len(LABELS)
    dimension = FEATURES.shape[1]
    prior_scale = PRIOR_SCALE

    def __init__(self):
        # p (1 - p) is at most 1/4.
        curvature = 0.25 * FEATURES.T @ FEATURES
        self.curvature = np.linalg.eigvalsh(curvature)[-1] + self.prior_precision

    def loss(self, x, batch, xp=np):
        logits = xp.matmul(x, constant(FEATURES.T, xp))
        losses = xp.logaddexp(0.0 * logits, logits) - constant(LABELS, xp) * logits
        return xp.sum(losses, axis=1) / self.train_size

    def slope(self, x, batch, xp=np):
        logits = xp.matmul(x, constant(FEATURES.T, xp))
        residuals = 1.0 / (1.0 + xp.exp(-logits)) - constant(LABELS, xp)
        return xp.matmul(residuals, constant(FEATURES / self.train_size, xp))

    def draw(self, rng, count):
        """By importance resampling of a wide Student's t around the NUTS moments."""
        mean, covariance = self.mean_and_covariance()
        law = scipy.stats.multivariate_t(mean, 1.2 * covariance, df=8, seed=rng)
        x = law.rvs(20 * count)
        log_weight = -self.energy(x, np.zeros(len(x), int)) - law.logpdf(x)
        weight = np.exp(log_weight - log_weight.max())
        chosen = rng.choice(len(x), count, replace=False, p=weight / weight.sum())
        return x[chosen], np.zeros(count, int)

    def mean_and_covariance(self):
        return np.array(MOMENTS["mean"]), np.array(MOMENTS["covariance"])

    def positive(self):
        return np.array(MOMENTS["positive"])


class Bimodal(Target):
    """A mixture of two normals in one dimension, with unequal weights and widths."""

    train_size = 10
    dimension = 1
    curvature = 4.0
    weights = np.array([0.35, 0.65])
    means = np.array([-1.4, 1.2])
    deviations = np.array([0.5, 0.7])

    def _log_parts(self, x, xp):
        z = (x - constant(self.means, xp)) / constant(self.deviations, xp)
        return constant(np.log(self.weights / self.deviations), xp) - 0.5 * z * z

    def loss(self, x, batch, xp=np):
        parts = self._log_parts(x, xp)
        return -xp.logaddexp(parts[:, 0], parts[:, 1]) / self.train_size

    def slope(self, x, batch, xp=np):
        parts = self._log_parts(x, xp)
        slopes = (x - constant(self.means, xp)) / constant(self.deviations**2, xp)
        share = 1.0 / (1.0 + xp.exp(parts[:, 1] - parts[:, 0]))
        mixed = share * slopes[:, 0] + (1.0 - share) * slopes[:, 1]
        return mixed[:, None] / self.train_size

    def draw(self, rng, count):
        part = rng.choice(2, count, p=self.weights)
        x = rng.normal(self.means[part], self.deviations[part])
        return x[:, None], np.zeros(count, int)

    def mean_and_covariance(self):
        mean = self.weights @ self.means
        second = self.weights @ (self.means**2 + self.deviations**2)
        return np.array([mean]), np.array([[second - mean**2]])

    def positive(self):
        mean, _ = self.mean_and_covariance()
        z = (self.means - mean) / self.deviations
        return np.array([self.weights @ scipy.stats.norm.cdf(z)])


TARGETS = {
    "gaussian": Gaussian(4.0 * np.eye(2), [1.0, -0.5], temperature=2.0),
    "correlated": Gaussian(
        [[4.0, 1.5, -0.8], [1.5, 2.5, 0.6], [-0.8, 0.6, 1.5]],
        [0.5, -1.0, 0.0],
        temperature=1.0,
    ),
    "skewed": Skewed(),
    "regression": Regression(),
    "logistic": Logistic(),
    "bimodal": Bimodal(),
}
