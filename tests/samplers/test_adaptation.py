"""How replay chooses beta, against brute force in float64."""

import math

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers.parts import beta_adaptation
from keras_mhmcmc.samplers.parts import proposals
from tests.oracles import adaptation as oracle
from tests.oracles import moves as oracle_moves
from tests.support.adaptation_moves import NOISE
from tests.support.adaptation_moves import STEP
from tests.support.adaptation_moves import D
from tests.support.adaptation_moves import assert_same
from tests.support.adaptation_moves import chain_of_moves
from tests.support.adaptation_moves import empty_replay
from tests.support.adaptation_moves import flag
from tests.support.adaptation_moves import kernel_acceptance
from tests.support.adaptation_moves import record
from tests.support.kernel_tools import tensor


def test_acceptance_is_one_at_most_and_none_where_something_is_not_finite():
    ratios = tensor([[-3.0, 0.5, 2.0], [math.nan, 0.0, math.inf]])
    shares = beta_adaptation.acceptance(
        ratios, tensor([1.0, -math.inf]), flag([True, False])
    )
    expected = [[math.exp(-2.0), 1.0, 1.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(ops.convert_to_numpy(shares), expected, rtol=1e-6)


def test_replay_tries_betas_from_one_to_a_hundred_thousand():
    trials = ops.convert_to_numpy(beta_adaptation.replay_trials(tensor(7.0)))
    np.testing.assert_allclose(trials, oracle.replay_trials(), rtol=1e-5)
    # Near 1 the excess is what counts; float32 has it to 1.2e-7.
    excess = oracle.replay_trials() - 1.0
    np.testing.assert_allclose(trials - 1.0, excess, rtol=2e-5, atol=1.2e-7)
    assert trials[0] == 1.0
    assert trials.shape == (192,)
    assert trials[[1, -1]] == pytest.approx([1.0001, 100001.0], rel=1e-5)


def assert_replay_is_brute_force(steps, seen, beta, normalized, d=D):
    """Runs the replay over these moves; returns its choice and the regime's end."""
    state = empty_replay()
    trials = beta_adaptation.replay_trials(tensor(beta))
    for step, (squared_distances, energy_ratio) in zip(steps, seen, strict=True):
        acceptance = kernel_acceptance(
            squared_distances, energy_ratio, trials, normalized, d
        )
        limit = beta_adaptation.replay_limit(squared_distances)
        flags = [flag(step[name]) for name in ("forward", "accepted", "proposed")]
        state = beta_adaptation.replay_record(state, acceptance, limit, *flags)

    counted = [step for step in steps if step["forward"] and step["proposed"]]
    assert 0 < len(counted) < len(steps)
    assert float(state.count) == len(counted)
    expected = [
        sum(step["acceptance"](trial) for step in counted)
        for trial in oracle.replay_trials()
    ]
    np.testing.assert_allclose(
        ops.convert_to_numpy(state.acceptance), expected, rtol=1e-3, atol=1e-4
    )
    limit = np.mean([step["limit"] for step in counted])
    assert float(state.limit) == pytest.approx(limit * len(counted), rel=1e-5)
    choice, margin = oracle.replay_choose(steps, beta)
    assert margin > 1e-3  # or rounding, not the rule, would decide between two trials
    chosen = float(beta_adaptation.replay_choose(state, tensor(beta)))
    assert chosen == pytest.approx(choice, rel=1e-5)
    assert chosen - 1.0 == pytest.approx(choice - 1.0, rel=1e-4)
    return chosen, limit


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize("normalized", [False, True])
def test_replay_chooses_as_brute_force_over_the_densities_does(normalized, seed):
    steps, seen = chain_of_moves(60, 3.0, normalized, seed)
    chosen, limit = assert_replay_is_brute_force(steps, seen, 3.0, normalized)
    assert (1.0 if normalized else 2.0) < chosen < limit


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replay_chooses_as_brute_force_does_where_gradients_are_small(seed):
    # Here x = 2 epsilon |g| / (s sqrt(d)) is 2/3, so that the regime ends at
    # sqrt(1 + x^2) = 1.20. With h = grad' - grad, |h|^2 = (0.2^2 + 0.8^2) |g|^2, it
    # begins where beta^2 is 1 + epsilon^2 |h|^2 / (s^2 d), at 1.037.
    d, length = 400, NOISE / (3 * STEP)
    steps, seen = chain_of_moves(60, 1.1, False, seed, d, length, change=0.8)
    chosen, limit = assert_replay_is_brute_force(steps, seen, 1.1, False, d)
    assert limit == pytest.approx(math.sqrt(13 / 9), rel=0.02)
    assert 1.037 < chosen < 1.15


def test_replay_counts_proposals_that_went_forward_and_no_others():
    state = empty_replay()
    row = np.linspace(0.0, 1.0, beta_adaptation.REPLAY_TRIALS)
    state = record(beta_adaptation.replay_record, state, row, 5.0, True, False, True)
    np.testing.assert_allclose(ops.convert_to_numpy(state.acceptance), row, rtol=1e-6)
    assert float(state.limit) == 5.0
    assert float(state.count) == 1.0
    for forward, proposed in ((False, True), (True, False), (False, False)):
        for bad in (0.5, math.nan, math.inf):
            ignored = record(
                beta_adaptation.replay_record,
                state,
                row + bad,
                bad,
                forward,
                True,
                proposed,
            )
            assert_same(ignored, state)


def replay_state(acceptance, limit, count=10.0):
    """Sums over `count` steps whose mean acceptance is a function of beta."""
    means = np.array([acceptance(beta) for beta in oracle.replay_trials()])
    return beta_adaptation.ReplayState(
        tensor(count * means), tensor(count * limit), tensor(count)
    )


def choice_for(at_least):
    """The choice if nothing but the smallest trial from here on matters."""
    found = min(trial for trial in oracle.replay_trials() if trial >= at_least)
    return pytest.approx(1.0 + 1.2 * (found - 1.0), rel=1e-5)


def test_replay_takes_the_smallest_beta_at_ninety_percent_of_the_best():
    # 0.85 is too little of 0.95, 0.86 is enough.
    def acceptance(beta):
        return 0.1 if beta < 5 else 0.85 if beta < 10 else 0.86 if beta < 20 else 0.95

    state = replay_state(acceptance, limit=1e3)
    chosen = float(beta_adaptation.replay_choose(state, tensor(3.0)))
    assert chosen == choice_for(10)


def test_replay_looks_at_the_strong_gradient_regime_only():
    # More is accepted above the regime, as a random walk, and just as much below 5.
    def acceptance(beta):
        return 1.0 if beta > 50 else 0.5 if beta >= 10 else 0.2

    state = replay_state(acceptance, limit=40.0)
    chosen = float(beta_adaptation.replay_choose(state, tensor(3.0)))
    assert chosen == choice_for(10)
    without_limit = replay_state(acceptance, limit=1e9)
    chosen = float(beta_adaptation.replay_choose(without_limit, tensor(3.0)))
    assert chosen == choice_for(50.1)


def test_replay_is_not_misled_by_an_acceptance_that_falls_again():
    def acceptance(beta):
        return 0.9 if 5 <= beta < 10 else 0.05

    state = replay_state(acceptance, limit=100.0)
    chosen = float(beta_adaptation.replay_choose(state, tensor(60.0)))
    assert chosen == choice_for(5)


def test_replay_adds_a_fifth_to_the_excess_of_what_it_found():
    # 11 - 1 lies between steps 105 and 106 of 190 from 1e-4 to 1e5: 9.41 and 10.50.
    state = replay_state(lambda beta: 0.7 if beta >= 11 else 0.1, limit=100.0)
    chosen = float(beta_adaptation.replay_choose(state, tensor(3.0)))
    assert chosen == pytest.approx(1 + 1.2 * 10 ** (9 * 106 / 190 - 4), rel=1e-5)
    assert chosen == pytest.approx(13.60, abs=0.01)


@pytest.mark.parametrize(
    ("edge", "limit"), [(10.0, 11.0), (1.1, 1.118), (1.0015, 1.00175)]
)
def test_replay_never_leaves_the_strong_gradient_regime(edge, limit):
    # The edge is in the regime, but a fifth above it would not be.
    state = replay_state(lambda beta: 0.7 if beta >= edge else 0.1, limit=limit)
    assert 1.0 + 1.2 * (edge - 1.0) > limit
    chosen = float(beta_adaptation.replay_choose(state, tensor(3.0)))
    assert chosen == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize("edge", [1.0015, 1.003, 1.01, 1.05, 1.08, 1.12, 1.16, 1.2])
def test_replay_comes_down_towards_one_with_the_gradients(edge):
    # Acceptance rises at the edge, and above the regime it is that of a random walk.
    limit = 1.0 + 2.0 * (edge - 1.0)

    def acceptance(beta):
        return 1.0 if beta > limit else 0.7 if beta >= edge else 0.01

    state = replay_state(acceptance, limit=limit)
    chosen = float(beta_adaptation.replay_choose(state, tensor(3.0)))
    found = 1.0 + (chosen - 1.0) / 1.2
    # The grid has 190 steps for nine decades of beta - 1: a factor 1.115 each.
    assert edge - 1e-6 <= found < 1.0 + 1.116 * (edge - 1.0)
    assert found < 1.02 * edge
    assert chosen < limit


@pytest.mark.parametrize("limit", [0.0, 0.3, 1.0, 1.2, 30.0])
def test_replay_can_go_down_to_one_and_never_below(limit):
    state = replay_state(lambda beta: 0.8, limit=limit)
    assert float(beta_adaptation.replay_choose(state, tensor(9.0))) == 1.0


@pytest.mark.parametrize(("beta", "expected"), [(2.0, 30.0), (70.0, 70.0)])
@pytest.mark.parametrize("tiny", [0.0, 1e-5, 9e-4])
def test_replay_widens_to_the_limit_where_nothing_is_accepted(beta, expected, tiny):
    state = replay_state(lambda beta: tiny if beta < 30 else 0.9, limit=30.0)
    chosen = float(beta_adaptation.replay_choose(state, tensor(beta)))
    assert chosen == pytest.approx(expected, rel=1e-5)


def test_replay_chooses_by_an_acceptance_just_above_nothing():
    state = replay_state(lambda beta: 1.1e-3 if beta >= 5 else 0.0, limit=30.0)
    assert float(beta_adaptation.replay_choose(state, tensor(70.0))) == choice_for(5)


def test_replay_without_a_forward_step_keeps_beta():
    assert float(beta_adaptation.replay_choose(empty_replay(), tensor(4.5))) == 4.5


@pytest.mark.parametrize("growth", [0.5, 1.0, 3.0])
def test_the_largest_beta_is_below_what_backward_moves_need(growth):
    # In many dimensions the strong-gradient regime ends long before.
    d, length = 20_000, 3.0
    rng = np.random.default_rng(5)
    gradient = rng.normal(size=d).astype("float32").astype("float64")
    gradient *= length / np.linalg.norm(gradient)
    new_gradient = (growth * np.roll(gradient, 1)).astype("float32").astype("float64")
    noise = STEP * length / 1e4
    end = -STEP * gradient + noise * rng.normal(size=d)
    lists = [[tensor(x)] for x in (end, gradient, new_gradient)]
    scales = proposals.Scales(tensor(STEP), tensor(noise), tensor(1.0))
    distances = proposals.squared_distances(*lists, scales)
    limit = float(beta_adaptation.replay_limit(distances))
    seen = oracle_moves.replay_limit(
        np.zeros(d), gradient, end, new_gradient, STEP, noise
    )
    assert limit == pytest.approx(seen, rel=2e-3)
    onset = STEP * growth * length / (2**0.5 * noise)
    assert limit == pytest.approx(onset / 5, rel=0.01)
    assert limit > 4 * float(proposals.strong_gradient_limit(distances))
