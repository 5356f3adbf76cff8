"""The paper's rule for beta, against the rule followed step by step in float64."""

import functools
import math

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers.parts import beta_adaptation
from keras_mhmcmc.samplers.parts import proposals
from tests.oracles import adaptation as oracle
from tests.support.adaptation_moves import D
from tests.support.adaptation_moves import assert_same
from tests.support.adaptation_moves import chain_of_moves
from tests.support.adaptation_moves import empty_paper
from tests.support.adaptation_moves import empty_replay
from tests.support.adaptation_moves import flag
from tests.support.adaptation_moves import kernel_acceptance
from tests.support.adaptation_moves import record
from tests.support.kernel_tools import tensor


def run_paper(steps, beta):
    """The kernel's choice after these oracle steps."""
    state = empty_paper()
    trials = ops.convert_to_numpy(beta_adaptation.paper_trials(tensor(beta)))
    for step in steps:
        row = [step["acceptance"](float(trial)) for trial in trials]
        flags = [step[name] for name in ("forward", "accepted", "proposed")]
        state = record(beta_adaptation.paper_record, state, row, 0.0, *flags)
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
    state = record(
        beta_adaptation.paper_record,
        empty_paper(),
        np.full(beta_adaptation.PAPER_TRIALS, 0.5),
        0.0,
        True,
        True,
        True,
    )
    bad = np.full(beta_adaptation.PAPER_TRIALS, math.nan)
    backward = record(beta_adaptation.paper_record, state, bad, 0.0, False, True, True)
    assert_same(backward[:2], state[:2])
    assert [float(x) for x in backward[2:]] == [2.0, 2.0]
    refresh = record(beta_adaptation.paper_record, state, bad, 0.0, True, True, False)
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
        flags = [flag(step[name]) for name in ("forward", "accepted", "proposed")]
        state = beta_adaptation.paper_record(state, acceptance, tensor(0.0), *flags)
    chosen = float(beta_adaptation.paper_choose(state, tensor(beta)))
    assert chosen == pytest.approx(oracle.paper_choose(steps, beta), rel=1e-5)


def test_an_early_choice_of_beta_empties_the_papers_record():
    # The rows of the record are for fractions of the beta before.
    adaptation = beta_adaptation.BetaAdaptation.of("auto", "paper")
    adaptation = adaptation.bind_data_size(1000, 10)
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
