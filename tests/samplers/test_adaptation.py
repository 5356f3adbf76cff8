"""How beta is chosen: replay against brute force, and the paper's rule, in float64."""

import dataclasses
import functools
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
from tests.support.adaptation_moves import empty_paper
from tests.support.adaptation_moves import empty_replay
from tests.support.adaptation_moves import flag
from tests.support.adaptation_moves import kernel_acceptance
from tests.support.adaptation_moves import record_paper
from tests.support.adaptation_moves import record_replay
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
        counted = flag(step["forward"] and step["proposed"])
        state = beta_adaptation.replay_record(state, acceptance, limit, counted)

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
    state = record_replay(state, row, 5.0, True, True)
    np.testing.assert_allclose(ops.convert_to_numpy(state.acceptance), row, rtol=1e-6)
    assert float(state.limit) == 5.0
    assert float(state.count) == 1.0
    for forward, proposed in ((False, True), (True, False), (False, False)):
        for bad in (0.5, math.nan, math.inf):
            ignored = record_replay(state, row + bad, bad, forward, proposed)
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


@pytest.mark.parametrize(
    ("edge", "limit"), [(10.0, 11.0), (1.1, 1.118), (1.0015, 1.00175)]
)
def test_replay_never_leaves_the_strong_gradient_regime(edge, limit):
    # The edge is in the regime, but a fifth above it would not be.
    state = replay_state(lambda beta: 0.7 if beta >= edge else 0.1, limit=limit)
    assert 1.0 + 1.2 * (edge - 1.0) > limit
    chosen = float(beta_adaptation.replay_choose(state, tensor(3.0)))
    assert chosen == pytest.approx(limit, rel=1e-6)


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


def run_paper(steps, beta):
    """The kernel's choice after these oracle steps."""
    state = empty_paper()
    trials = ops.convert_to_numpy(beta_adaptation.paper_trials(tensor(beta)))
    for step in steps:
        row = [step["acceptance"](float(trial)) for trial in trials]
        flags = [step[name] for name in ("forward", "accepted", "proposed")]
        state = record_paper(state, row, *flags)
    return float(beta_adaptation.paper_choose(state, tensor(beta)))


def epoch(count, accepted, acceptance, forward_share=0.5, proposed=True):
    """An epoch with this share of accepted steps and this acceptance of beta."""
    return [
        dict(
            forward=k % 100 < 100 * forward_share,
            proposed=proposed,
            accepted=k < round(accepted * count),
            acceptance=acceptance,
        )
        for k in range(count)
    ]


def test_paper_trials_fall_by_five_percent_each():
    trials = ops.convert_to_numpy(beta_adaptation.paper_trials(tensor(20.0)))
    expected = [20 * 0.95**k for k in range(beta_adaptation.PAPER_TRIALS)]
    np.testing.assert_allclose(trials, expected, rtol=1e-6)
    assert trials[-1] > 10.0 > 0.95 * trials[-1]


def saturating(middle):
    """Acceptance that grows with beta and crosses 0.7 at `middle`."""
    return lambda beta: 1 / (1 + 3 / 7 * (middle / beta) ** 4)


PAPER_CASES = {
    "0.4 exactly starts nothing": (epoch(100, 0.40, lambda beta: 1.0), 1.0),
    "above 0.4 and not above 0.7": (epoch(100, 0.41, lambda beta: 0.69), 1.0),
    "above 0.4 and above 0.7 is capped": (epoch(100, 0.41, lambda b: 0.71), 0.95**13),
    "one step": (epoch(100, 0.5, saturating(19.5)), 0.95),
    "several steps": (epoch(100, 0.5, saturating(15.0)), 0.95**6),
    "between 0.2 and 0.4": (epoch(100, 0.3, lambda beta: 1.0), 1.0),
    "0.2 exactly": (epoch(100, 0.20, lambda beta: 1.0), 1.0),
    "below 0.2": (epoch(100, 0.19, lambda beta: 1.0), 1.05),
    "nothing accepted": (epoch(100, 0.0, lambda beta: 0.0), 1.05),
    "no forward step": (epoch(100, 0.5, lambda beta: 1.0, forward_share=0.0), 1.0),
    "nothing proposed": (epoch(100, 1.0, lambda beta: 1.0, proposed=False), 1.0),
    "no step at all": ([], 1.0),
}


@pytest.mark.parametrize("name", PAPER_CASES)
def test_the_papers_rule(name):
    steps, factor = PAPER_CASES[name]
    assert oracle.paper_choose(steps, 20.0) == pytest.approx(20.0 * factor)
    assert run_paper(steps, 20.0) == pytest.approx(20.0 * factor, rel=1e-5)


def test_the_papers_rule_stops_at_the_first_trial_that_fails():
    # Acceptance that is high again further down must not be reached.
    steps = epoch(100, 0.5, lambda beta: 0.1 if 15 < beta < 17 else 0.9)
    assert run_paper(steps, 20.0) == pytest.approx(20 * 0.95**4, rel=1e-5)
    assert oracle.paper_choose(steps, 20.0) == pytest.approx(20 * 0.95**4)


def test_the_papers_rule_never_goes_below_one():
    assert run_paper(epoch(100, 0.9, lambda beta: 0.9), 1.2) == 1.0
    assert run_paper(epoch(100, 0.9, lambda beta: 0.9), 1.0) == 1.0


@pytest.mark.parametrize(("first", "last"), [(0.0, 1.0), (1.0, 0.0)])
def test_the_papers_rule_tests_the_last_hundred_forward_steps_only(first, last):
    steps = epoch(130, 0.5, lambda beta: first, forward_share=1.0)
    steps += epoch(200, 0.5, lambda beta: last, forward_share=0.5)
    assert len([step for step in steps[130:] if step["forward"]]) == 100
    expected = 20.0 * (0.95**13 if last == 1.0 else 1.0)
    assert run_paper(steps, 20.0) == pytest.approx(expected, rel=1e-5)


def test_the_papers_rule_ignores_backward_steps_and_what_was_not_proposed():
    half = np.full(beta_adaptation.PAPER_TRIALS, 0.5)
    state = record_paper(empty_paper(), half, True, True, True)
    bad = np.full(beta_adaptation.PAPER_TRIALS, math.nan)
    backward = record_paper(state, bad, False, True, True)
    assert_same(backward[:2], state[:2])
    assert [float(x) for x in backward[2:]] == [2.0, 2.0]
    refresh = record_paper(state, bad, True, True, False)
    assert_same(refresh, state)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(
    ("seed", "beta"), [(1, 3.0), (2, 3.0), (4, 1.5), (5, 6.0), (6, 1.0)]
)
def test_the_papers_rule_on_moves_equals_the_rule_followed_step_by_step(
    seed, beta, normalized
):
    steps, seen = chain_of_moves(60, beta, normalized, seed)
    state = empty_paper()
    trials = beta_adaptation.paper_trials(tensor(beta))
    for step, (squared_distances, energy_ratio) in zip(steps, seen, strict=True):
        acceptance = kernel_acceptance(
            squared_distances, energy_ratio, trials, normalized
        )
        flags = [step[name] for name in ("forward", "accepted", "proposed")]
        state = record_paper(state, acceptance, *flags)
    chosen = float(beta_adaptation.paper_choose(state, tensor(beta)))
    assert chosen == pytest.approx(oracle.paper_choose(steps, beta), rel=1e-5)


def test_an_early_choice_of_beta_empties_the_papers_record():
    # The rows of the record are for fractions of the beta before.
    adaptation = beta_adaptation.BetaAdaptation.of("auto", "paper")
    adaptation = dataclasses.replace(adaptation, steps=100)
    _, seen = chain_of_moves(beta_adaptation.FIRST_CHOICE + 3, 2.0, False, seed=7)
    state = beta_adaptation.State(
        tensor(2.0),
        tensor(beta_adaptation.FIRST_CHOICE),
        empty_replay(),
        empty_paper(),
    )
    log_q_ratio_at = functools.partial(
        proposals.reversible_log_ratio,
        dimension=D,
        normalized=False,
        forward_probability=0.5,
    )
    counts, betas = [], []
    for number, (distances, energy_ratio) in enumerate(seen):
        flags = [flag(True) for _ in range(4)]  # finite, forward, accepted, proposed
        move = beta_adaptation.Move(distances, tensor(energy_ratio), *flags)
        state = adaptation.update(state, move, tensor(number, "int32"), log_q_ratio_at)
        counts.append(int(state.paper.count))
        betas.append(float(state.beta))
    first = beta_adaptation.FIRST_CHOICE
    assert counts == [*range(1, first), 0, 1, 2, 3]
    assert set(betas[: first - 1]) == {2.0} and betas[first - 1] != 2.0
