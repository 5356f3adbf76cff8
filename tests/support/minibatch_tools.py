"""Posterior, kernels and runs for the tests of kernels that draw their own data."""

import warnings

import numpy as np
import scipy.stats
from keras import ops

import keras_mhmcmc as mh

SIZE, RADIUS = 40, 2.5
RNG = np.random.default_rng(3)
X = RNG.normal(size=(SIZE, 2)).astype("float32")
X[:, 1] += 1.0
Y = (RNG.random(SIZE) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype("float32")
SIGN = 1.0 - 2.0 * Y
NORMS = np.sqrt(np.sum(X.astype("float64") ** 2, axis=1))
LOWER, UPPER = -np.logaddexp(0, RADIUS * NORMS), -np.logaddexp(0, -RADIUS * NORMS)
CHAINS = 800


def log_likelihood(theta, batch):
    x, y = batch
    return -ops.softplus((1 - 2 * y) * ops.sum(x * theta, axis=-1))


def log_prior(theta):
    """A normal prior on a disk, where PoissonMH's bounds hold."""
    squares = ops.sum(ops.square(theta))
    return ops.where(squares < RADIUS**2, -0.5 * squares, -np.inf)


class Posterior:
    """The posterior on a grid."""

    def __init__(self, temperature):
        line = np.linspace(-RADIUS, RADIUS, 501)
        self.points = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(
            -1, 2
        )
        squares = np.sum(self.points**2, axis=1)
        energy = self.energies(self.points)
        density = np.exp(-(energy - energy.min()) / temperature)
        self.mass = np.where(squares < RADIUS**2, density, 0.0)
        self.mass /= self.mass.sum()
        self.width = line[1] - line[0]

    def draw(self, count):
        """Positions inside the disk."""
        rng = np.random.default_rng(5)
        chosen = self.points[rng.choice(len(self.mass), count, p=self.mass)]
        moved = chosen + rng.uniform(-0.5, 0.5, chosen.shape) * self.width
        far = np.sum(moved**2, axis=1) >= 0.999 * RADIUS**2
        return np.where(far[:, None], 0.99 * chosen, moved).astype("float32")

    def energies(self, points):
        """U, which a distribution that is too narrow or too wide changes most."""
        squares = np.sum(np.asarray(points, "float64") ** 2, axis=1)
        return np.logaddexp(0, SIGN * (points @ X.T)).sum(1) + squares / 2

    def p_values(self, position):
        """Of Kolmogorov's test for three directions, and for the energy."""
        of_points = [self.energies]
        for direction in ([1.0, 0.0], [0.0, 1.0], [0.6, -0.8]):
            of_points.append(lambda points, direction=direction: points @ direction)
        found = []
        for function in of_points:
            values = function(self.points)
            order = np.argsort(values)
            values, mass = values[order], np.cumsum(self.mass[order])
            uniform = np.interp(function(position), values, mass)
            found.append(scipy.stats.kstest(uniform, "uniform").pvalue)
        return found


def run(kernel, position, steps=15, seed=1, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        # The data is so small that few batches are smaller.
        warnings.filterwarnings("ignore", "A step of the kernel evaluated")
        return mh.sample(
            kernel,
            position,
            log_likelihood=log_likelihood,
            log_prior=log_prior,
            data=(X, Y),
            num_steps=steps,
            every=steps,
            num_chains=len(position),
            seed=seed,
            progress=False,
            **options,
        )


def tuna(**options):
    options = dict(block_size=32) | options
    return mh.kernels.tuna(0.3, bounds=NORMS, **options), {}


def poisson(rate=0.5, **options):
    return mh.kernels.poisson(rate, lower=LOWER, upper=UPPER, **options), {}


def smh(order=2, prior_scale=1.0, **options):
    expansion = mh.expansions.logistic_regression(
        X, Y, prior_scale=prior_scale, order=order
    )
    return mh.kernels.smh(expansion, **options), {}


def walk_of_smh():
    """Whose factors of examples have the whole curvature of the likelihood."""
    kernel, _ = smh(order=1, step_size=0.8, proposal="random_walk")
    return kernel, dict(steps=60)


def of_amagold(rate=1.0, **options):
    return mh.kernels.amagold(rate, momentum=0.7, **options), dict(batch_size=10)


KERNELS = {
    "tuna": tuna(),
    "tuna with a small chi": tuna(chi=1e-3),
    "tuna with a large chi": tuna(chi=0.2),
    "tuna at another temperature": tuna(temperature=2.0),
    "poisson": poisson(),
    "poisson with few examples": poisson(poisson_rate=5.0),
    "poisson at another temperature": poisson(temperature=3.0),
    "poisson of barker": poisson(0.4, proposal="barker", poisson_rate=20.0),
    "poisson of barker at another temperature": poisson(
        proposal="barker", temperature=3.0
    ),
    "smh": smh(step_size=0.9),
    "smh with a random walk": walk_of_smh(),
    "smh at another reference": smh(prior_scale=0.3, step_size=0.7),
    "smh at another temperature": smh(temperature=3.0),
    "smh on all of the data at times": (
        smh(order=1, max_examples=2.0)[0],
        dict(steps=60),
    ),
    # Smaller batches of so few examples are biased.
    "barker": (mh.kernels.barker(0.5, block_size=36), {}),
    "barker on all of the data": (mh.kernels.barker(0.5, block_size=40), {}),
    "barker at another temperature": (
        mh.kernels.barker(0.7, block_size=36, temperature=2.0),
        {},
    ),
    "austerity": (mh.kernels.austerity(0.5, epsilon=1e-3, block_size=10), {}),
    "austerity on all of the data": (
        mh.kernels.austerity(0.7, epsilon=0.0, block_size=16, temperature=2.0),
        {},
    ),
    "confidence": (mh.kernels.confidence(0.5, bounds=NORMS, block_size=4), {}),
    "amagold": of_amagold(steps_per_test=4),
    "amagold of single steps": of_amagold(2.0, steps_per_test=1),
    "amagold at another temperature": of_amagold(steps_per_test=3, temperature=0.5),
    "amagold without momentum": (
        mh.kernels.amagold(1.0, momentum=0.0, steps_per_test=2),
        dict(batch_size=10),
    ),
    "amagold that remembers": (
        mh.kernels.amagold(12.0, momentum=0.98, steps_per_test=1),
        {},
    ),
    "hmc": (mh.kernels.hmc(leapfrog_steps=3, step_size=0.4, warm_up=0), {}),
    "hmc at another temperature": (
        mh.kernels.hmc(leapfrog_steps=2, step_size=0.5, warm_up=0, temperature=2.0),
        {},
    ),
    "hmc with a large step": (
        mh.kernels.hmc(leapfrog_steps=2, step_size=0.6, warm_up=0),
        {},
    ),
    # The steps are so small that 800 chains do not show the bias.
    "mclmc": (mh.kernels.mclmc(0.15, warm_up=0), {}),
    "mclmc at another temperature": (
        mh.kernels.mclmc(0.2, warm_up=0, temperature=2.0),
        {},
    ),
    "amagold on all of the data": (mh.kernels.amagold(4.0, steps_per_test=3), {}),
}
SOME = ("tuna", "poisson with few examples", "smh", "amagold", "hmc", "mclmc")
SOME += ("poisson of barker", "barker", "austerity", "confidence")
