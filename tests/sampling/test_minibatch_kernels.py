"""Kernels that draw their own data have their law exactly, and find planted bugs."""

import numpy as np
import pytest
import scipy.stats
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers import amagold
from keras_mhmcmc.samplers import barker
from keras_mhmcmc.samplers import growing
from keras_mhmcmc.samplers import hmc
from keras_mhmcmc.samplers.parts import bounded
from keras_mhmcmc.samplers.parts import taylor
from keras_mhmcmc.sampling.log_density import StepDensity
from tests.statistics.planting import wrap
from tests.support.bugs_of_gradients import BUGS_OF_GRADIENTS
from tests.support.minibatch_tools import CHAINS
from tests.support.minibatch_tools import KERNELS
from tests.support.minibatch_tools import NORMS
from tests.support.minibatch_tools import SOME
from tests.support.minibatch_tools import Posterior
from tests.support.minibatch_tools import X
from tests.support.minibatch_tools import Y
from tests.support.minibatch_tools import log_likelihood
from tests.support.minibatch_tools import log_prior
from tests.support.minibatch_tools import run

# No more than one of the tests of correct kernels in 1,000 runs is below.
LEAST = 1e-4


def smallest_p_value(name):
    kernel, options = KERNELS[name]
    posterior = Posterior(kernel.temperature)
    start = posterior.draw(CHAINS)
    draws = run(kernel, start, **options)
    end = draws.position[:, -1]
    moved = np.abs(end - start).max(axis=1) > 0
    return min(posterior.p_values(end)), moved.mean()


# At a landing each kernel has one form; the others run with all tests.
LANDING = "tuna", "poisson", "poisson of barker", "smh", "barker"
LANDING += "confidence", "austerity", "amagold", "hmc", "mclmc"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in LANDING else pytest.mark.slow)
        for name in KERNELS
    ],
)
def test_chains_that_start_in_the_target_stay_there(name):
    p_value, moved = smallest_p_value(name)
    assert p_value > LEAST
    assert moved > 0.5


def test_barkers_test_is_biased_on_small_batches_of_small_data():
    """The means move by about 0.2 standard deviations, as its docstring says."""
    posterior = Posterior(1.0)
    kernel = mh.kernels.barker(0.5, block_size=10)
    end = run(kernel, posterior.draw(CHAINS)).position[:, -1]
    mean = posterior.mass @ posterior.points
    variance = posterior.mass @ np.square(posterior.points - mean)
    shift = np.abs(end.mean(axis=0) - mean) / np.sqrt(variance)
    assert 0.08 < shift.max() < 0.4


def planted(where, name, around):
    return lambda monkeypatch: wrap(monkeypatch, where, name, around)


def of_polynomials(monkeypatch):
    """Factors of the examples that forget the polynomials."""
    wrap(monkeypatch, taylor, "change_of_each", lambda real, *args: 0.0 * real(*args))
    # The likelihoods themselves exceed the bounds of the remainders.
    monkeypatch.setattr(bounded, "rounding", lambda *values: 1e6)


def half_work(real, velocity, gradient, normals, work, scalars, train_size):
    moved, _ = real(velocity, gradient, normals, work, scalars, train_size)
    dot = ops.sum(gradient[0] * velocity[0], axis=1)
    return moved, work + train_size * dot


# The sign of the difference of an example.
of_share = planted(
    bounded, "bounded_share", lambda real, *a: (-real(*a)[0], real(*a)[1])
)
# Counts that are drawn at the proposal.
of_points = planted(StepDensity, "log_likelihoods", lambda real, *a: real(*a)[::-1])
# Batches of half the size, and no example that rejects.
of_rate, of_no_batch = (
    planted(
        bounded,
        "visit_arrivals",
        lambda real, density, rate, *a, share=share: real(density, share * rate, *a),
    )
    for share in (0.5, 0.0)
)
# Examples that are drawn with equal probability.
of_weights = planted(bounded, "alias_table", lambda real, w: real(np.ones(len(w))))
# No prior in the ratio.
of_prior = planted(
    StepDensity, "log_prior", lambda real, self, x: 0.0 * ops.sum(x[0] ** 2, axis=1)
)
# An r_0 of which the polynomials are left out.
of_sum = planted(taylor, "change_of_all", lambda real, *a: 0.0 * real(*a))
# A test on all of the data that forgets half of them.
of_energies = planted(StepDensity, "energies", lambda real, *a: 0.5 * real(*a))
# A test without rho, and with one that takes the old velocity twice.
of_work = planted(
    amagold,
    "kicked",
    lambda real, v, g, z, work, *a: (real(v, g, z, work, *a)[0], work),
)
of_half_work = planted(amagold, "kicked", half_work)
# Noise of half the size.
of_noise = planted(
    amagold,
    "kicked",
    lambda real, v, g, z, *a: real(v, g, [0.5 * x for x in z], *a),
)
# A rejected path that keeps its direction.
of_turn = planted(amagold, "turned", lambda real, velocity: list(velocity))
# No kinetic energy in the ratio.
of_kinetic = planted(
    hmc.hmc,
    "_path",
    lambda real, self, state, start, *a: (real(self, state, start, *a)[0], start),
)
# Momenta that are too small, in the path and in the ratio.
of_momentum = planted(
    StepDensity, "normals", lambda real, *a: [0.5 * z for z in real(*a)]
)
# Barker's test without X_corr.
of_correction = planted(barker, "correction", lambda real, *a: 0.0 * real(*a))
# A mean difference that is too small.
of_mean = planted(growing, "mean", lambda real, batch: real(batch) * 0.6)

BUGS = [
    *(("tuna", bug) for bug in (of_share, of_points, of_rate, of_weights, of_prior)),
    *(("poisson with few examples", bug) for bug in (of_points, of_rate, of_weights)),
    *BUGS_OF_GRADIENTS,
    ("smh with a random walk", of_share),
    ("smh with a random walk", of_weights),
    ("smh with a random walk", of_no_batch),
    ("smh with a random walk", of_polynomials),
    ("smh", of_prior),
    ("smh", of_sum),
    ("smh on all of the data at times", of_energies),
    ("barker", of_points),
    ("barker", of_prior),
    ("barker", of_correction),
    ("austerity", of_mean),
    ("confidence", of_prior),
    ("amagold that remembers", of_work),
    ("amagold that remembers", of_half_work),
    ("amagold", of_noise),
    ("amagold that remembers", of_turn),
    ("hmc with a large step", of_kinetic),
    ("hmc", of_momentum),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plant"), BUGS)
def test_a_planted_bug_is_found(monkeypatch, name, plant):
    plant(monkeypatch)
    assert smallest_p_value(name)[0] < LEAST


@pytest.mark.parametrize("name", SOME)
def test_a_run_goes_on_bit_for_bit(name):
    kernel, options = KERNELS[name]
    start = Posterior(1.0).draw(5)
    whole = run(kernel, start, steps=7, **options)
    part = run(kernel, start, steps=3, **options)
    rest = mh.sample(
        kernel,
        part.state,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        data=(X, Y),
        num_steps=4,
        every=4,
        progress=False,
        **options,
    )
    np.testing.assert_array_equal(rest.position, whole.position)
    for mine, other in zip(rest.state.values, whole.state.values, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", SOME)
def test_chains_and_steps_have_noise_of_their_own(name):
    kernel, options = KERNELS[name]
    start = np.tile(Posterior(1.0).draw(1), (6, 1))
    end = run(kernel, start, steps=20, **options).position[:, -1]
    assert len(np.unique(end[:, 0])) == 6
    other = run(kernel, start, steps=20, seed=2, **options).position[:, -1]
    assert not np.array_equal(end, other)
    again = run(kernel, start, steps=20, **options).position[:, -1]
    np.testing.assert_array_equal(end, again)


def test_the_size_of_a_batch_does_not_depend_on_its_blocks():
    """Blocks of other sizes draw other noise, and batches of the same mean size."""
    start = Posterior(1.0).draw(150)
    total, chi = NORMS.sum(), 0.02
    length = scipy.stats.chi(2, scale=0.3)
    expected = total * length.mean() + chi * total**2 * length.moment(2)
    for block_size in (8, 200):
        kernel = mh.kernels.tuna(0.3, bounds=NORMS, chi=chi, block_size=block_size)
        sizes = run(kernel, start, steps=20).info["batch_size"]
        error = sizes.std() / np.sqrt(len(sizes))
        # Proposals outside the disk, less than one in a thousand, draw no batch.
        assert abs(sizes.mean() - expected) < 4 * error + 1e-3 * expected


@pytest.mark.parametrize(
    "kernel",
    [
        mh.kernels.tuna(0.3, bounds=mh.bounds.logistic_regression(X)),
        mh.kernels.smh(mh.expansions.logistic_regression(X, Y)),
    ],
    ids=["tuna", "smh"],
)
def test_a_position_of_several_tensors(kernel):
    def log_likelihood(position, batch):
        x, y = batch
        logit = ops.sum(x[:, :1] * position["a"], axis=-1) + x[:, 1] * position["b"]
        return -ops.softplus((1 - 2 * y) * logit)

    draws = mh.sample(
        kernel,
        {"a": np.zeros(1), "b": 0.0},
        log_likelihood=log_likelihood,
        data=(X, Y),
        num_steps=30,
        num_chains=3,
        progress=False,
    )
    assert draws.position["a"].shape == (3, 30, 1)
    assert draws.position["b"].std() > 0
    assert draws.to_arviz()["posterior"]["a"].shape == (3, 30, 1)
    assert "acceptance" in repr(draws)


def test_amagold_of_a_density():
    draws = mh.sample(
        mh.kernels.amagold(0.5, momentum=0.5, steps_per_test=3),
        np.random.default_rng(0).normal(size=(CHAINS, 2)),
        log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
        num_steps=20,
        every=20,
        num_chains=CHAINS,
        progress=False,
    )
    for column in draws.position[:, -1].T:
        assert scipy.stats.kstest(column, "norm").pvalue > LEAST
    assert draws.info["acceptance"].mean() > 0.8
