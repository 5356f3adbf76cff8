"""`mh.sample`: what it draws has the law that theory gives."""

import numpy as np
import pytest
import scipy.stats
from keras import ops

import keras_mhmcmc as mh

K = 4000


def normal(precision):
    """Log density of a centred normal with independent coordinates."""
    precision = ops.convert_to_tensor(np.asarray(precision, "float32"))
    return lambda x: -0.5 * ops.sum(precision * ops.square(x))


def draw(kernel, init, steps, chains=K, **arguments):
    """The last positions of many chains: independent values."""
    draws = mh.sample(
        kernel,
        init,
        num_steps=steps,
        num_chains=chains,
        every=steps,
        progress=False,
        **arguments,
    )
    return draws.position[:, -1], draws


def assert_variance(values, expected, sigmas=4.5):
    """Independent values along the first axis; the relative error is sqrt(2/K)."""
    error = sigmas * (2 / len(values)) ** 0.5
    np.testing.assert_allclose(np.var(values, axis=0), expected, rtol=error)


PRECISION = np.array([1.0, 4.0])


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_sgld_has_the_variance_of_its_finite_step(temperature):
    rate = 0.2
    kernel = mh.kernels.sgld(rate, temperature=temperature)
    values, _ = draw(kernel, [0.0, 0.0], 60, log_density=normal(PRECISION))
    assert_variance(values, temperature / (PRECISION * (1 - rate * PRECISION / 2)))


# An asymmetric density with known quantiles: a sign error cannot hide.
def gumbel(x):
    return -ops.sum(x + ops.exp(-x))


PROPOSALS = {
    "random walk": (mh.proposals.RandomWalk(), 1.5),
    "Langevin": (mh.proposals.Langevin(), 0.6),
    "Langevin, own noise": (mh.proposals.Langevin(noise_temperature=1.5), 0.4),
    "reversible": (mh.proposals.ReversibleLangevin(1.5, normalized=True), 0.5),
}


@pytest.mark.parametrize("temperature", [None, 1.7])
@pytest.mark.parametrize("name", PROPOSALS)
def test_metropolis_hastings_keeps_an_asymmetric_law_exactly(name, temperature):
    proposal, step = PROPOSALS[name]
    rng = np.random.default_rng(3)
    t = temperature or 1.0
    # exp(-(x + e^-x)/T): e^-x is a gamma variable of shape 1/T and scale T.
    start = -np.log(rng.gamma(1 / t, t, size=(K, 1)))
    kernel = mh.kernels.mhbt(step, proposal=proposal, temperature=temperature)
    values, draws = draw(kernel, start, 12, log_density=gumbel, seed=7)
    assert 0.1 < draws.info["acceptance"].mean() < 0.99
    law = scipy.stats.gamma(1 / t, scale=t)
    assert scipy.stats.kstest(np.exp(-values[:, 0]), law.cdf).pvalue > 1e-3
    assert np.mean(values != start) > 0.8


@pytest.mark.parametrize("beta", [2.0, 3.0])
def test_the_papers_ratio_misses_the_target(beta):
    """Without its normalising constants the law is too narrow: 0.83 to 0.72."""
    proposal = mh.proposals.ReversibleLangevin(beta, 1.0, normalized=False)
    start = np.random.default_rng(1).normal(size=(K, 2))
    kernel = mh.kernels.mhbt(0.3, proposal=proposal)
    values, _ = draw(kernel, start, 100, log_density=normal(1.0))
    assert values.var() < 0.9


# A normal mean with N observations: mini-batches have a known effect.
N, M = 400, 200
# Two values: then all batches have nearly the same spread, and so nearly one weight
# in the law of (theta, I).
DATA = np.repeat([-1.3, 2.7], N // 2).astype("float32")[:, None]
MEAN, VARIANCE = float(DATA.mean()), float(DATA.var(ddof=1))


def log_likelihood(position, batch):
    return -0.5 * ops.square(batch[:, 0] - position)


@pytest.mark.slow_on("tensorflow", "torch")
@pytest.mark.parametrize(
    "replacement", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_sgld_on_batches_has_the_variance_that_gradient_noise_gives(replacement):
    rate, temperature = 0.5, 3.0
    values, _ = draw(
        mh.kernels.sgld(rate, temperature=temperature),
        MEAN,
        30,
        log_likelihood=log_likelihood,
        data=DATA,
        batch_size=M,
        replacement=replacement,
    )
    # theta' = (1 - e) theta + e (batch mean) + noise: an AR(1).
    left = 1.0 if replacement else 1 - M / N
    noise = rate**2 * VARIANCE / M * left + 2 * rate * temperature / N
    expected = noise / (1 - (1 - rate) ** 2)
    assert_variance(values, expected)
    error = 4.5 * (expected / K) ** 0.5
    assert values.mean() == pytest.approx(MEAN, abs=error)


def test_the_prior_counts_once_for_all_of_the_data():
    prior = 300.0  # its precision, in nats
    values, _ = draw(
        mh.kernels.mhbt(0.05),
        MEAN,
        150,
        log_likelihood=log_likelihood,
        data=DATA,
        log_prior=lambda theta: -0.5 * prior * ops.square(theta),
    )
    precision = N + prior
    expected = N * MEAN / precision
    assert values.mean() == pytest.approx(
        expected, abs=4.5 * (1 / precision / K) ** 0.5
    )
    assert_variance(values, 1 / precision)


def tempered_variance(scale):
    """The variance of theta under exp(c mean_I(log p)) nu(I), c = `scale`.

    For one batch it is 1/c around the batch's mean b. A batch's spread is 4 - (b -
    MEAN)^2, so that it has the weight exp(c (b - MEAN)^2 / 2), which widens b's law.
    """
    batch_mean = VARIANCE / M * (1 - M / N)
    return 1 / scale + 1 / (1 / batch_mean - scale)


@pytest.mark.slow_on("jax", "torch")
def test_mhbt_on_batches_samples_the_tempered_posterior():
    scale = 20.0  # c_n, below sqrt(m)
    values, draws = draw(
        mh.kernels.mhbt(0.3, temperature=N / scale),
        MEAN,
        80,
        chains=3000,
        log_likelihood=log_likelihood,
        data=DATA,
        batch_size=M,
    )
    assert 0.2 < draws.info["acceptance"].mean() < 0.9
    assert_variance(values, tempered_variance(scale))


@pytest.mark.slow_on("tensorflow", "torch")
def test_mint_takes_its_temperature_from_the_batch():
    values, _ = draw(
        mh.kernels.mint(0.3, alpha=0.6, proposal=mh.proposals.RandomWalk()),
        MEAN,
        80,
        chains=3000,
        log_likelihood=log_likelihood,
        data=DATA,
        batch_size=M,
    )
    assert_variance(values, tempered_variance(M**0.6))


@pytest.mark.slow
def test_mint_visits_both_modes_alike():
    """Of a mixture with tied means, at the weight of m^0.6 = 16 examples."""
    target, runs, chains = mh.targets.TiedMeans(40_000, (0.0, 1.0), seed=0), 10, 60
    draws = mh.sample(
        mh.kernels.mint(0.9, alpha=0.6, proposal=mh.proposals.RandomWalk()),
        target.modes[0],  # all chains start in the first mode
        log_likelihood=target.log_likelihood,
        log_prior=target.log_prior,
        data=target.data,
        batch_size=100,
        num_steps=700,
        num_chains=runs * chains,
        burn_in=100,
        progress=False,
    )
    shares = (draws.position[..., 1] < 0).mean(1)
    # The standard error of a run's share comes from its 60 independent chains: about
    # 0.025, and that of the ratio is four times as large.
    error = shares.std() / len(shares) ** 0.5
    assert abs(shares.mean() - 0.5) < 4 * error < 0.06
    of_runs = shares.reshape(runs, chains).mean(1)
    ratios = (1 - of_runs) / of_runs
    assert np.sum((ratios > 0.8) & (ratios < 1.25)) >= 8


def test_chains_of_one_position_go_separate_ways():
    values, _ = draw(mh.kernels.sgld(0.1), 0.0, 3, log_density=normal(1.0))
    # Of 8 million pairs a tenth of one is expected to be equal in float32.
    assert len(np.unique(values)) >= K - 2
    neighbours = np.corrcoef(values[:-1], values[1:])[0, 1]
    assert abs(neighbours) < 4.5 / K**0.5
