"""The kernels against float64 oracles with the same draws, and their edge cases."""

import math

import numpy as np
import pytest
from keras import ops
from oracles import moves as oracle
from oracles import steps

from keras_mhmcmc import proposals
from keras_mhmcmc.kernels import hamiltonian
from keras_mhmcmc.kernels import langevin
from keras_mhmcmc.kernels import metropolis
from keras_mhmcmc.kernels import moves
from keras_mhmcmc.kernels import tensors

SHAPES = [(3,), (2, 4), (), (1, 2, 3, 2)]


def tensor(value, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(value, dtype))


def float32(value):
    """`value` rounded to float32, as float64: what both sides of a test work on."""
    return np.asarray(value, "float32").astype("float64")


def draw(rng, shapes=SHAPES, scale=1.0):
    return [float32(scale * rng.normal(size=shape)) for shape in shapes]


def tensors_of(arrays):
    return [tensor(array) for array in arrays]


def assert_close(actual, expected, rtol=1e-5, atol=2e-6):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        a = ops.convert_to_numpy(a)
        assert a.shape == np.shape(e)
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol)


# Steps without acceptance.

STEP_SETTINGS = [
    dict(learning_rate=0.3, temperature=1.0, train_size=7),
    dict(learning_rate=2.0, temperature=0.25, train_size=1),
    dict(learning_rate=0.3, temperature=0.0, train_size=7),
    dict(learning_rate=0.0, temperature=1.0, train_size=7),
]


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_sgld_step_equals_the_oracle(settings, as_tensor):
    rng = np.random.default_rng(1)
    position, gradient, normals = (draw(rng) for _ in range(3))
    expected = steps.sgld_step(position, gradient, normals, **settings)
    if as_tensor:
        settings = settings | {"learning_rate": tensor(settings["learning_rate"])}
    actual = langevin.sgld_step(
        *map(tensors_of, (position, gradient, normals)), **settings
    )
    assert_close(actual, expected)


@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_psgld_step_equals_the_oracle(settings):
    rng = np.random.default_rng(2)
    position, gradient, normals = (draw(rng) for _ in range(3))
    moment = [np.abs(v) for v in draw(rng)]
    settings = settings | {"decay": 0.7, "epsilon": 0.1}
    expected = steps.psgld_step(position, moment, gradient, normals, **settings)
    actual = langevin.psgld_step(
        *map(tensors_of, (position, moment, gradient, normals)), **settings
    )
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_sghmc_step_equals_the_oracle(settings, momentum):
    rng = np.random.default_rng(3)
    position, velocity, gradient, normals = (draw(rng) for _ in range(4))
    settings = settings | {"momentum": momentum}
    expected = steps.sghmc_step(position, velocity, gradient, normals, **settings)
    actual = hamiltonian.sghmc_step(
        *map(tensors_of, (position, velocity, gradient, normals)), **settings
    )
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])


def test_sghmc_without_momentum_is_sgld():
    rng = np.random.default_rng(4)
    position, velocity, gradient, normals = (tensors_of(draw(rng)) for _ in range(4))
    settings = dict(learning_rate=0.3, temperature=0.5, train_size=3)
    moved, _ = hamiltonian.sghmc_step(
        position, velocity, gradient, normals, momentum=0.0, **settings
    )
    expected = langevin.sgld_step(position, gradient, normals, **settings)
    assert_close(moved, [ops.convert_to_numpy(x) for x in expected])


# Proposals.


@pytest.mark.parametrize("uniform", [0.0, 0.49999, 0.5, 0.99999])
def test_proposed_positions_equal_the_oracle(uniform):
    rng = np.random.default_rng(5)
    position, gradient, normals = (draw(rng) for _ in range(3))
    step, noise, beta = 0.3, 0.2, 3.0
    scales = moves.Scales(tensor(step), tensor(noise), tensor(beta))
    there = [tensors_of(position), tensors_of(gradient), tensors_of(normals)]
    triples = list(zip(position, gradient, normals, strict=True))

    walked = moves.random_walk(there[0], there[2], scales)
    assert_close(walked, [oracle.random_walk(x, z, noise) for x, _, z in triples])

    moved = moves.langevin(*there, scales)
    assert_close(moved, [oracle.langevin(x, g, z, step, noise) for x, g, z in triples])

    moved, forward = moves.reversible(*there, tensor(uniform), scales)
    expected = [
        oracle.reversible(x, g, z, uniform, step, noise, beta) for x, g, z in triples
    ]
    assert_close(moved, [x for x, _ in expected])
    assert bool(forward) == expected[0][1] == (uniform < 0.5)


# Density ratios. A move is drawn by the oracle from the origin, so that its Delta is a
# float32 vector and both sides see the same numbers.


def a_move(d, step, noise, beta, forward, seed, curvature=0.3):
    rng = np.random.default_rng(seed)
    gradient = float32(rng.normal(size=d) + 0.2)
    new_gradient = float32((1 - curvature) * gradient + 0.2 * rng.normal(size=d))
    uniform = 0.25 if forward else 0.75
    end, _ = oracle.reversible(
        np.zeros(d), gradient, rng.normal(size=d), uniform, step, noise, beta
    )
    return gradient, float32(end), new_gradient


def split(vector, d):
    """A vector as a list of tensors of several shapes."""
    if d < 6:
        return [tensor(vector[:1].reshape(())), tensor(vector[1:])]
    return [tensor(vector[:2].reshape(2, 1)), tensor(vector[2:6]), tensor(vector[6:])]


def kernel_ratio(move, step, noise, beta, normalized):
    gradient, end, new_gradient = move
    d = len(end)
    scales = moves.Scales(*(tensor(s) for s in (step, noise, beta)))
    lists = [split(x, d) for x in (end, gradient, new_gradient)]
    residuals = moves.residuals(*lists, scales)
    ratio = moves.reversible_log_ratio(residuals, scales.beta, d, normalized)
    return float(ratio), float(moves.langevin_log_ratio(*lists, scales))


def assert_ratio(actual, expected):
    assert abs(actual - expected) <= max(1e-2, 1e-5 * abs(expected))


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


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("d", "step", "noise", "beta"), DENSITY_SETTINGS)
def test_reversible_ratio_is_that_of_the_mixture_densities(
    d, step, noise, beta, normalized, forward
):
    step, noise, beta = (float(float32(value)) for value in (step, noise, beta))
    gradient, end, new_gradient = move = a_move(d, step, noise, beta, forward, seed=d)
    expected = oracle.reversible_log_ratio(
        np.zeros(d), gradient, end, new_gradient, step, noise, beta, normalized
    )
    assert_ratio(kernel_ratio(move, step, noise, beta, normalized)[0], expected)


@pytest.mark.parametrize(("d", "step", "noise", "beta"), DENSITY_SETTINGS)
def test_langevin_ratio_is_that_of_the_normal_densities(d, step, noise, beta):
    step, noise = (float(float32(value)) for value in (step, noise))
    gradient, end, new_gradient = move = a_move(d, step, noise, 1.0, True, seed=d + 1)
    expected = oracle.langevin_log_ratio(
        np.zeros(d), gradient, end, new_gradient, step, noise
    )
    assert_ratio(kernel_ratio(move, step, noise, beta, False)[1], expected)


@pytest.mark.parametrize("normalized", [True, False])
def test_terms_of_a_hundred_thousand_nats_keep_their_digits(normalized):
    # The gradient at the end points elsewhere, so that neither way back is a near one.
    d, step, noise, beta = 10000, 0.25, 0.03125, 1.5
    gradient, end, new_gradient = move = a_move(
        d, step, noise, beta, True, seed=6, curvature=1.0
    )
    arguments = np.zeros(d), gradient, end, new_gradient, step, noise, beta
    expected = oracle.reversible_log_ratio(*arguments, normalized)
    assert expected < -1e5
    assert oracle.langevin_log_ratio(*arguments[:-1]) < -1e5
    ratio, langevin_ratio = kernel_ratio(move, step, noise, beta, normalized)
    assert_ratio(ratio, expected)
    assert_ratio(langevin_ratio, oracle.langevin_log_ratio(*arguments[:-1]))


def test_unnormalized_ratio_differs_from_the_normalized_one_where_beta_matters():
    move = a_move(50, 0.1, 0.3, 1.5, True, seed=7)
    exact, _ = kernel_ratio(move, 0.1, 0.3, 1.5, True)
    paper, _ = kernel_ratio(move, 0.1, 0.3, 1.5, False)
    assert abs(exact - paper) > 0.1


def test_with_beta_one_the_constants_do_not_matter():
    move = a_move(50, 0.1, 0.3, 1.0, True, seed=8)
    exact, _ = kernel_ratio(move, 0.1, 0.3, 1.0, True)
    paper, _ = kernel_ratio(move, 0.1, 0.3, 1.0, False)
    assert exact == pytest.approx(paper, abs=1e-5)


@pytest.mark.parametrize("normalized", [True, False])
def test_ratio_of_the_way_back_is_minus_the_ratio_of_the_way_there(normalized):
    gradient, end, new_gradient = a_move(50, 0.1, 0.3, 1.5, True, seed=9)
    there = kernel_ratio((gradient, end, new_gradient), 0.1, 0.3, 1.5, normalized)
    back = kernel_ratio((new_gradient, -end, gradient), 0.1, 0.3, 1.5, normalized)
    assert there[0] == pytest.approx(-back[0], rel=1e-5)
    assert there[1] == pytest.approx(-back[1], rel=1e-5)


def test_ratio_takes_many_betas_at_once():
    gradient, end, new_gradient = a_move(50, 0.1, 0.3, 1.5, True, seed=10)
    scales = moves.Scales(tensor(0.1), tensor(0.3), tensor(1.5))
    lists = [split(x, 50) for x in (end, gradient, new_gradient)]
    residuals = moves.residuals(*lists, scales)
    betas = np.array([1.0, 1.5, 4.0, 100.0])
    actual = moves.reversible_log_ratio(residuals, tensor(betas), 50, True)
    expected = [
        oracle.reversible_log_ratio(
            np.zeros(50), gradient, end, new_gradient, 0.1, 0.3, beta, True
        )
        for beta in betas
    ]
    np.testing.assert_allclose(ops.convert_to_numpy(actual), expected, rtol=1e-4)


def kernel_limit(move, step, noise):
    gradient, end, new_gradient = move
    scales = moves.Scales(tensor(step), tensor(noise), tensor(1.0))
    lists = [split(x, len(gradient)) for x in (end, gradient, new_gradient)]
    return float(moves.strong_gradient_limit(moves.residuals(*lists, scales)))


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


# |Delta - epsilon grad| / |Delta + epsilon grad| with epsilon grad = (2, 0).
@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ([-2.0, 1.0], math.sqrt(17.0)),  # (-4, 1) and (0, 1)
        ([-4.0, 0.0], 3.0),  # (-6, 0) and (-2, 0)
        ([0.0, 5.0], 1.0),  # as far from both
        ([2.0, 1.0], 1.0),  # (0, 1) and (4, 1): a move up is not in the regime
        ([2.0, 0.0], 1.0),
    ],
)
def test_strong_gradient_limit_of_moves_in_the_plane(end, expected, noise):
    gradient, end = np.array([4.0, 0.0]), np.array(end)
    seen = oracle.strong_gradient_limit(np.zeros(2), gradient, end, 0.5, noise)
    assert seen == pytest.approx(expected, rel=1e-9)
    limit = kernel_limit((gradient, end, -gradient), 0.5, noise)
    assert limit == pytest.approx(expected, rel=1e-6)


def test_strong_gradient_limit_is_one_without_gradient_and_without_noise():
    move = a_move(50, 0.1, 0.3, 1.0, True, seed=13)
    assert kernel_limit((0 * move[0], *move[1:]), 0.1, 0.3) == 1.0
    assert kernel_limit(a_move(50, 0.0, 0.0, 1.0, True, seed=13), 0.0, 0.0) == 1.0


def test_strong_gradient_limit_is_where_both_directions_explain_a_move_equally():
    # The mixture of two equal densities is each of them.
    gradient, end, new_gradient = a_move(50, 0.1, 0.3, 1.0, True, seed=14)
    limit = kernel_limit((gradient, end, new_gradient), 0.1, 0.3)
    assert limit > 1.01
    down = oracle.log_normal(end, -0.1 * gradient, 0.3, False)
    at_limit = oracle.log_q_reversible(
        np.zeros(50), gradient, end, 0.1, 0.3, limit, False
    )
    assert at_limit == pytest.approx(down, abs=1e-4)


def test_strong_gradient_beta_is_half_the_limit_of_proposition_one():
    d, step, noise = 10000, 0.1, 0.05
    gradient, _, _ = a_move(d, step, noise, 1.0, True, seed=11)
    scales = moves.Scales(tensor(step), tensor(noise), tensor(1.0))
    guess = float(moves.strong_gradient_beta(split(gradient, d), scales))
    length = np.linalg.norm(gradient)
    assert guess == pytest.approx(step * length / (noise * math.sqrt(d)), rel=1e-4)


def test_strong_gradient_beta_is_at_least_one_and_finite_without_noise():
    gradient = [tensor([1e-6, 1e-6])]
    weak = moves.Scales(tensor(0.1), tensor(1.0), tensor(0.0))
    still = moves.Scales(tensor(0.0), tensor(0.0), tensor(0.0))
    assert float(moves.strong_gradient_beta(gradient, weak)) == 1.0
    assert float(moves.strong_gradient_beta(gradient, still)) == 1.0


@pytest.mark.parametrize("normalized", [True, False])
def test_a_move_of_nothing_has_ratio_zero(normalized):
    # A learning rate of zero: no step, no noise, and the gradients stay in the formula.
    move = a_move(50, 0.0, 0.0, 2.0, True, seed=12)
    ratio, langevin_ratio = kernel_ratio(move, 0.0, 0.0, 2.0, normalized)
    assert ratio == 0.0
    assert langevin_ratio == 0.0


# The proposals that users choose, from `learning_rate` to the ratio.

PROPOSALS = {
    "random walk": proposals.RandomWalk(),
    "Langevin": proposals.Langevin(),
    "Langevin, own noise": proposals.Langevin(noise_temperature=0.01),
    "reversible": proposals.ReversibleLangevin(2.0),
    "reversible, own noise": proposals.ReversibleLangevin(2.0, 0.5, normalized=True),
}


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
    ratio = proposal.log_ratio(
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
        expected, way = oracle.reversible(
            start, gradient, normals, uniform, rate, noise, 2.0
        )
        log_q_ratio = oracle.reversible_log_ratio(
            *moved, rate, noise, 2.0, normalized="own" in name
        )
        assert bool(forward) == way
    if not proposal.has_backward:
        assert bool(forward)
    np.testing.assert_allclose(end, expected, rtol=1e-5, atol=1e-6)
    assert float(ratio) == pytest.approx(log_q_ratio, rel=1e-4, abs=1e-5)


# The chain axis: K chains at once are K separate calls.

K = 3
CHAIN_SHAPES = [(K,), (K, 4), (K, 2, 3)]


def chains(rng):
    return draw(rng, CHAIN_SHAPES)


def chain(arrays, k):
    return [tensor(array[k]) for array in arrays]


def assert_chains_equal(together, separate, rtol=1e-6, atol=1e-6):
    """Lists of tensors with a chain axis against one list for each chain."""
    for k, own in enumerate(separate):
        for t, o in zip(together, own, strict=True):
            np.testing.assert_allclose(
                ops.convert_to_numpy(t)[k], ops.convert_to_numpy(o), rtol, atol
            )


def test_list_algebra_with_a_chain_axis_is_one_call_for_each_chain():
    rng = np.random.default_rng(14)
    xs, ys, a = chains(rng), chains(rng), float32([0.5, -2.0, 0.0])
    condition = np.array([True, False, True])
    added = tensors.add_scaled(tensors_of(xs), tensor(a), tensors_of(ys))
    chosen = tensors.select(tensor(condition, "bool"), tensors_of(xs), tensors_of(ys))
    squares = tensors.sum_squares(tensors_of(xs), chains=True)
    assert tuple(ops.shape(squares)) == (K,)
    assert tensors.size(tensors_of(xs), chains=True) == 1 + 4 + 6
    assert tensors.size(chain(xs, 0)) == 1 + 4 + 6
    for k in range(K):
        x, y = chain(xs, k), chain(ys, k)
        assert_close(
            [t[k] for t in added],
            [ops.convert_to_numpy(t) for t in tensors.add_scaled(x, tensor(a[k]), y)],
        )
        assert_close(
            [t[k] for t in chosen],
            [
                ops.convert_to_numpy(t)
                for t in tensors.select(tensor(condition[k], "bool"), x, y)
            ],
            rtol=0,
            atol=0,
        )
        expected = sum(np.sum(x[k] ** 2) for x in xs)
        assert float(squares[k]) == pytest.approx(expected, rel=1e-5)
        assert float(tensors.sum_squares(x)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("has_chains", [False, True])
def test_squares_of_half_precision_weights_are_summed_in_float32(has_chains):
    ones = ops.cast(ops.ones((1, 1001)), "bfloat16")
    total = tensors.sum_squares([ones], chains=has_chains)
    assert float(ops.reshape(ops.cast(total, "float32"), ())) == 1001.0


def test_steps_take_one_learning_rate_and_temperature_for_each_chain():
    rng = np.random.default_rng(15)
    x, v, g, z = (chains(rng) for _ in range(4))
    moment = [np.abs(array) for array in v]
    rates, temperatures = [0.1, 0.3, 0.7], [1.0, 0.0, 4.0]

    def run(pick, rate, temperature):
        settings = dict(
            learning_rate=tensor(rate), temperature=tensor(temperature), train_size=5
        )
        here = [pick(array) for array in (x, v, moment, g, z)]
        sgld = langevin.sgld_step(here[0], here[3], here[4], **settings)
        psgld, second = langevin.psgld_step(
            here[0], *here[2:], decay=0.9, epsilon=0.1, **settings
        )
        position, velocity = hamiltonian.sghmc_step(
            here[0], here[1], *here[3:], momentum=0.8, **settings
        )
        return [*sgld, *psgld, *second, *position, *velocity]

    together = run(tensors_of, rates, temperatures)
    separate = [
        run(lambda arrays, k=k: chain(arrays, k), rates[k], temperatures[k])
        for k in range(K)
    ]
    assert_chains_equal(together, separate)


def test_moves_and_their_ratios_are_those_of_each_chain():
    rng = np.random.default_rng(16)
    x, g, new, z = (chains(rng) for _ in range(4))
    step, noise, beta = [0.1, 0.3, 0.5], [0.2, 0.1, 0.4], [1.0, 2.0, 5.0]
    uniform = [0.2, 0.8, 0.4]

    def run(pick, uniform, step, noise, beta, has_chains):
        scales = moves.Scales(tensor(step), tensor(noise), tensor(beta))
        here = [pick(array) for array in (x, g, new, z)]
        walked = moves.random_walk(here[0], here[3], scales)
        moved = moves.langevin(here[0], here[1], here[3], scales)
        tried, forward = moves.reversible(
            here[0], here[1], here[3], tensor(uniform), scales
        )
        delta = tensors.subtract(tried, here[0])
        ratio = moves.langevin_log_ratio(
            delta, here[1], here[2], scales, chains=has_chains
        )
        residuals = moves.residuals(delta, here[1], here[2], scales, chains=has_chains)
        d = tensors.size(delta, chains=has_chains)
        ratios = [
            moves.reversible_log_ratio(residuals, scales.beta, d, normalized)
            for normalized in (True, False)
        ]
        limit = moves.strong_gradient_limit(residuals)
        guess = moves.strong_gradient_beta(here[1], scales, chains=has_chains)
        return [
            *walked, *moved, *tried, forward, ratio, *residuals, *ratios, limit, guess
        ]  # fmt: skip

    together = run(tensors_of, uniform, step, noise, beta, True)
    separate = [
        run(
            lambda arrays, k=k: chain(arrays, k),
            uniform[k],
            step[k],
            noise[k],
            beta[k],
            False,
        )
        for k in range(K)
    ]
    assert_chains_equal(together, separate, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROPOSALS)
def test_a_proposal_gives_each_chain_its_own_ratio(name):
    rng = np.random.default_rng(17)
    x, g, new, z = (chains(rng) for _ in range(4))
    proposal, uniform = PROPOSALS[name], [0.2, 0.8, 0.4]

    def run(pick, uniform, has_chains):
        scales = proposal.scales(tensor(0.1), 2.0, 10)
        here = [pick(array) for array in (x, g, new, z)]
        end, forward = proposal.propose(
            here[0], here[1], here[3], tensor(uniform), scales
        )
        delta = tensors.subtract(end, here[0])
        ratio = proposal.log_ratio(delta, here[1], here[2], scales, has_chains)
        return [*end, forward, ratio]

    together = run(tensors_of, uniform, True)
    # The symmetric ratio is one number for all chains.
    together[-1] = ops.broadcast_to(together[-1], (K,))
    separate = [
        run(lambda arrays, k=k: chain(arrays, k), uniform[k], False) for k in range(K)
    ]
    assert_chains_equal(together, separate, rtol=1e-4, atol=1e-4)


def test_a_refresh_that_moved_is_told_for_each_chain():
    delta = [tensor([[0.0, 0.0], [0.0, 1e-3], [1.0, 0.0], [0.0, 0.0]])]
    pending = tensor([2, 2, 1, 0], "int32")
    told = ops.convert_to_numpy(metropolis.moved(delta, pending, chains=True))
    assert told.tolist() == [False, True, False, False]
    for k in range(4):
        alone = metropolis.moved([delta[0][k]], pending[k])
        assert bool(alone) == told[k]


# The decision.


def a_state(rng, energy):
    return metropolis.State(
        tensors_of(draw(rng)), tensors_of(draw(rng)), tensor(energy)
    )


def decide(
    old, new, pending, log_q_ratio=0.0, restart=False, uniform=0.5, temperature=1.0
):
    return metropolis.decide(
        old,
        new,
        tensor(pending, "int32"),
        tensor(log_q_ratio),
        tensor(restart, "bool"),
        tensor(uniform),
        temperature=temperature,
    )


def assert_same(actual, expected):
    """Bitwise equality of two states."""
    for a, e in zip(
        [*actual.position, *actual.gradient, actual.energy],
        [*expected.position, *expected.gradient, expected.energy],
        strict=True,
    ):
        np.testing.assert_array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(e))


def two_states(energy=10.0, new_energy=11.0):
    rng = np.random.default_rng(18)
    return a_state(rng, energy), a_state(rng, new_energy)


def flags(info):
    names = ("accepted", "proposed", "finite", "has_state")
    return {name: bool(getattr(info, name)) for name in names}


@pytest.mark.parametrize("temperature", [1.0, 50.0])
@pytest.mark.parametrize(
    ("energy", "new_energy", "log_q_ratio"),
    [(10.0, 11.0, 0.3), (1e5, 1e5 + 40.0, 38.5), (-3.0, -2.0, -0.5), (2.5, 2.0, -1.25)],
)
def test_the_rule_accepts_exactly_below_its_threshold(
    energy, new_energy, log_q_ratio, temperature
):
    old, new = two_states(energy, new_energy)
    log_ratio = oracle.metropolis_log_ratio(
        energy, new_energy, temperature, log_q_ratio
    )
    threshold = min(math.exp(log_ratio), 1.0)
    for uniform in (0.5 * threshold, threshold * (1 - 1e-5)):
        state, info = decide(
            old, new, 1, log_q_ratio, uniform=uniform, temperature=temperature
        )
        assert flags(info) == dict(
            accepted=True, proposed=True, finite=True, has_state=True
        )
        assert float(info.log_ratio) == pytest.approx(log_ratio, abs=1e-5, rel=1e-5)
        assert_same(state, new)
    if threshold < 1.0:
        for uniform in (threshold * (1 + 1e-5), 0.5 + 0.5 * threshold):
            state, info = decide(
                old, new, 1, log_q_ratio, uniform=uniform, temperature=temperature
            )
            assert flags(info) == dict(
                accepted=False, proposed=True, finite=True, has_state=True
            )
            assert_same(state, old)


def test_a_ratio_above_one_is_accepted_whatever_the_draw():
    old, new = two_states(11.0, 10.0)
    for uniform in (1e-7, 0.5, 1 - 2**-24):
        assert bool(decide(old, new, 1, uniform=uniform)[1].accepted)


def test_a_whole_move_is_judged_by_the_metropolis_ratio_of_its_densities():
    d, step, noise, beta, temperature = 200, 0.1, 0.05, 2.0, 30.0
    gradient, end, new_gradient = a_move(d, step, noise, beta, True, seed=19)
    energy, new_energy = 70000.0, 69900.0
    expected = oracle.metropolis_log_ratio(
        energy,
        new_energy,
        temperature,
        oracle.reversible_log_ratio(
            np.zeros(d), gradient, end, new_gradient, step, noise, beta, False
        ),
    )
    log_q_ratio, _ = kernel_ratio(
        (gradient, end, new_gradient), step, noise, beta, False
    )
    old, new = two_states(energy, new_energy)
    _, info = decide(old, new, 1, log_q_ratio, temperature=temperature)
    assert float(info.log_ratio) == pytest.approx(expected, rel=1e-5, abs=1e-2)


def test_nothing_pending_makes_the_first_finite_point_the_state():
    old, new = two_states(0.0, 1e6)
    state, info = decide(old, new, 0, log_q_ratio=-1e9, uniform=1 - 2**-24)
    assert flags(info) == dict(
        accepted=True, proposed=False, finite=True, has_state=True
    )
    assert_same(state, new)


@pytest.mark.parametrize(
    ("energy", "log_q_ratio"),
    [(math.nan, 0.0), (math.inf, 0.0), (-math.inf, 0.0), (1.0, math.nan)],
)
def test_a_first_point_that_is_not_finite_keeps_its_position_and_stays_nothing(
    energy, log_q_ratio
):
    old, new = two_states(0.0, energy)
    state, info = decide(old, new, 0, log_q_ratio)
    assert flags(info) == dict(
        accepted=False, proposed=False, finite=False, has_state=False
    )
    assert_same(state, metropolis.State(new.position, old.gradient, old.energy))


@pytest.mark.parametrize("log_q_ratio", [-50.0, 0.0, 50.0])
def test_a_refresh_is_judged_by_the_energies_alone(log_q_ratio):
    old, new = two_states(10.0, 11.0)
    for uniform, accepted in ((0.36, True), (0.38, False)):  # exp(-1) = 0.368
        state, info = decide(old, new, 2, log_q_ratio, uniform=uniform)
        assert flags(info) == dict(
            accepted=accepted, proposed=False, finite=True, has_state=True
        )
        assert float(info.log_ratio) == pytest.approx(-1.0)
        assert_same(state, new if accepted else old)


@pytest.mark.parametrize("pending", [1, 2])
@pytest.mark.parametrize(
    ("energy", "log_q_ratio"),
    [
        (math.nan, 0.0),
        (math.inf, 0.0),
        (-math.inf, 0.0),
        (-1e9, math.nan),
        (-1e9, math.inf),
        (-1e9, -math.inf),
    ],
)
def test_what_is_not_finite_is_rejected_and_leaves_the_state(
    pending, energy, log_q_ratio
):
    old, new = two_states(10.0, energy)
    state, info = decide(old, new, pending, log_q_ratio, uniform=1e-6)
    assert flags(info) == dict(
        accepted=False, proposed=pending == 1, finite=False, has_state=True
    )
    assert float(info.log_ratio) == -math.inf
    assert_same(state, old)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize(
    "name", [name for name, proposal in PROPOSALS.items() if proposal.uses_gradient]
)
def test_a_gradient_that_is_not_finite_has_no_finite_ratio(name, bad):
    rng = np.random.default_rng(20)
    gradient, new_gradient, delta = (tensors_of(draw(rng)) for _ in range(3))
    poisoned = ops.convert_to_numpy(new_gradient[1]).copy()
    poisoned[1, 2] = bad
    new_gradient[1] = tensor(poisoned)
    proposal = PROPOSALS[name]
    scales = proposal.scales(tensor(0.1), 1.0, 10)
    ratio = proposal.log_ratio(delta, gradient, new_gradient, scales)
    old, new = two_states(10.0, -1e9)
    new = new._replace(gradient=new_gradient)
    state, info = decide(old, new, 1, ops.convert_to_numpy(ratio))
    assert flags(info) == dict(
        accepted=False, proposed=True, finite=False, has_state=True
    )
    assert_same(state, old)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.5])
@pytest.mark.parametrize("name", PROPOSALS)
def test_before_the_first_move_only_a_gradient_that_is_not_finite_spoils_the_ratio(
    name, bad
):
    # Nothing drew this point, so that Delta means nothing.
    rng = np.random.default_rng(23)
    gradient, new_gradient, delta = (tensors_of(draw(rng)) for _ in range(3))
    new_gradient[2] = tensor(bad)
    scales = moves.Scales(*map(tensor, moves.STILL))
    ratio = PROPOSALS[name].log_ratio(delta, gradient, new_gradient, scales)
    if math.isfinite(bad) or not PROPOSALS[name].uses_gradient:
        assert float(ratio) == 0.0
    else:
        assert not math.isfinite(float(ratio))


def test_weights_that_were_changed_after_a_refresh_start_a_new_chain():
    old, new = two_states(10.0, 1e6)
    delta = tensors.subtract(new.position, old.position)
    unmoved = [0.0 * x for x in delta]
    refresh, proposal = tensor(2, "int32"), tensor(1, "int32")
    assert bool(metropolis.moved(delta, refresh))
    assert not bool(metropolis.moved(unmoved, refresh))
    assert not bool(metropolis.moved(delta, proposal))
    state, info = decide(old, new, 2, restart=True, uniform=1 - 2**-24)
    assert flags(info) == dict(
        accepted=True, proposed=False, finite=True, has_state=True
    )
    assert_same(state, new)


def test_a_restart_at_a_point_that_is_not_finite_has_no_state():
    old, new = two_states(10.0, math.nan)
    state, info = decide(old, new, 2, restart=True)
    assert flags(info) == dict(
        accepted=False, proposed=False, finite=False, has_state=False
    )
    assert_same(state, metropolis.State(new.position, old.gradient, old.energy))


def test_a_walk_without_gradients_is_decided_alike():
    old, new = two_states(10.0, 9.0)
    old, new = old._replace(gradient=[]), new._replace(gradient=[])
    state, info = decide(old, new, 1)
    assert bool(info.accepted)
    assert_same(state, new)


def test_a_learning_rate_of_zero_leaves_the_ratio_of_the_energies():
    rng = np.random.default_rng(21)
    position, gradient, new_gradient, normals = (
        tensors_of(draw(rng)) for _ in range(4)
    )
    for proposal in PROPOSALS.values():
        scales = proposal.scales(tensor(0.0), 1.0, 10)
        end, _ = proposal.propose(position, gradient, normals, tensor(0.75), scales)
        assert_close(end, [ops.convert_to_numpy(x) for x in position], 0, 0)
        delta = tensors.subtract(end, position)
        ratio = proposal.log_ratio(delta, gradient, new_gradient, scales)
        old = metropolis.State(position, gradient, tensor(10.0))
        new = metropolis.State(end, new_gradient, tensor(11.0))
        for uniform, accepted in ((0.36, True), (0.38, False)):
            _, info = decide(old, new, 1, ops.convert_to_numpy(ratio), uniform=uniform)
            assert float(info.log_ratio) == pytest.approx(-1.0)
            assert bool(info.accepted) == accepted


def test_each_chain_is_decided_as_if_it_were_alone():
    rng = np.random.default_rng(22)
    # pending, restart, energy, new energy, log q ratio, uniform
    cases = [
        (0, False, 0.0, 5.0, 0.0, 0.99),
        (0, False, 0.0, math.nan, 0.0, 0.5),
        (1, False, 10.0, 11.0, 0.3, 0.49),
        (1, False, 10.0, 11.0, 0.3, 0.51),
        (1, False, 10.0, 9.0, math.nan, 0.5),
        (1, False, 10.0, math.inf, 0.0, 0.5),
        (2, False, 10.0, 11.0, 7.0, 0.36),
        (2, False, 10.0, 11.0, 7.0, 0.38),
        (2, True, 10.0, 1e5, 0.0, 0.99),
        (2, True, 10.0, math.nan, 0.0, 0.5),
    ]
    count = len(cases)
    shapes = [(count,), (count, 4), (count, 2, 3)]
    position, gradient, new_position, new_gradient = (
        draw(rng, shapes) for _ in range(4)
    )
    pending, restart, energy, new_energy, log_q_ratio, uniform = map(
        list, zip(*cases, strict=True)
    )
    temperature = 1.0 + 0.01 * np.arange(count)

    state, info = decide(
        metropolis.State(tensors_of(position), tensors_of(gradient), tensor(energy)),
        metropolis.State(
            tensors_of(new_position), tensors_of(new_gradient), tensor(new_energy)
        ),
        pending,
        log_q_ratio,
        restart,
        uniform,
        tensor(temperature),
    )
    together = [*state.position, *state.gradient, state.energy, *info]
    for k in range(count):
        alone, alone_info = decide(
            metropolis.State(chain(position, k), chain(gradient, k), tensor(energy[k])),
            metropolis.State(
                chain(new_position, k), chain(new_gradient, k), tensor(new_energy[k])
            ),
            pending[k],
            log_q_ratio[k],
            restart[k],
            uniform[k],
            tensor(temperature[k]),
        )
        separate = [*alone.position, *alone.gradient, alone.energy, *alone_info]
        for t, s in zip(together, separate, strict=True):
            np.testing.assert_array_equal(
                ops.convert_to_numpy(t)[k], ops.convert_to_numpy(s)
            )
