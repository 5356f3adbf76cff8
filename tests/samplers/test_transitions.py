"""Steps of the kernels that draw their own data, beside their float64 oracles."""

import numpy as np
import pytest

from keras_mhmcmc import expansions
from keras_mhmcmc import kernels
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import bounded
from tests.oracles import gradient_moves as moves
from tests.oracles import minibatch as oracle
from tests.support.given_density import BLOCK
from tests.support.given_density import BOUNDS
from tests.support.given_density import CHAINS
from tests.support.given_density import SIGN
from tests.support.given_density import SIZE
from tests.support.given_density import X
from tests.support.given_density import assert_step
from tests.support.given_density import gradient_of
from tests.support.given_density import log_likelihoods
from tests.support.given_density import plain_loops
from tests.support.given_density import run
from tests.support.given_density import slopes


@pytest.fixture(autouse=True)
def _plain_loops(monkeypatch):
    plain_loops(monkeypatch)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("chi", [None, 1e-4, 0.05])
def test_tuna_step_equals_the_oracle(chi, seed, temperature):
    kernel = kernels.tuna(
        0.3, bounds=BOUNDS, chi=chi, temperature=temperature, block_size=BLOCK
    )
    start, density, state, counts = run(kernel, seed)
    total = BOUNDS.sum() / temperature
    chi = 3.0 / (total * 0.3 * np.sqrt(2)) if chi is None else chi
    for chain in range(CHAINS):
        theta = start[chain]
        proposal = theta + 0.3 * density.steps[0, chain]
        distance = np.linalg.norm(proposal - theta)
        found = oracle.arrivals(
            chi * total**2 * distance**2 + total * distance,
            BOUNDS,
            density.blocks[1:, :, chain].astype("float64"),
            *batches.grid(SIZE),
        )
        here, there = log_likelihoods(theta), log_likelihoods(proposal)
        log_ratio = oracle.tuna_log_ratio(
            found, here, there, BOUNDS, distance, chi, temperature
        )
        log_ratio += (theta @ theta - proposal @ proposal) / 2 / temperature
        assert counts["examples"][chain] == len(found)
        assert_step(theta, proposal, log_ratio, density, chain, state, counts)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [None, 4.0])
def test_poisson_step_equals_the_oracle(rate, seed, temperature):
    lower, upper = -np.logaddexp(0, 4 * BOUNDS), np.zeros(SIZE)
    kernel = kernels.poisson(
        0.2,
        lower=lower,
        upper=upper,
        poisson_rate=rate,
        temperature=temperature,
        block_size=BLOCK,
    )
    start, density, state, counts = run(kernel, seed)
    total = (upper - lower).sum() / temperature
    rate = total if rate is None else rate
    for chain in range(CHAINS):
        theta = start[chain]
        proposal = theta + 0.2 * density.steps[0, chain]
        found = oracle.arrivals(
            rate + total,
            upper - lower,
            density.blocks[1:, :, chain].astype("float64"),
            *batches.grid(SIZE),
        )
        here, there = log_likelihoods(theta), log_likelihoods(proposal)
        log_ratio = oracle.poisson_log_ratio(
            found, here, there, lower, upper, rate, temperature
        )
        log_ratio += (theta @ theta - proposal @ proposal) / 2 / temperature
        assert counts["examples"][chain] == len(found)
        assert_step(theta, proposal, log_ratio, density, chain, state, counts)


SMH = {
    "second order": dict(step_size=0.8),
    "first order": dict(order=1, step_size=0.4),
    "random walk": dict(order=1, proposal="random_walk", step_size=0.5),
    "all of the data": dict(order=1, step_size=0.9, max_examples=3.0),
}


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", SMH)
def test_smh_step_equals_the_oracle(name, seed, temperature):
    options = dict(order=2, proposal="crank_nicolson", max_examples=None) | SMH[name]
    # The prior of another width than the target's: the reference is not the mode.
    expansion = expansions.logistic_regression(
        X, SIGN < 0, prior_scale=0.5, order=options.pop("order")
    )
    kernel = kernels.smh(
        expansion, temperature=temperature, block_size=BLOCK, **options
    )
    start, density, state, counts = run(kernel, seed)
    factor = np.linalg.cholesky(temperature * expansion.covariance)
    is_walk = options["proposal"] == "random_walk"
    beta, most = options["step_size"], options["max_examples"] or SIZE
    for chain in range(CHAINS):
        theta = start[chain]
        keep = 1.0 if is_walk else np.sqrt(1 - beta**2)
        proposal = expansion.reference + keep * (theta - expansion.reference)
        proposal += beta * factor @ density.steps[0, chain]
        here, there = log_likelihoods(theta), log_likelihoods(proposal)
        change, squares, bounds, losses = oracle.smh_factors(
            theta, proposal, here, there, expansion, temperature
        )
        assert (losses <= bounds * (1 + 1e-9)).all()
        prior = (theta @ theta - proposal @ proposal) / 2
        gaussian = 0.0 if is_walk else squares / 2
        log_ratio = (change + prior) / temperature + gaussian
        examples = 0
        if bounds.sum() > most:
            log_ratio = (there - here).sum() + prior
            log_ratio = log_ratio / temperature + gaussian
            examples = SIZE
        elif np.log(density.blocks[0, 0, chain, 0]) < log_ratio:
            found = oracle.arrivals(
                bounds.sum(),
                bounds,
                density.blocks[1:, :, chain].astype("float64"),
                *batches.grid(SIZE),
            )
            examples = len(found)
            if any(u < losses[i] / bounds[i] for i, u in found):
                log_ratio = -np.inf
        assert counts["examples"][chain] == examples
        assert_step(theta, proposal, log_ratio, density, chain, state, counts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("steps", [1, 5])
def test_amagold_path_equals_the_oracle(steps, momentum, seed):
    kernel = kernels.amagold(
        2.0, momentum=momentum, steps_per_test=steps, temperature=1.5
    ).bind_data_size(SIZE, 6)
    start, density, state, counts = run(kernel, seed)
    settings = dict(
        learning_rate=2.0, momentum=momentum, temperature=1.5, train_size=SIZE
    )
    for chain in range(CHAINS):
        theta = start[chain]
        parts = iter(range(1, steps + 1))
        velocity = np.sqrt(2.0 * 1.5 / SIZE) * density.steps[0, chain]
        end, new_velocity, rho = oracle.amagold_path(
            theta,
            velocity.astype("float64"),
            lambda t, parts=parts, k=chain: gradient_of(
                t, density.batch(next(parts), k)
            ),
            density.steps[1 : steps + 1, chain].astype("float64"),
            settings,
        )
        energies = [-log_likelihoods(t).sum() + t @ t / 2 for t in (theta, end)]
        log_ratio = (energies[0] - energies[1] + rho) / 1.5
        assert_step(theta, end, log_ratio, density, chain, state, counts)
        expected = new_velocity if counts["accepted"][chain] else -velocity
        found = state.velocity[0][chain]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        energy = energies[1] if counts["accepted"][chain] else energies[0]
        np.testing.assert_allclose(state.energy[chain], energy, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [1, 5])
def test_hmc_path_equals_the_oracle(steps, seed):
    kernel = kernels.hmc(
        leapfrog_steps=steps, step_size=0.3, warm_up=0, temperature=1.5
    )
    start, density, state, counts = run(kernel, seed)
    for chain in range(CHAINS):
        theta = start[chain]
        momentum = density.steps[0, chain].astype("float64")
        parts = iter(range(1, steps + 1))
        step = 0.3 * (1.0 + 0.2 * (2.0 * density.blocks[0, 1, chain, 0] - 1.0))
        end, new = oracle.hmc_path(
            theta,
            momentum,
            lambda t, parts=parts, k=chain: (
                gradient_of(t, density.batch(next(parts), k)) / 1.5
            ),
            step,
            steps,
        )
        energies = [-log_likelihoods(t).sum() + t @ t / 2 for t in (theta, end)]
        log_ratio = (energies[0] - energies[1]) / 1.5
        log_ratio += (momentum @ momentum - new @ new) / 2
        assert_step(theta, end, log_ratio, density, chain, state, counts)
        energy = energies[1] if counts["accepted"][chain] else energies[0]
        np.testing.assert_allclose(state.energy[chain], energy, rtol=1e-5)


@pytest.mark.parametrize("weights", [[1.0], [2, 2, 2], [0, 3, 1, 0.1], range(40)])
def test_the_alias_table_gives_back_its_weights(weights):
    weights = np.asarray(weights, "float64")
    share, alias = bounded.alias_table(weights)
    size = len(weights)
    found = share.astype("float64") / size
    np.add.at(found, alias, (1.0 - share.astype("float64")) / size)
    np.testing.assert_allclose(found, weights / weights.sum(), atol=1e-6)


LOWER, UPPER = -np.logaddexp(0, 6 * BOUNDS), np.zeros(SIZE)
RATE = 0.8
# Of the log r of a kernel in float32.
TOLERANCE = 2e-3


def arrivals_of(rate, weights, density, chain):
    """The examples of a batch whose blocks begin with part 2."""
    blocks = density.blocks[2:, :, chain].astype("float64")
    return oracle.arrivals(rate, weights, blocks, *batches.grid(SIZE))


def poisson_step(theta, density, chain, temperature, rate=7.0):
    """The proposal, log r, and the number of examples."""
    found = arrivals_of(
        rate + (UPPER - LOWER).sum() / temperature, UPPER - LOWER, density, chain
    )
    settings = LOWER, UPPER, rate, temperature
    counts = moves.poisson_counts(found, log_likelihoods(theta), *settings)

    def gradient(t):
        values = log_likelihoods(t)
        return moves.counts_gradient(counts, values, slopes(t), -t, *settings)

    here, normals = gradient(theta), density.steps[0, chain].astype("float64")
    signs = density.blocks[1, 0, chain, :2]
    proposal = moves.barker(theta, here, normals, signs, RATE)
    log_ratio = oracle.poisson_log_ratio(
        found, log_likelihoods(theta), log_likelihoods(proposal), *settings
    )
    log_ratio += moves.barker_log_density(proposal, theta, gradient(proposal), RATE)
    log_ratio -= moves.barker_log_density(theta, proposal, here, RATE)
    log_ratio += (theta @ theta - proposal @ proposal) / 2 / temperature
    return proposal, log_ratio, len(found)


def check_barker(seed, temperature):
    """The log r of the kernel is that of the oracle, within the tolerance.

    A uniform just below exp(log r) accepts, and one just above it rejects.
    """
    given = dict(lower=LOWER, upper=UPPER, poisson_rate=7.0, temperature=temperature)
    kernel = kernels.poisson(RATE, proposal="barker", block_size=BLOCK, **given)
    start, density, _, _ = run(kernel, seed)
    expected = [poisson_step(start[k], density, k, temperature) for k in range(CHAINS)]
    proposals, log_ratios, examples = map(np.array, zip(*expected, strict=True))
    for shift in (-TOLERANCE, TOLERANCE):
        uniform = np.exp(np.minimum(log_ratios + shift, -1e-6)).astype("float32")
        _, _, state, counts = run(kernel, seed, uniform)
        wins = np.log(uniform.astype("float64")) < log_ratios
        np.testing.assert_array_equal(counts["accepted"], wins)
        np.testing.assert_array_equal(counts["examples"], examples)
        end = np.where(wins[:, None], proposals, start)
        np.testing.assert_allclose(state.point[0], end, rtol=1e-5, atol=1e-5)
    return log_ratios


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_poisson_steps_along_a_gradient_equal_the_oracle(temperature):
    log_ratios = np.array([check_barker(seed, temperature) for seed in range(6)])
    # A move with a positive log r is accepted with both uniforms, which says little.
    assert np.sum(log_ratios < -TOLERANCE) > 6
