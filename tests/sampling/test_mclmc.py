"""Microcanonical Langevin Monte Carlo: its law, its warm-up, and what it refuses."""

import numpy as np
import pytest
import scipy.stats
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers import mclmc
from tests.statistics.planting import wrap

pytestmark = pytest.mark.in_turn("jax")  # long chains

LEAST = 1e-4
SCALES = np.geomspace(0.5, 2.0, 4)


def normal(scales, constant=0.0):
    scales = np.asarray(scales, "float32")
    return lambda x: constant - 0.5 * ops.sum(ops.square(x / scales))


def run(kernel, start, density, steps, burn_in=0, **options):
    options = dict(num_chains=len(start), every=1, seed=3, progress=False) | options
    return mh.sample(
        kernel,
        np.asarray(start, "float32"),
        log_density=density,
        num_steps=steps,
        burn_in=burn_in,
        **options,
    )


def smallest_p_value(temperature=1.0, **options):
    """Of chains that start in a normal target, after a while of small steps."""
    sd = np.sqrt(temperature) * SCALES
    start = sd * np.random.default_rng(0).normal(size=(1500, 4))
    kernel = mh.kernels.mclmc(0.3, warm_up=0, temperature=temperature, **options)
    draws = run(kernel, start, normal(SCALES), 40, every=40)
    found = [
        scipy.stats.kstest(x, "norm").pvalue for x in (draws.position[:, -1] / sd).T
    ]
    shared = np.sum(draws.position[:, -1] * start) / np.sum(start**2)
    return min(found), shared


OPTIONS = {
    "leapfrog": {},
    "short decoherence": dict(decoherence_length=1.0),
    "long decoherence": dict(decoherence_length=30.0),
    "another temperature": dict(temperature=3.0),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_chains_that_start_in_the_target_stay_there(name):
    p_value, shared = smallest_p_value(**OPTIONS[name])
    assert p_value > LEAST
    # The chains have left their start, so that the normal law is their own.
    assert abs(shared) < 0.5


# Name of a function, and what takes its place.
BUGS = {
    "a kick up the hill": (
        "kicked",
        lambda real, u, gradient, *args: real(u, [-g for g in gradient], *args),
    ),
    "a kick that is not divided by d - 1": (
        "kicked",
        lambda real, u, gradient, scale, h: real(u, gradient, scale, 3.0 * h),
    ),
    "kicks of half the time": (
        "kicked",
        lambda real, u, gradient, scale, h: real(u, gradient, scale, 0.5 * h),
    ),
    "a velocity of any length": ("normalised", lambda real, xs, *args: xs),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(monkeypatch, bug):
    wrap(monkeypatch, mclmc, *BUGS[bug])
    assert smallest_p_value()[0] < LEAST


@pytest.mark.slow
def test_the_bias_falls_with_the_square_of_the_step():
    """The variance of a normal target in ten dimensions is too large."""
    start = np.random.default_rng(1).normal(size=(500, 10))
    bias = []
    for share in (0.9, 0.45, 0.6):  # the last is what the warm-up finds
        kernel = mh.kernels.mclmc(share * 10**0.5, warm_up=0)
        draws = run(kernel, start, normal(np.ones(10)), 130, 10, every=2)
        bias.append(draws.position.var() - 1.0)
    # The error of these variances is about 0.003.
    assert 0.04 < bias[0] < 0.12
    assert 0.1 < bias[1] / bias[0] < 0.45
    assert 0.015 < bias[2] < 0.045


@pytest.mark.parametrize(
    ("dimension", "wanted"),
    [
        pytest.param(3, 5e-4, marks=pytest.mark.slow),
        (20, 5e-4),
        pytest.param(20, 1e-5, marks=pytest.mark.slow),
    ],
)
def test_the_warm_up_finds_step_and_scales(dimension, wanted):
    scales = np.geomspace(0.01, 10.0, dimension)
    kernel = mh.kernels.mclmc(energy_error=wanted)
    start = np.zeros((200, dimension))
    draws = run(kernel, start, normal(scales), 1400, 1000, every=20)
    error = draws.info["energy_error"]
    assert 0.5 < error.mean() / wanted < 2.0
    assert 0.5 < np.median(error) / wanted < 2.0
    for column in (draws.position[:, -1] / scales).T:
        assert scipy.stats.kstest(column, "norm").pvalue > LEAST
    # Each chain has a step of its own.
    assert draws.info["step_size"].std() > 0.0
    length = draws.info["decoherence_length"]
    np.testing.assert_allclose(length, dimension**0.5, rtol=1e-5)
    assert draws.info["nonfinite"].sum() == 0


@pytest.mark.parametrize(
    "step_size", [0.01, pytest.param(30.0, marks=pytest.mark.slow)]
)
def test_the_first_step_does_not_matter(step_size):
    kernel = mh.kernels.mclmc(step_size)
    start = np.full((50, 5), 3.0)  # outside of the target
    draws = run(kernel, start, normal(np.ones(5)), 1300, 1000)
    assert 0.5 < draws.info["energy_error"].mean() / 5e-4 < 2.0
    assert 0.9 < draws.position.var() < 1.1


def test_energies_that_float32_knows_badly_do_not_end_the_run():
    kernel = mh.kernels.mclmc()
    start = np.zeros((50, 5))
    with pytest.warns(UserWarning, match="50 of 50 chains do not follow the density"):
        draws = run(kernel, start, normal(np.ones(5), constant=1e7), 1300, 1000)
    assert draws.info["step_size"].min() > 0.3
    assert draws.info["energy_error"].mean() > 5e-4  # the chain says so


def test_a_bounded_target_keeps_its_law():
    def density(x):  # NaN outside of the square
        return ops.sum(ops.log(1.0 - ops.square(x)))

    rng = np.random.default_rng(2)
    exact = scipy.stats.beta(2, 2, loc=-1, scale=2)
    start = exact.rvs((1500, 2), random_state=rng)
    draws = run(mh.kernels.mclmc(0.1, warm_up=0), start, density, 40, every=40)
    assert 0 < draws.info["nonfinite"].mean() < 4
    for column in draws.position[:, -1].T:
        assert scipy.stats.kstest(column, exact.cdf).pvalue > LEAST


def test_what_it_refuses():
    density = normal([1.0, 1.0])
    target = dict(log_density=density, num_steps=1100, progress=False)
    with pytest.raises(ValueError, match=r"`init` must have at least 2 .*`mh\.kernels"):
        mh.sample(mh.kernels.mclmc(), [0.0], burn_in=1000, **target)
    with pytest.raises(ValueError, match=r"`step_size` must be .*Received: .*None"):
        mh.kernels.mclmc(warm_up=0)


def test_a_start_without_a_gradient_is_refused():
    def density(x):
        return -ops.sum(ops.sqrt(ops.abs(x)))

    kernel = mh.kernels.mclmc(0.1, warm_up=0)
    with pytest.raises(ValueError, match="`init` must be where the gradient"):
        run(kernel, np.zeros((2, 2)), density, 10)


def cliff(x):
    """A normal density, and a cliff at 2.5 that a short warm-up seldom sees."""
    beyond = ops.maximum(x[0] - 2.5, 0.0)
    return -0.5 * ops.sum(ops.square(x)) - 1e5 * ops.square(beyond)


def energies_and_info():
    kernel = mh.kernels.mclmc(warm_up=60, energy_error=0.1)
    draws = run(kernel, np.zeros((30, 4)), cliff, 660, 60)
    beyond = np.maximum(draws.position[..., 0] - 2.5, 0.0)
    return 1e5 * beyond**2, draws.info


def test_a_cliff_that_the_warm_up_has_not_seen_sends_chains_back(monkeypatch):
    height, info = energies_and_info()
    assert 10 <= info["returns"].sum() <= 150
    assert (info["energy_error"] <= 10.0 * 0.1).all()
    assert height.max() < 100.0  # no draw lies down the cliff
    # Chains that were sent back have a shorter step, and go on.
    sent = info["returns"] > 1
    assert info["step_size"][sent].mean() < info["step_size"][~sent].mean()
    # Without the guard the chains go over the cliff.
    monkeypatch.setattr(mclmc, "UNSAFE", 1e30)
    height, info = energies_and_info()
    assert info["returns"].sum() == 0
    assert info["energy_error"].max() > 1e3
    assert height.max() > 1e3


def test_no_chain_is_sent_back_where_the_step_is_safe():
    for wanted in (5e-4, 0.1):
        kernel = mh.kernels.mclmc(warm_up=300, energy_error=wanted)
        start = np.random.default_rng(4).normal(size=(100, 10))
        draws = run(kernel, start, normal(np.ones(10)), 500, 300, every=10)
        assert draws.info["returns"].sum() <= 2
