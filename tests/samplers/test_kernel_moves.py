"""The density ratios of moves, against the densities themselves."""

import math

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from tests.oracles import moves as oracle
from tests.support.kernel_tools import PROPOSALS
from tests.support.kernel_tools import a_move
from tests.support.kernel_tools import assert_ratio
from tests.support.kernel_tools import draw
from tests.support.kernel_tools import float32
from tests.support.kernel_tools import kernel_ratio
from tests.support.kernel_tools import split
from tests.support.kernel_tools import tensor

# d, epsilon, s, beta: short and long moves, weak and strong gradients.
DENSITY_SETTINGS = [
    (3, 0.3, 0.5, 1.0),
    (3, 0.3, 0.5, 2.0),
    (3, 0.3, 0.05, 4.0),
    (50, 0.1, 0.3, 1.5),
    (50, 0.1, 0.02, 5.0),
    (1000, 0.01, 0.1, 1.01),
    (1000, 0.3, 0.1, 3.0),
    (1000, 0.3, 0.05, 30.0),
    (10000, 0.01, 0.05, 1.2),
    (10000, 0.1, 0.05, 2.0),
    (10000, 0.3, 0.1, 20.0),
]


@pytest.mark.parametrize("forward_probability", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("d", "step", "noise", "beta"), DENSITY_SETTINGS)
def test_reversible_ratio_is_that_of_the_mixture_densities(
    d, step, noise, beta, normalized, forward, forward_probability
):
    step, noise, beta = (float(float32(value)) for value in (step, noise, beta))
    gradient, end, new_gradient = move = a_move(d, step, noise, beta, forward, seed=d)
    drawn = step, noise, beta, normalized, forward_probability
    expected = oracle.reversible_log_ratio(
        np.zeros(d), gradient, end, new_gradient, *drawn
    )
    assert_ratio(kernel_ratio(move, *drawn)[0], expected)


@pytest.mark.parametrize(("d", "step", "noise", "beta"), DENSITY_SETTINGS)
def test_langevin_ratio_is_that_of_the_normal_densities(d, step, noise, beta):
    step, noise = (float(float32(value)) for value in (step, noise))
    gradient, end, new_gradient = move = a_move(d, step, noise, 1.0, True, seed=d + 1)
    expected = oracle.langevin_log_ratio(
        np.zeros(d), gradient, end, new_gradient, step, noise
    )
    assert_ratio(kernel_ratio(move, step, noise, beta, False)[1], expected)


def test_ratio_takes_many_betas_at_once():
    gradient, end, new_gradient = a_move(50, 0.1, 0.3, 1.5, True, seed=10)
    scales = proposals.Scales(tensor(0.1), tensor(0.3), tensor(1.5))
    lists = [split(x, 50) for x in (end, gradient, new_gradient)]
    squared_distances = proposals.squared_distances(*lists, scales)
    betas = np.array([1.0, 1.5, 4.0, 100.0])
    actual = proposals.reversible_log_ratio(
        squared_distances, tensor(betas), 50, True, 0.5
    )
    expected = [
        oracle.reversible_log_ratio(
            np.zeros(50), gradient, end, new_gradient, 0.1, 0.3, beta, True
        )
        for beta in betas
    ]
    np.testing.assert_allclose(ops.convert_to_numpy(actual), expected, rtol=1e-4)


def kernel_limit(move, step, noise):
    gradient, end, new_gradient = move
    scales = proposals.Scales(tensor(step), tensor(noise), tensor(1.0))
    lists = [split(x, len(gradient)) for x in (end, gradient, new_gradient)]
    return float(
        proposals.strong_gradient_limit(proposals.squared_distances(*lists, scales))
    )


# x = 2 epsilon |grad| / (s sqrt(d)), the bound of the paper's Proposition 1, case 1.
@pytest.mark.parametrize("x", [1e4, 100.0, 20.0, 3.0, 0.7, 0.1])
def test_strong_gradient_limit_is_that_of_proposition_one_if_gradients_are_long(x):
    d, step, noise = 10000, 0.1, 0.05
    rng = np.random.default_rng(11)
    gradient = rng.normal(size=d)
    gradient *= x * noise * math.sqrt(d) / (2 * step * np.linalg.norm(gradient))
    gradient = gradient.astype("float32").astype("float64")
    start = np.zeros(d)
    end, _ = oracle.reversible(
        start, gradient, rng.normal(size=d), 0.1, step, noise, 1.0
    )
    end = end.astype("float32").astype("float64")
    limit = kernel_limit((gradient, end, gradient), step, noise)
    # Two chi-squares of 10000 degrees of freedom: each varies by 1.4%.
    assert limit == pytest.approx(math.sqrt(1 + x**2), rel=0.03)
    if x >= 20:
        assert limit == pytest.approx(x, rel=0.03)
    seen = oracle.strong_gradient_limit(start, gradient, end, step, noise)
    assert limit == pytest.approx(seen, rel=1e-3 if x > 1e3 else 1e-4)
    assert limit - 1.0 == pytest.approx(seen - 1.0, rel=1e-3)


def test_strong_gradient_limit_is_one_without_gradient_and_without_noise():
    move = a_move(50, 0.1, 0.3, 1.0, True, seed=13)
    assert kernel_limit((0 * move[0], *move[1:]), 0.1, 0.3) == 1.0
    assert kernel_limit(a_move(50, 0.0, 0.0, 1.0, True, seed=13), 0.0, 0.0) == 1.0


def test_strong_gradient_beta_is_half_the_limit_of_proposition_one():
    d, step, noise = 10000, 0.1, 0.05
    gradient, _, _ = a_move(d, step, noise, 1.0, True, seed=11)
    scales = proposals.Scales(tensor(step), tensor(noise), tensor(1.0))
    guess = proposals.strong_gradient_beta(split(gradient, d), scales, scales.noise)
    guess = float(guess)
    length = np.linalg.norm(gradient)
    assert guess == pytest.approx(step * length / (noise * math.sqrt(d)), rel=1e-4)


def test_strong_gradient_beta_is_at_least_one_and_finite_without_noise():
    gradient = [tensor([1e-6, 1e-6])]
    weak = proposals.Scales(tensor(0.1), tensor(1.0), tensor(0.0))
    still = proposals.Scales(tensor(0.0), tensor(0.0), tensor(0.0))
    for scales in (weak, still):
        assert float(proposals.strong_gradient_beta(gradient, scales, tensor(0.0))) == 1


@pytest.mark.parametrize("normalized", [True, False])
def test_a_move_of_nothing_has_ratio_zero(normalized):
    # A learning rate of zero: no step, no noise, and the gradients stay in the formula.
    move = a_move(50, 0.0, 0.0, 2.0, True, seed=12)
    ratio, langevin_ratio = kernel_ratio(move, 0.0, 0.0, 2.0, normalized)
    assert ratio == 0.0
    assert langevin_ratio == 0.0


@pytest.mark.parametrize("uniform", [0.25, 0.75])
@pytest.mark.parametrize("name", PROPOSALS)
def test_a_proposal_draws_from_the_density_that_its_ratio_is_about(name, uniform):
    rate, temperature, train_size, d = 0.1, 4.0, 20, 5
    rng = np.random.default_rng(13)
    start, gradient, new_gradient, normals = draw(rng, [(d,)] * 4)
    proposal = PROPOSALS[name]
    scales = proposal.scales(tensor(rate), temperature, train_size)
    end, forward = proposal.propose(
        [tensor(start)], [tensor(gradient)], [tensor(normals)], tensor(uniform), scales
    )
    delta = tensors.subtract(end, [tensor(start)])
    end = ops.convert_to_numpy(end[0]).astype("float64")
    ratio = proposal.log_q_ratio(
        delta, [tensor(gradient)], [tensor(new_gradient)], scales
    )

    moved = start, gradient, end, new_gradient
    if name == "random walk":
        expected = oracle.random_walk(start, normals, rate)
        log_q_ratio = oracle.log_q_random_walk(end, start, rate)
        log_q_ratio -= oracle.log_q_random_walk(start, end, rate)
    elif name.startswith("Langevin"):
        noise_temperature = 0.01 if "own" in name else temperature
        noise = math.sqrt(2 * rate * noise_temperature / train_size)
        expected = oracle.langevin(start, gradient, normals, rate, noise)
        log_q_ratio = oracle.langevin_log_ratio(*moved, rate, noise)
    else:
        noise_temperature = 0.5 if "own" in name else 1 / train_size
        noise = math.sqrt(2 * rate * noise_temperature / train_size)
        forward_probability = 0.9 if "mostly" in name else 0.5
        expected, way = oracle.reversible(
            start, gradient, normals, uniform, rate, noise, 2.0, forward_probability
        )
        log_q_ratio = oracle.reversible_log_ratio(
            *moved, rate, noise, 2.0, "own" in name, forward_probability
        )
        assert bool(forward) == way
    if not proposal.has_backward:
        assert bool(forward)
    np.testing.assert_allclose(end, expected, rtol=1e-5, atol=1e-6)
    assert float(ratio) == pytest.approx(log_q_ratio, rel=1e-4, abs=1e-5)
