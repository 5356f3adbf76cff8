"""Replica exchange: the swaps against an oracle, and the law of every replica."""

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers import replica_exchange as rules
from keras_mhmcmc.samplers import sghmc
from keras_mhmcmc.samplers.base import Evaluation
from tests.oracles import exchange as oracle
from tests.support.exchange_tools import IS_TORCH
from tests.support.exchange_tools import KERNELS
from tests.support.exchange_tools import NOISE
from tests.support.exchange_tools import N
from tests.support.exchange_tools import gaussian
from tests.support.exchange_tools import in_target
from tests.support.exchange_tools import noisy_gaussian
from tests.support.exchange_tools import run
from tests.support.exchange_tools import two_modes
from tests.support.exchange_tools import variance
from tests.support.kernel_tools import assert_close
from tests.support.kernel_tools import tensor


@pytest.mark.parametrize("seed", range(3))
def test_swaps_agree_with_the_oracle(seed):
    rng = np.random.default_rng(seed)
    temperatures, chains = (1.0, 2.5, 4.0, 11.0), 60
    energy = rng.normal(size=(4, chains)) * 6
    spread = rng.uniform(0, 8, size=(4, chains))
    uniforms = rng.uniform(size=(3, chains))
    tried = np.array([[True], [False], [True]]) & (rng.uniform(size=(3, chains)) < 0.8)
    accepted = rules.decide_swaps(
        tensor(energy), tensor(spread), temperatures, tensor(tried, "bool"),
        tensor(uniforms),
    )  # fmt: skip
    accepted = ops.convert_to_numpy(accepted)
    expected = [
        [
            tried[r, c]
            and oracle.accept_swap(
                energy[r : r + 2, c],
                temperatures[r : r + 2],
                spread[r : r + 2, c],
                uniforms[r, c],
            )
            for c in range(chains)
        ]
        for r in range(3)
    ]
    np.testing.assert_array_equal(accepted, expected)
    assert 0 < accepted.mean() < 0.9
    for values in (rng.normal(size=(4, chains)), rng.normal(size=(4, chains, 2, 3))):
        moved = ops.convert_to_numpy(
            rules.swap(tensor(values), tensor(accepted, "bool"))
        )
        for c in range(chains):
            pairs = np.flatnonzero(accepted[:, c])
            expected = oracle.swap(values[:, c].astype("float32"), pairs)
            np.testing.assert_array_equal(moved[:, c], expected)


def test_neighbours_take_turns():
    def pairs(replicas, turn):
        return ops.convert_to_numpy(rules.pairs_of_turn(replicas, turn))[:, 0]

    assert pairs(5, 0).tolist() == [True, False, True, False]
    assert pairs(5, 7).tolist() == [False, True, False, True]
    assert pairs(2, 0).tolist() == pairs(2, 1).tolist() == [True]


def test_an_energy_that_is_not_finite_is_not_swapped():
    energy = tensor([[np.nan, np.inf, -np.inf, 0.0], [0.0, 0.0, 0.0, -9.0]])
    accepted = rules.decide_swaps(
        energy, 0.0 * tensor(np.zeros((2, 4))), (1.0, 2.0),
        tensor(np.ones((1, 4)), "bool"), tensor(np.full((1, 4), 1e-9)),
    )  # fmt: skip
    assert ops.convert_to_numpy(accepted).tolist() == [[False, False, False, True]]


@pytest.mark.parametrize("log_ratio", [0.3, 2.0])
def test_the_penalty_balances_gaussian_noise(log_ratio):
    """E min(1, r) there and back is in the ratio of the densities, and not without."""
    cold, hot, spread = 1.0, 4.0, 3.0
    noise = 2 * (1 / cold - 1 / hot) ** 2 * spread
    penalty = -float(
        rules.swap_log_ratio(0.0, 0.0, cold, hot, tensor(spread), tensor(spread))
    )
    assert penalty == pytest.approx(noise / 2, rel=1e-5)

    def balance(extra):
        there = oracle.mean_acceptance(log_ratio + extra, noise)
        back = oracle.mean_acceptance(-log_ratio + extra, noise)
        return np.log(there / back)

    assert balance(0.0) == pytest.approx(log_ratio, abs=1e-5)
    assert abs(balance(noise / 2) - log_ratio) > 0.1


@pytest.mark.parametrize("replacement", [False, True])
def test_the_variance_of_an_energy_is_that_of_its_batches(replacement):
    rng = np.random.default_rng(0)
    values = rng.normal(size=40).astype("float32")
    batch = values[:10]
    actual = rules.energy_variance(tensor(batch), 40, replacement)
    expected = oracle.energy_variance(batch.astype("float64"), 40, replacement)
    assert_close([actual], [np.float64(expected)], rtol=1e-4)
    # Unbiased: its mean over batches is the variance of N times a batch's mean.
    index = rng.integers(0, 40, size=(4000, 10))
    if not replacement:
        index = rng.permuted(np.tile(np.arange(40), (4000, 1)), axis=1)[:, :10]
    batches = values[index].astype("float64")
    estimates = [oracle.energy_variance(b, 40, replacement) for b in batches]
    true = np.var(40 * batches.mean(axis=1))
    assert np.mean(estimates) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize(
    "name, temperatures",
    [
        ("sgld", (1.0, 4.0)),
        ("sgld", (1.0, 16.0)),
        ("sgld", (1.0, 4.0, 16.0)),
        ("random walk", (1.0, 4.0, 16.0)),
        ("langevin", (1.0, 4.0, 16.0)),
    ],
)
def test_every_replica_has_its_variance(name, temperatures):
    draws = run(KERNELS[name], temperatures=temperatures, keep_all=True)
    assert len(draws.levels) == len(temperatures)
    for level, temperature in zip(draws.levels, temperatures, strict=True):
        value, error = variance(level)
        # SGLD's own bias at this step is 2%: T / (1 - 0.005 PRECISION / 2).
        assert abs(value / temperature - 1) < 5 * error / temperature + 0.03
    assert (draws.info["swap_acceptance"].mean(axis=0) > 0.25).all()
    assert draws.info["swap_acceptance"].shape == (400, len(temperatures) - 1)


@pytest.mark.parametrize("hot", [4.0, 16.0])
def test_an_inverted_swap_would_be_seen(hot, monkeypatch):
    correct = rules.swap_log_ratio
    monkeypatch.setattr(rules, "swap_log_ratio", lambda *args: -correct(*args))
    value, error = variance(run(KERNELS["sgld"], temperatures=(1.0, hot)))
    assert value - 10 * error > 1.5


@pytest.mark.slow_on("tensorflow", "torch")
@pytest.mark.parametrize("spread", ["auto", "given"])
def test_noisy_energies_leave_the_cold_chain_its_variance(spread):
    scale, batch_size = 0.1, 20
    likelihood = noisy_gaussian(scale)
    given = N**2 / batch_size * (1 - batch_size / N) * np.var(scale * NOISE, ddof=1)
    settings = dict(log_likelihood=likelihood, data=NOISE, batch_size=batch_size)
    # Small steps: the noise of the gradient counts with their square.
    kernel = mh.kernels.sgld(0.2)
    settings |= dict(init=in_target(400), steps=300 if IS_TORCH else 600)

    def value_of(energy_variance):
        draws = run(
            kernel, temperatures=(1.0, 4.0), energy_variance=energy_variance,
            **settings | {"log_likelihood": _of_vector(likelihood)},
        )  # fmt: skip
        return *variance(draws), draws.info["swap_acceptance"].mean()

    value, error, swaps = value_of("auto" if spread == "auto" else float(given))
    assert 0.02 < swaps < 0.4
    assert abs(value - 1) < 5 * error + 0.05
    # Without the correction the cold chain takes hot positions too often.
    value, error, _ = value_of(0.0)
    assert value - 5 * error > 1.15


def _of_vector(log_likelihood):
    return lambda x, noise: log_likelihood(x[0], noise)


@pytest.mark.slow_on("torch", "tensorflow")
def test_modes_are_found_that_the_cold_chain_alone_misses():
    kernel = mh.kernels.mhbt(0.5)
    alone = mh.sample(
        kernel, 2.0, log_density=two_modes, num_steps=300, num_chains=50, progress=False
    )
    assert (alone.position > 0).all()
    draws = run(
        kernel, 2.0, (1.0, 4.0, 16.0), steps=2400, chains=100, log_density=two_modes
    )
    share = (draws.position < 0).mean(axis=1)
    assert abs(share.mean() - 0.5) < 5 * share.std() / 10 + 0.02
    mode = draws.position[draws.position > 0]
    assert mode.mean() == pytest.approx(2.0, abs=0.02)
    assert mode.var() == pytest.approx(1 / 16, rel=0.1)


@pytest.mark.slow_on("jax", "tensorflow")
def test_a_swap_takes_the_mini_batch_along():
    """The joint law of position and batch, at a temperature where batches matter."""
    centres = np.array([-1.0, 1.0], "float32")

    def log_likelihood(x, centre):
        return -0.5 * ops.square(x[0] - centre)

    rng = np.random.default_rng(1)
    batch = rng.choice(centres, size=(2000, 1))
    init = (batch + 0.5**0.5 * rng.normal(size=(2000, 1))).astype("float32")
    # A batch is one centre: U_I = (x - c_I)^2, so the law is two modes of variance T/2.
    draws = run(
        mh.kernels.mhbt(1.0), init, (1.0, 3.0), steps=120, chains=2000,
        log_likelihood=log_likelihood, data=centres, batch_size=1, keep_all=True,
    )  # fmt: skip
    assert draws.info["swap_acceptance"].mean() > 0.3
    for level, temperature in zip(draws.levels, (1.0, 3.0), strict=True):
        last = level.position[:, -1, 0].astype("float64")
        error = np.square(last).std() / 2000**0.5
        assert abs(np.square(last).mean() - (1 + temperature / 2)) < 4 * error


@pytest.mark.slow_on("jax", "tensorflow")
def test_learning_rates_belong_to_the_temperatures():
    rates = [0.5, mh.schedules.PowerDecay(1.5, 1.0, 0.0)]
    settings = dict(steps=100, chains=3, temperatures=(1.0, 4.0), keep_all=True)
    for proposal in (None, mh.proposals.Langevin()):
        kernel = mh.kernels.mhbt(0.0, proposal=proposal)
        still = run(kernel, in_target(3), log_density=_gaussian_vector, **settings)
        moving = run(
            kernel, in_target(3), log_density=_gaussian_vector, learning_rates=rates,
            **settings,
        )  # fmt: skip
        assert (still.info["acceptance"] == 1).all()
        # A shift between replicas is a swap; nothing else moves at rate 0.
        assert len(np.unique(still.position)) <= 3
        assert len(np.unique(moving.position)) > 10
        means = [level.info["acceptance"].mean() for level in moving.levels]
        assert all(0 < mean < 1 for mean in means)


def _gaussian_vector(x):
    return gaussian(x[0])


MOMENTUM = {
    "euler": (mh.kernels.sghmc(0.1), 1.0 / (1.0 - 0.1 / 3.8)),
    "baoab": (mh.kernels.sghmc(0.1, integrator="baoab"), 1.0),
    "sgnht": (mh.kernels.sgnht(0.1), 1.0),
}
STEPWISE = dict(
    temperatures=(1.0, 1.3, 1.7), swap_every=1, chains=200, steps=600, burn_in=200,
    log_density=lambda x: -0.5 * ops.sum(ops.square(x)), init=np.zeros(10, "float32"),
)  # fmt: skip


def variances(name, **settings):
    draws = run(MOMENTUM[name][0], keep_all=True, **STEPWISE | settings)
    values = [
        np.square(level.position).mean(axis=(1, 2)) / temperature
        for level, temperature in zip(
            draws.levels, STEPWISE["temperatures"], strict=True
        )
    ]
    assert draws.info["swap_acceptance"].mean() > 0.6
    return [(value.mean(), value.std() / len(value) ** 0.5) for value in values]


@pytest.mark.slow_on("tensorflow", "torch")
@pytest.mark.parametrize("name", MOMENTUM)
def test_swaps_at_each_step_leave_a_velocity_that_fits(name):
    """The variance is that of the kernel alone, from its closed form."""
    for value, error in variances(name):
        assert error < 0.01
        assert abs(value / MOMENTUM[name][1] - 1) < 5 * error


def test_a_velocity_that_is_only_kept_would_be_seen(monkeypatch):
    monkeypatch.setattr(
        sghmc, "velocity_at", lambda _, before, *rest: before.auxiliary.velocity
    )
    (value, error), *_ = variances("baoab", steps=200, burn_in=100)
    assert value + 10 * error < 0.9


@pytest.mark.parametrize("name", MOMENTUM)
def test_the_velocity_of_a_new_position(name):
    """Only where positions swapped, by the gradients' difference at each rate."""
    kernel, _ = MOMENTUM[name]
    algorithm = rules.ReplicaExchange(kernel, (1.0, 4.0), 3, 1, 0.0)
    rng = np.random.default_rng(0)
    position, gradient, velocity = rng.normal(size=(3, 6, 2)).astype("float32")
    rates = np.array([0.1] * 3 + [0.3] * 3, "float32")
    state = algorithm.init([tensor(position)])._replace(velocity=[tensor(velocity)])
    momentum = 0.9
    if name == "sgnht":
        momentum = 1.0 - np.array([0.1, 0.3, 0.1, 0.1, 0.2, 0.4])
        state = state._replace(thermostat=tensor(1.0 - momentum))
    evaluation = Evaluation(
        energy=tensor([5.0, 0.0, 9.0, 0.0, 9.0, 0.0]),
        gradient=[tensor(gradient)],
        normals=[],
        uniforms=[tensor(np.full(6, 0.5))],
        number=0,
        learning_rate=tensor(rates),
        temperature=tensor(np.ones(6)),
        train_size=1,
    )
    current, _ = algorithm.decide(state, evaluation)
    partner = np.array([3, 1, 5, 0, 4, 2])  # the second chain does not swap
    share = 0.5 if name == "baoab" else 1.0 / (1.0 + momentum)
    step = (share * rates)[:, None]
    expected = velocity + step * (gradient[partner].astype("float64") - gradient)
    assert_close(current.position, [position[partner]])
    assert_close(current.auxiliary.velocity, [expected], rtol=1e-5)
