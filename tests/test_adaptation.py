"""How beta is chosen, against the rules followed step by step in float64."""

import math

import numpy as np
import pytest
from keras import ops
from oracles import adaptation as oracle
from oracles import moves as oracle_moves

from keras_mhmcmc.kernels import adaptation
from keras_mhmcmc.kernels import moves


def tensor(value, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(value, dtype))


def flag(value):
    return tensor(value, "bool")


def record(function, state, acceptance, limit, forward, accepted, proposed):
    return function(
        state,
        tensor(acceptance),
        tensor(limit),
        *map(flag, (forward, accepted, proposed)),
    )


def assert_same(state, expected):
    for a, e in zip(state, expected, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(e))


# Moves of a chain: what the kernels see of them, and what the oracle does. In six
# dimensions the acceptance changes slowly with beta, from 0.02 at 1 to 0.97 at 5.

D, STEP, NOISE = 6, 0.25, 0.0625


def chain_of_moves(count, beta, normalized, seed):
    """Oracle steps, and the same moves as the kernels' residuals and energy ratios."""
    rng = np.random.default_rng(seed)
    steps, seen = [], []
    scales = moves.Scales(tensor(STEP), tensor(NOISE), tensor(beta))
    for _ in range(count):
        gradient = rng.normal(size=D).astype("float32").astype("float64")
        new_gradient = 0.8 * gradient + 0.4 * rng.normal(size=D)
        new_gradient = new_gradient.astype("float32").astype("float64")
        start = np.zeros(D)
        end, forward = oracle_moves.reversible(
            start, gradient, rng.normal(size=D), rng.uniform(), STEP, NOISE, beta
        )
        end = end.astype("float32").astype("float64")
        energy_ratio = float(np.float32(rng.normal(scale=0.5)))

        def acceptance(
            trial, move=(start, gradient, end, new_gradient), energy=energy_ratio
        ):
            ratio = oracle_moves.reversible_log_ratio(
                *move, STEP, NOISE, trial, normalized
            )
            return math.exp(min(ratio + energy, 0.0))

        steps.append(
            dict(
                forward=forward,
                proposed=bool(rng.uniform() < 0.9),
                accepted=bool(rng.uniform() < acceptance(beta)),
                limit=oracle_moves.strong_gradient_limit(
                    start, gradient, end, STEP, NOISE
                ),
                acceptance=acceptance,
            )
        )
        lists = [[tensor(x)] for x in (end, gradient, new_gradient)]
        seen.append((moves.residuals(*lists, scales), energy_ratio))
    return steps, seen


def kernel_acceptance(residuals, energy_ratio, trials, normalized):
    ratio = moves.reversible_log_ratio(residuals, trials, D, normalized)
    return ops.exp(ops.minimum(ratio + energy_ratio, 0.0))


# Replay.


def empty_replay():
    trials = adaptation.REPLAY_TRIALS
    return adaptation.ReplayState(tensor(np.zeros(trials)), tensor(0.0), tensor(0.0))


def test_replay_tries_betas_from_one_to_a_hundred_thousand():
    trials = ops.convert_to_numpy(adaptation.replay_trials(tensor(7.0)))
    np.testing.assert_allclose(trials, oracle.replay_trials(), rtol=1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("normalized", [False, True])
def test_replay_chooses_as_brute_force_over_the_densities_does(normalized, seed):
    beta = 3.0
    steps, seen = chain_of_moves(60, beta, normalized, seed)
    state = empty_replay()
    trials = adaptation.replay_trials(tensor(beta))
    for step, (residuals, energy_ratio) in zip(steps, seen, strict=True):
        acceptance = kernel_acceptance(residuals, energy_ratio, trials, normalized)
        limit = moves.strong_gradient_limit(residuals, D)
        flags = [flag(step[name]) for name in ("forward", "accepted", "proposed")]
        state = adaptation.replay_record(state, acceptance, limit, *flags)

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
    choice, margin = oracle.replay_choose(steps, beta)
    assert 1.0 < choice < np.mean([step["limit"] for step in counted])
    assert margin > 1e-3  # or rounding, not the rule, would decide between two trials
    chosen = float(adaptation.replay_choose(state, tensor(beta)))
    assert chosen == pytest.approx(choice, rel=1e-5)


def test_replay_counts_proposals_that_went_forward_and_no_others():
    state = empty_replay()
    row = np.linspace(0.0, 1.0, adaptation.REPLAY_TRIALS)
    state = record(adaptation.replay_record, state, row, 5.0, True, False, True)
    np.testing.assert_allclose(ops.convert_to_numpy(state.acceptance), row, rtol=1e-6)
    assert float(state.limit) == 5.0
    assert float(state.count) == 1.0
    for forward, proposed in ((False, True), (True, False), (False, False)):
        for bad in (0.5, math.nan, math.inf):
            ignored = record(
                adaptation.replay_record, state, row + bad, bad, forward, True, proposed
            )
            assert_same(ignored, state)


def replay_state(acceptance, limit, count=10.0):
    """Sums over `count` steps whose mean acceptance is a function of beta."""
    means = np.array([acceptance(beta) for beta in oracle.replay_trials()])
    return adaptation.ReplayState(
        tensor(count * means), tensor(count * limit), tensor(count)
    )


def first_trial(at_least):
    return min(trial for trial in oracle.replay_trials() if trial >= at_least)


def test_replay_takes_the_smallest_beta_at_ninety_percent_of_the_best():
    # 0.85 is too little of 0.95, 0.86 is enough.
    def acceptance(beta):
        return 0.1 if beta < 5 else 0.85 if beta < 10 else 0.86 if beta < 20 else 0.95

    state = replay_state(acceptance, limit=1e3)
    chosen = float(adaptation.replay_choose(state, tensor(3.0)))
    assert chosen == pytest.approx(first_trial(10), rel=1e-5)


def test_replay_looks_at_the_strong_gradient_regime_only():
    # More is accepted above the regime, as a random walk, and just as much below 5.
    def acceptance(beta):
        return 1.0 if beta > 50 else 0.5 if beta >= 10 else 0.2

    state = replay_state(acceptance, limit=40.0)
    chosen = float(adaptation.replay_choose(state, tensor(3.0)))
    assert chosen == pytest.approx(first_trial(10), rel=1e-5)
    without_limit = replay_state(acceptance, limit=1e9)
    chosen = float(adaptation.replay_choose(without_limit, tensor(3.0)))
    assert chosen == pytest.approx(first_trial(50.1), rel=1e-5)


def test_replay_is_not_misled_by_an_acceptance_that_falls_again():
    def acceptance(beta):
        return 0.9 if 5 <= beta < 10 else 0.05

    state = replay_state(acceptance, limit=100.0)
    chosen = float(adaptation.replay_choose(state, tensor(60.0)))
    assert chosen == pytest.approx(first_trial(5), rel=1e-5)


def test_replay_can_go_down_to_one_and_never_below():
    for limit in (0.0, 0.3, 1.0, 30.0):
        state = replay_state(lambda beta: 0.8, limit=limit)
        assert float(adaptation.replay_choose(state, tensor(9.0))) == 1.0


@pytest.mark.parametrize(("beta", "expected"), [(2.0, 30.0), (70.0, 70.0)])
def test_replay_widens_to_the_limit_where_nothing_is_accepted(beta, expected):
    state = replay_state(lambda beta: 1e-5 if beta < 30 else 0.9, limit=30.0)
    chosen = float(adaptation.replay_choose(state, tensor(beta)))
    assert chosen == pytest.approx(expected, rel=1e-5)


def test_replay_without_a_forward_step_keeps_beta():
    assert float(adaptation.replay_choose(empty_replay(), tensor(4.5))) == 4.5


# The paper's rule.


def empty_paper():
    shape = adaptation.PAPER_WINDOW, adaptation.PAPER_TRIALS
    return adaptation.PaperState(tensor(np.zeros(shape)), *map(tensor, (0.0, 0.0, 0.0)))


def run_paper(steps, beta):
    """The kernel's choice after these oracle steps."""
    state = empty_paper()
    trials = ops.convert_to_numpy(adaptation.paper_trials(tensor(beta)))
    for step in steps:
        row = [step["acceptance"](float(trial)) for trial in trials]
        flags = [step[name] for name in ("forward", "accepted", "proposed")]
        state = record(adaptation.paper_record, state, row, 0.0, *flags)
    return float(adaptation.paper_choose(state, tensor(beta)))


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
    trials = ops.convert_to_numpy(adaptation.paper_trials(tensor(20.0)))
    expected = [20 * 0.95**k for k in range(adaptation.PAPER_TRIALS)]
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
    state = record(
        adaptation.paper_record,
        empty_paper(),
        np.full(adaptation.PAPER_TRIALS, 0.5),
        0.0,
        True,
        True,
        True,
    )
    bad = np.full(adaptation.PAPER_TRIALS, math.nan)
    backward = record(adaptation.paper_record, state, bad, 0.0, False, True, True)
    assert_same(backward[:2], state[:2])
    assert [float(x) for x in backward[2:]] == [2.0, 2.0]
    refresh = record(adaptation.paper_record, state, bad, 0.0, True, True, False)
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
    trials = adaptation.paper_trials(tensor(beta))
    for step, (residuals, energy_ratio) in zip(steps, seen, strict=True):
        acceptance = kernel_acceptance(residuals, energy_ratio, trials, normalized)
        flags = [flag(step[name]) for name in ("forward", "accepted", "proposed")]
        state = adaptation.paper_record(state, acceptance, tensor(0.0), *flags)
    chosen = float(adaptation.paper_choose(state, tensor(beta)))
    assert chosen == pytest.approx(oracle.paper_choose(steps, beta), rel=1e-5)
