"""Moves along the gradient of a batch, beside their float64 oracles."""

import numpy as np
import pytest

from keras_mhmcmc import kernels
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import bounded
from tests.oracles import gradient_moves as moves
from tests.oracles import minibatch as oracle
from tests.statistics.planting import wrap
from tests.support import given_density
from tests.support.given_density import BLOCK
from tests.support.given_density import BOUNDS
from tests.support.given_density import CHAINS
from tests.support.given_density import SIZE
from tests.support.given_density import log_likelihoods
from tests.support.given_density import run
from tests.support.given_density import slopes

LOWER, UPPER = -np.logaddexp(0, 6 * BOUNDS), np.zeros(SIZE)
CHI = 0.02
OF_TUNA, OF_POISSON = 0.4, 0.8  # learning rates
# Of the log r of a kernel in float32.
TOLERANCE = 2e-3


@pytest.fixture(autouse=True)
def _plain_loops(monkeypatch):
    given_density.plain_loops(monkeypatch)


def arrivals(rate, weights, density, chain):
    """The examples of a batch whose blocks begin with part 2."""
    blocks = density.blocks[2:, :, chain].astype("float64")
    return oracle.arrivals(rate, weights, blocks, *batches.grid(SIZE))


def tuna_step(theta, density, chain, temperature):
    """The proposal, log r, and the number of examples."""
    batch = density.batch(1, chain)
    gradient = lambda t: moves.batch_gradient(slopes(t), -t, batch, temperature)  # noqa: E731
    here = gradient(theta)
    proposal = moves.langevin(theta, here, density.steps[0, chain], OF_TUNA)
    there = gradient(proposal)
    distance = np.linalg.norm(proposal - theta)
    total = BOUNDS.sum() / temperature
    rate = CHI * total**2 * distance**2 + total * distance
    found = arrivals(rate, BOUNDS, density, chain)
    log_ratio = oracle.tuna_log_ratio(
        found,
        log_likelihoods(theta),
        log_likelihoods(proposal),
        BOUNDS,
        distance,
        CHI,
        temperature,
    )
    log_ratio += moves.langevin_log_density(proposal, theta, there, OF_TUNA)
    log_ratio -= moves.langevin_log_density(theta, proposal, here, OF_TUNA)
    log_ratio += (theta @ theta - proposal @ proposal) / 2 / temperature
    return proposal, log_ratio, len(found) + len(batch)


def poisson_step(theta, density, chain, temperature, name, rate=7.0):
    """The proposal, log r, and the number of examples."""
    found = arrivals(
        rate + (UPPER - LOWER).sum() / temperature, UPPER - LOWER, density, chain
    )
    settings = LOWER, UPPER, rate, temperature
    counts = moves.poisson_counts(found, log_likelihoods(theta), *settings)

    def gradient(t):
        values = log_likelihoods(t)
        return moves.counts_gradient(counts, values, slopes(t), -t, *settings)

    here, normals = gradient(theta), density.steps[0, chain].astype("float64")
    if name == "langevin":
        proposal = moves.langevin(theta, here, normals, OF_POISSON)
        log_density = moves.langevin_log_density
    else:
        signs = density.blocks[1, 0, chain, :2]
        proposal = moves.barker(theta, here, normals, signs, OF_POISSON)
        log_density = moves.barker_log_density
    log_ratio = oracle.poisson_log_ratio(
        found, log_likelihoods(theta), log_likelihoods(proposal), *settings
    )
    log_ratio += log_density(proposal, theta, gradient(proposal), OF_POISSON)
    log_ratio -= log_density(theta, proposal, here, OF_POISSON)
    log_ratio += (theta @ theta - proposal @ proposal) / 2 / temperature
    return proposal, log_ratio, len(found)


def tuna(temperature):
    kernel = kernels.tuna(
        OF_TUNA,
        bounds=BOUNDS,
        chi=CHI,
        proposal="langevin",
        gradient_batch_size=6,
        temperature=temperature,
        block_size=BLOCK,
    )
    return kernel, tuna_step, ()


def poisson(name, temperature):
    kernel = kernels.poisson(
        OF_POISSON,
        lower=LOWER,
        upper=UPPER,
        poisson_rate=7.0,
        proposal=name,
        temperature=temperature,
        block_size=BLOCK,
    )
    return kernel, poisson_step, (name,)


MOVES = {
    "tuna of langevin": tuna,
    "poisson of barker": lambda temperature: poisson("barker", temperature),
    "poisson of langevin": lambda temperature: poisson("langevin", temperature),
}


def check(name, seed, temperature):
    """The log r of the kernel is that of the oracle, within the tolerance.

    A uniform just below exp(log r) accepts, and one just above it rejects.
    """
    kernel, step, options = MOVES[name](temperature)
    start, density, _, _ = run(kernel, seed)
    expected = [
        step(start[k], density, k, temperature, *options) for k in range(CHAINS)
    ]
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
@pytest.mark.parametrize("name", MOVES)
def test_steps_equal_the_oracle(name, temperature):
    log_ratios = np.array([check(name, seed, temperature) for seed in range(6)])
    # A move with a positive log r is accepted with both uniforms, which says little.
    assert np.sum(log_ratios < -TOLERANCE) > 6


def of_new_batch(monkeypatch):
    """A batch of the gradient that is drawn again for the way back."""
    calls = []

    def around(real, self, position, batch_size, part):
        calls.append(part)
        return real(self, position, batch_size, part + 50 * (len(calls) % 2))

    wrap(monkeypatch, given_density.Given, "gradient", around)


def of_new_arrivals(monkeypatch):
    """Arrivals that are drawn again for the test and the way back."""

    def around(real, density, rate, table, size, visit, gathered, first_block):
        first_block = first_block + 20 * isinstance(gathered, list)
        return real(density, rate, table, size, visit, gathered, first_block)

    wrap(monkeypatch, bounded, "visit_arrivals", around)


def of_drift(monkeypatch):
    """A drift that is twice as long, in the proposal alone."""
    wrap(
        monkeypatch,
        bounded,
        "langevin",
        lambda real, point, gradient, *args: real(
            point, [2.0 * g for g in gradient], *args
        ),
    )


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("tuna of langevin", of_new_batch),
        ("tuna of langevin", of_drift),
        ("poisson of barker", of_new_arrivals),
        ("poisson of langevin", of_new_arrivals),
    ],
)
def test_a_planted_bug_is_found(monkeypatch, name, plant):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        for seed in range(5):
            check(name, seed, 1.0)
