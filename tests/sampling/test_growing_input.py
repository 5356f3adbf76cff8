"""Kernels with growing batches refuse what would make them wrong, and count NaN."""

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.support.minibatch_tools import NORMS
from tests.support.minibatch_tools import SIZE
from tests.support.minibatch_tools import Posterior
from tests.support.minibatch_tools import X
from tests.support.minibatch_tools import Y
from tests.support.minibatch_tools import log_likelihood
from tests.support.minibatch_tools import run

KERNELS = {
    "barker": mh.kernels.barker(0.5, block_size=10),
    "austerity": mh.kernels.austerity(0.5, block_size=10),
    "confidence": mh.kernels.confidence(0.5, bounds=NORMS, block_size=10),
}


def test_a_bound_that_does_not_hold_is_an_error():
    bounds = NORMS.copy()
    bounds[17] /= 50.0
    kernel = mh.kernels.confidence(0.3, bounds=bounds)
    with pytest.raises(ValueError, match="`bounds` must bound every .* example 17 at"):
        run(kernel, Posterior(1.0).draw(20), steps=5)


def broken(value):
    """A likelihood with a value that is not finite where theta_1 is positive."""

    def of_examples(theta, batch):
        values = log_likelihood(theta, batch)
        return ops.where(theta[0] > 0.0, values + value, values)

    return of_examples


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["barker", "austerity"])
def test_a_likelihood_that_is_not_finite_is_rejected(name, value):
    """NaN and infinity are counted. -infinity is where the density is 0."""
    draws = mh.sample(
        KERNELS[name],
        np.full(2, -0.1),
        log_likelihood=broken(value),
        data=(X, Y),
        num_steps=60,
        num_chains=4,
        progress=False,
    )
    assert (draws.position[..., 0] <= 0.0).all()
    assert len(np.unique(draws.position[..., 0])) > 8
    assert (draws.info["nonfinite"] > 0).all() == (value != -np.inf)
    assert (draws.info["nonfinite"] == 0).all() == (value == -np.inf)


def test_the_size_of_the_batch_is_reported():
    start = np.zeros((20, 2))  # far from the edge of the prior
    exact = run(mh.kernels.austerity(0.1, epsilon=0.0, block_size=7), start)
    assert (exact.info["batch_size"] == SIZE).all()
    some = run(mh.kernels.austerity(0.1, epsilon=0.3, block_size=7), start)
    assert 7 <= some.info["batch_size"].mean() < SIZE
    assert (some.info["acceptance"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("build", [mh.kernels.barker, mh.kernels.austerity])
def test_a_position_of_density_zero_is_left(build):
    """The bound of a uniform distribution: small batches do not see each example."""
    x = np.random.default_rng(0).uniform(size=2000).astype("float32")
    draws = mh.sample(
        build(0.003, block_size=50),
        np.full(6, 1.05, "float32"),
        log_likelihood=lambda t, x: ops.where(x <= t, -ops.log(t), -np.inf),
        data=x,
        num_steps=1500,
        burn_in=500,
        num_chains=6,
        seed=0,
        progress=False,
    )
    # Chains that cannot leave end at 0.9, and accept 3%.
    assert np.mean(draws.position) > 0.93
    assert np.all(draws.info["acceptance"] > 0.5)
