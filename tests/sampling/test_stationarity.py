"""Theory as oracle: chains that start in the target stay in it, or show their bias.

The target is that of MHBT on the weights and the mini-batch together, with a list of
eight mini-batches that are drawn with equal chances. The energy of batch I is
U_I(theta) = N (L |theta - c_I|^2 / 2 + h_I), so that the law exp(-U_I/T) on (theta, I)
is a mixture of Gaussians that can be drawn from exactly. Thousands of chains start
there, and after any number of steps each coordinate must still have the mixture's
distribution: a Kolmogorov-Smirnov test on independent values.
"""

import keras
import numpy as np
import pytest
import scipy.stats
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from tests.support.models import Drive
from tests.support.models import numpy
from tests.support.samplers import PAPER

CHAINS = 20000
DIMENSION = 2
N = 1000
TEMPERATURE = 50.0  # c_n = 20
PRECISION = 1.0
BATCHES = 8

_rng = np.random.default_rng(5)
CENTRES = _rng.normal(size=(BATCHES, DIMENSION)) * 0.15
LEVELS = _rng.uniform(0.0, 0.05, BATCHES)  # h_I: batches with unequal weights
_VARIANCE = TEMPERATURE / (N * PRECISION)
_WEIGHTS = np.exp(-N * LEVELS / TEMPERATURE)
_WEIGHTS /= _WEIGHTS.sum()


def draw_target(rng):
    """Exact draws of (theta, I)."""
    batches = rng.choice(BATCHES, CHAINS, p=_WEIGHTS)
    noise = rng.normal(size=(CHAINS, DIMENSION))
    return CENTRES[batches] + _VARIANCE**0.5 * noise, batches


def marginal(axis):
    """The distribution function of one coordinate of theta."""

    def cdf(x):
        z = (np.asarray(x)[:, None] - CENTRES[:, axis]) / _VARIANCE**0.5
        return scipy.stats.norm.cdf(z) @ _WEIGHTS

    return cdf


def energy_and_gradient(position, batches):
    """U_I(theta), shape (chains,), and the gradient of U_I/N."""
    centres = ops.take(
        ops.convert_to_tensor(CENTRES.astype("float32")), batches, axis=0
    )
    levels = ops.take(ops.convert_to_tensor(LEVELS.astype("float32")), batches, axis=0)
    offset = position - centres
    mean = 0.5 * PRECISION * ops.sum(ops.square(offset), axis=1) + levels
    return N * mean, PRECISION * offset


def run(proposal, learning_rate, steps, seed, refresh_every=None):
    """Positions after `steps` of MHBT, with all chains in one vectorised program."""
    rng = np.random.default_rng(seed)
    theta, batches = draw_target(rng)
    theta = ops.convert_to_tensor(theta.astype("float32"))
    energy, gradient = energy_and_gradient(theta, ops.convert_to_tensor(batches))

    def advance(theta, gradient, energy, normals, uniforms, batches, pending):
        rate = ops.ones((CHAINS,)) * learning_rate
        scales = proposals.Scales(
            *(ops.ones((CHAINS,)) * s for s in proposal.scales(rate, TEMPERATURE, N))
        )
        proposed, _ = proposal.propose(
            [theta], [gradient], [normals], uniforms[0], scales
        )
        proposed = [
            ops.where(pending[:, None] == acceptance.REFRESH, theta, proposed[0])
        ]
        new_energy, new_gradient = energy_and_gradient(proposed[0], batches)
        delta = tensors.subtract(proposed, [theta])
        log_q_ratio = proposal.log_q_ratio(delta, [gradient], [new_gradient], scales)
        state, info = acceptance.accept_or_reject(
            acceptance.Candidate([theta], [gradient], energy),
            acceptance.Candidate(proposed, [new_gradient], new_energy),
            pending,
            log_q_ratio,
            acceptance.was_modified(delta, pending),
            uniforms[1],
            temperature=TEMPERATURE,
        )
        return state.position[0], state.gradient[0], state.energy, info.accepted

    advance = _backend.compile_function(advance)
    accepted = []
    for count in range(steps):
        is_refresh = refresh_every is not None and count % refresh_every == 0
        kind = acceptance.REFRESH if is_refresh else acceptance.PROPOSAL
        theta, gradient, energy, accept = advance(
            theta,
            gradient,
            energy,
            ops.convert_to_tensor(rng.normal(size=(CHAINS, 2)).astype("float32")),
            ops.convert_to_tensor(rng.uniform(size=(2, CHAINS)).astype("float32")),
            ops.convert_to_tensor(rng.integers(0, BATCHES, CHAINS)),
            ops.full((CHAINS,), kind, dtype="int32"),
        )
        accepted.append(numpy(accept).mean())
    return numpy(theta), np.mean(accepted)


def smallest_p(theta):
    """The smaller p-value of the two coordinates."""
    return min(
        scipy.stats.kstest(theta[:, axis], marginal(axis)).pvalue for axis in (0, 1)
    )


EXACT = {
    "random_walk": (mh.proposals.RandomWalk(), 0.25),
    "langevin": (mh.proposals.Langevin(), 0.5),
    "langevin_cooler_noise": (mh.proposals.Langevin(noise_temperature=25.0), 0.4),
    "reversible_1.5": (
        mh.proposals.ReversibleLangevin(1.5, TEMPERATURE, normalized=True),
        0.3,
    ),
    "reversible_3": (
        mh.proposals.ReversibleLangevin(3.0, TEMPERATURE, normalized=True),
        0.3,
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_chains_that_start_in_the_target_stay_there(name):
    proposal, learning_rate = EXACT[name]
    theta, acceptance = run(proposal, learning_rate, steps=40, seed=11)
    assert 0.1 < acceptance < 0.95
    assert smallest_p(theta) > 1e-3


def test_refreshes_keep_the_target():
    proposal, learning_rate = EXACT["langevin"]
    theta, _ = run(proposal, learning_rate, steps=40, seed=12, refresh_every=2)
    assert smallest_p(theta) > 1e-3


@pytest.mark.parametrize("beta", [2.0, 3.0])
def test_the_papers_ratio_misses_the_target(beta):
    """Without its normalising constants the law is too narrow: 0.83 to 0.72."""
    proposal = mh.proposals.ReversibleLangevin(beta, TEMPERATURE, normalized=False)
    theta, _ = run(proposal, 0.3, steps=100, seed=13)
    assert smallest_p(theta) < 1e-6
    assert theta.var() < 0.9 * draw_target(np.random.default_rng(1))[0].var()


class Wrong(mh.proposals.Langevin):
    """Planted bug: the ratio of the densities upside down."""

    def log_q_ratio(self, *args, **options):
        return -super().log_q_ratio(*args, **options)


class Symmetric(mh.proposals.Langevin):
    """Planted bug: the drift is taken for symmetric."""

    def log_q_ratio(self, *args, **options):
        return 0.0 * super().log_q_ratio(*args, **options)


@pytest.mark.parametrize("bug", [Wrong, Symmetric])
def test_a_planted_bug_in_the_ratio_is_caught(bug):
    theta, _ = run(bug(), 0.5, steps=40, seed=11)
    assert smallest_p(theta) < 1e-6


def test_a_planted_bug_in_the_temperature_is_caught(monkeypatch):
    decide = acceptance.accept_or_reject

    def hotter(*args, temperature):
        return decide(*args, temperature=1.3 * temperature)

    monkeypatch.setattr(acceptance, "accept_or_reject", hotter)
    theta, _ = run(*EXACT["random_walk"], steps=60, seed=11)
    assert smallest_p(theta) < 1e-6


WEIGHTS = 4000


def test_psgld_has_unit_temperature_in_its_metric():
    """With a second moment that has settled it is SGLD with a step of its own.

    The preconditioner of each weight follows its own gradient; with decay near 1 it is
    a constant, the root mean square of the gradient.
    """
    size, precision = 50, 4.0
    optimizer = mh.PSGLD(0.1, train_size=size, decay=0.999, epsilon=1e-3, seed=1)
    drive = Drive(optimizer, np.random.default_rng(2).normal(size=WEIGHTS) * 0.5)
    gradient_rms = precision * 0.5 / size
    optimizer.slots.second_moment[0].assign(
        np.full(WEIGHTS, gradient_rms**2, "float32")
    )
    for _ in range(400):
        drive.step(0.0, precision * drive.point() / size)
    values = drive.point().astype("float64")
    effective = 0.1 / (gradient_rms + 1e-3) / size * precision
    assert 0.1 < effective < 0.5
    expected = 1.0 / (precision * (1.0 - effective / 2.0))
    assert abs((values**2).mean() / expected - 1.0) < 0.08


@pytest.mark.slow_on("torch", "tensorflow")
def test_rsgld_samples_a_conjugate_posterior_through_fit():
    """End to end: the tempered posterior of a mean, by `fit` and `PosteriorSamples`."""
    rng = np.random.default_rng(4)
    size, noise, temperature, scale = 200, 0.5, 4.0, 0.3
    y = (0.7 + noise * rng.normal(size=size)).astype("float32")
    total = float(y.sum())
    x = np.ones((size, 1), "float32")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(
        optimizer=mh.RSGLD(
            0.1,
            train_size=size,
            batch_size=size,
            temperature=temperature,
            beta=1.5,
            beta_adaptation=None,
            noise_temperature=temperature,
            normalized=True,
            **PAPER,
            prior=mh.priors.Gaussian(scale),
            seed=6,
        ),
        loss=mh.losses.GaussianNLL(noise_std=noise),
    )
    posterior = mh.PosteriorSamples(burn_in=100, every=5)
    # Every batch is the whole data set.
    x, y = np.tile(x, (1000, 1)), np.tile(y, 1000)
    model.fit(
        x, y, batch_size=size, epochs=4, shuffle=False, verbose=0, callbacks=[posterior]
    )
    draws = posterior._store.read(model)[0].ravel().astype("float64")

    precision = (size / noise**2 + 1.0 / scale**2) / temperature
    mean = total / noise**2 / temperature / precision
    effective = effective_sample_size(draws)
    assert effective > 100
    error = (1.0 / precision / effective) ** 0.5
    assert abs(draws.mean() - mean) < 4.0 * error
    ratio = draws.var() * precision
    assert abs(ratio - 1.0) < 4.0 * (2.0 / effective) ** 0.5


def effective_sample_size(draws):
    """Effective sample size of one chain by ArviZ."""
    import arviz

    return float(arviz.ess(draws[None]))
