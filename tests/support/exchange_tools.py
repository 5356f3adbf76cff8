"""What the tests of replica exchange share: a normal target and runs on it."""

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh

IS_TORCH = keras.backend.backend() == "torch"
PRECISION = 8.0
N = 100
NOISE = np.random.default_rng(3).normal(size=N).astype("float32")
NOISE -= NOISE.mean()

KERNELS = {
    "sgld": mh.kernels.sgld(0.005),
    "random walk": mh.kernels.mhbt(0.5),
    "langevin": mh.kernels.mhbt(0.05, proposal=mh.proposals.Langevin()),
}


def gaussian(x):
    return -0.5 * PRECISION * ops.square(x)


def noisy_gaussian(scale):
    """Log-likelihoods that sum to `gaussian`, with noisy energies and gradients."""

    def log_likelihood(x, noise):
        return gaussian(x) / N + scale * noise * (1.0 + 0.2 * x)

    return log_likelihood


def two_modes(x):
    return ops.logaddexp(-8.0 * ops.square(x - 2.0), -8.0 * ops.square(x + 2.0))


def run(kernel, init=0.0, temperatures=(1.0, 4.0), steps=300, chains=400, **settings):
    settings = {"log_density": gaussian, "burn_in": steps // 3} | settings
    if "data" in settings:
        del settings["log_density"]
    return mh.replica_exchange(
        kernel,
        init,
        temperatures=list(temperatures),
        num_steps=steps,
        num_chains=chains,
        seed=3,
        progress=False,
        **settings,
    )


def variance(draws):
    """Variance in units of the target's at temperature 1, and its standard error.

    From the chains' own mean squares, which are independent of each other.
    """
    squares = PRECISION * np.square(draws.position).mean(axis=1)
    return squares.mean(), squares.std() / len(squares) ** 0.5


def in_target(chains, scale=1.0):
    rng = np.random.default_rng(0)
    return (scale * PRECISION**-0.5 * rng.normal(size=(chains, 1))).astype("float32")
