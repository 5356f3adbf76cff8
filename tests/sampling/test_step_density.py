"""The gradients of `StepDensity`, beside enumerations in float64.

Kernels with an accept-reject test correct any gradient, so that no law sees an error.
"""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.sampling.log_density import StepDensity
from tests.oracles.control_variates import Logistic
from tests.statistics.planting import wrap
from tests.support.kernel_tools import tensor

RNG = np.random.default_rng(4)
N, M, D, SCALE, CHAINS = 6, 2, 3, 0.7, 300
X = RNG.normal(size=(N, D)).astype("float32")
Y = (RNG.random(N) < 0.5).astype("float32")
ORACLE = Logistic(X, Y, SCALE)
THETA = RNG.normal(size=(CHAINS, D)).astype("float32")
BATCHES = np.array(list(itertools.combinations(range(N), M)))


def log_likelihood(theta, batch):
    x, y = batch
    return -ops.softplus((1 - 2 * y) * ops.sum(x * theta, axis=-1))


def log_prior(theta):
    return -0.5 * ops.sum(ops.square(theta)) / SCALE**2


def density(prior=log_prior):
    target = LogDensity(log_likelihood=log_likelihood, log_prior=prior, data=(X, Y))
    noise = 3, 0
    return StepDensity(target, 0, [(CHAINS, D)], target.constants, noise, 0)


def numpy(gradients):
    (gradient,) = gradients
    return ops.convert_to_numpy(gradient)


def assert_gradient_of_all():
    found = N * numpy(density().gradient([tensor(THETA)], N, 1))
    expected = [ORACLE.gradient(theta, np.arange(N)) for theta in THETA]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    _, gradient = density().energies_and_gradient([tensor(THETA)])
    np.testing.assert_allclose(N * numpy(gradient), expected, rtol=1e-5, atol=1e-5)


def assert_gradient_of_batches():
    """Each chain has the gradient of one batch, and all batches are as frequent."""
    found = N * numpy(density().gradient([tensor(THETA)], M, 1))
    counts = np.zeros(len(BATCHES))
    for gradient, theta in zip(found, THETA, strict=True):
        every = np.array([ORACLE.gradient(theta, rows) for rows in BATCHES])
        distances = np.abs(gradient - every).max(axis=1)
        assert distances.min() < 1e-4
        counts[distances.argmin()] += 1
    mean = CHAINS / len(BATCHES)
    # The 0.9999 quantile of chi-square with 14 degrees of freedom is 42.6.
    assert np.sum((counts - mean) ** 2) / mean < 42.6
    other = N * numpy(density().gradient([tensor(THETA)], M, 2))
    assert (np.abs(other - found).max(axis=1) > 1e-4).mean() > 0.8


def assert_weighted_gradient():
    rng = np.random.default_rng(5)
    index, weights = rng.integers(N, size=(CHAINS, 4)), rng.normal(size=(CHAINS, 4))
    found = numpy(
        density().weighted_gradient(
            [tensor(THETA)], tensor(index, "int32"), tensor(weights)
        )
    )
    theta = THETA.astype("float64")
    logits = np.einsum("kbd,kd->kb", X[index].astype("float64"), theta)
    residual = Y[index] - 1 / (1 + np.exp(-logits))
    expected = np.einsum("kb,kbd->kd", weights * residual, X[index])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def assert_prior_gradient():
    found = numpy(density().prior_gradient([tensor(THETA)]))
    np.testing.assert_allclose(found, -THETA / SCALE**2, rtol=1e-5)
    assert (numpy(density(None).prior_gradient([tensor(THETA)])) == 0.0).all()


CHECKS = [
    assert_gradient_of_all,
    assert_gradient_of_batches,
    assert_weighted_gradient,
    assert_prior_gradient,
]


@pytest.mark.parametrize("check", CHECKS)
def test_gradients_are_those_of_float64(check):
    check()


def of_the_size(real, self, position, batch_size, part):
    factor = batch_size / self.train_size
    return [factor * g for g in real(self, position, batch_size, part)]


# A method, what takes its place, and the check that finds it.
BUGS = {
    "the size": ("gradient", of_the_size, assert_gradient_of_batches),
    "all": (
        "gradient",
        lambda real, self, x, _, part: real(self, x, self.train_size, part),
        assert_gradient_of_batches,
    ),
    "the part": (
        "gradient",
        lambda real, self, x, size, _: real(self, x, size, 1),
        assert_gradient_of_batches,
    ),
    "the weights": (
        "weighted_gradient",
        lambda real, self, x, index, w: real(self, x, index, ops.ones_like(w)),
        assert_weighted_gradient,
    ),
    "the sign": (
        "prior_gradient",
        lambda real, self, x: [-g for g in real(self, x)],
        assert_prior_gradient,
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(monkeypatch, bug):
    name, around, check = BUGS[bug]
    wrap(monkeypatch, StepDensity, name, around)
    with pytest.raises(AssertionError):
        check()
