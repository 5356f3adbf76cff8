"""Hamiltonian Monte Carlo: its warm-up, its limits, and what it refuses."""

import warnings

import numpy as np
import pytest
import scipy.stats
from keras import ops

import keras_mhmcmc as mh
from tests.sampling.test_mclmc import LEAST
from tests.sampling.test_mclmc import normal
from tests.sampling.test_mclmc import run

pytestmark = pytest.mark.in_turn("jax")  # long chains


@pytest.mark.parametrize(("dimension", "warm_up"), [(3, 400), (20, 400)])
def test_the_warm_up_finds_step_and_scales(dimension, warm_up):
    scales = np.geomspace(0.01, 10.0, dimension)
    kernel = mh.kernels.hmc(warm_up=warm_up)
    start = np.zeros((200, dimension))
    draws = run(kernel, start, normal(scales), warm_up + 30, warm_up, every=15)
    assert abs(draws.info["acceptance"].mean() - 0.8) < 0.05
    for column in (draws.position[:, -1] / scales).T:
        assert scipy.stats.kstest(column, "norm").pvalue > LEAST
    # Each chain has a step of its own.
    assert draws.info["step_size"].std() > 0.0


def test_a_banana_keeps_its_marginals():
    def density(x):
        return -0.5 * (ops.square(x[0]) + ops.square((x[1] - ops.square(x[0])) / 0.7))

    rng = np.random.default_rng(0)
    first = rng.normal(size=600)
    start = np.stack([first, first**2 + 0.7 * rng.normal(size=600)], 1)
    kernel = mh.kernels.hmc(leapfrog_steps=5, step_size=0.2, warm_up=0)
    draws = run(kernel, start, density, 15, every=15)
    assert 0.6 < draws.info["acceptance"].mean() < 0.999
    x = draws.position[:, -1]
    assert scipy.stats.kstest(x[:, 0], "norm").pvalue > LEAST
    rest = (x[:, 1] - x[:, 0] ** 2) / 0.7
    assert scipy.stats.kstest(rest, "norm").pvalue > LEAST


def test_a_path_that_leaves_the_support_is_rejected():
    def density(x):  # NaN outside of the disk
        return ops.sum(ops.log(1.0 - ops.square(x)))

    kernel = mh.kernels.hmc(leapfrog_steps=4, step_size=0.5, warm_up=0)
    draws = run(kernel, np.zeros((400, 1)), density, 60, every=60)
    assert draws.info["nonfinite"].sum() > 0
    x = draws.position[:, -1, 0]
    exact = scipy.stats.beta(2, 2, loc=-1, scale=2)
    assert scipy.stats.kstest(x, exact.cdf).pvalue > LEAST


def test_mini_batches_and_a_short_burn_in_are_refused():
    x = np.zeros((20, 1), "float32")
    target = dict(
        log_likelihood=lambda theta, batch: -ops.sum(ops.square(batch - theta), -1),
        data=x,
        num_steps=600,
        progress=False,
    )
    with pytest.raises(ValueError, match=r"`batch_size` must be None.*batch_size=5"):
        mh.sample(mh.kernels.hmc(), [0.0], batch_size=5, burn_in=500, **target)
    with pytest.raises(ValueError, match=r"`batch_size` must be None.*batch_size=5"):
        mh.sample(mh.kernels.mclmc(), [0.0], batch_size=5, burn_in=500, **target)
    with pytest.raises(ValueError, match=r"`burn_in` must be at least 500.*warm_up"):
        mh.sample(mh.kernels.hmc(), [0.0], burn_in=499, **target)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (dict(warm_up=5), "Raise `warm_up`, here 5"),
        (dict(warm_up=0, step_size=30.0), "Lower `step_size`, here 30"),
    ],
)
def test_chains_that_reject_nearly_all_say_so(options, remedy):
    kernel = mh.kernels.hmc(leapfrog_steps=4, **options)
    message = rf"4 of 4 chains of HMC hardly move.*less than half.*{remedy}"
    with pytest.warns(UserWarning, match=message):
        draws = run(kernel, np.zeros((4, 3)), normal([0.1, 1.0, 3.0]), 60, 5)
    assert draws.info["acceptance"].max() < 0.4


@pytest.mark.parametrize(("constant", "warns"), [(1e6, False), (1e8, True)])
def test_energies_that_float32_knows_too_coarsely(constant, warns):
    kernel, density = mh.kernels.hmc(warm_up=5), normal([1.0, 1.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(kernel, np.zeros((4, 2)), lambda x: density(x) + constant, 20, 5)
    messages = [str(w.message) for w in caught]
    found = [m for m in messages if "4 of 4 chains do not follow the density" in m]
    assert len(found) == warns
