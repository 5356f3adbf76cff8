"""Moves of a chain, as the adaptation of beta sees them and as its oracle does."""

import math

import numpy as np
from keras import ops

from keras_mhmcmc.samplers.parts import beta_adaptation
from keras_mhmcmc.samplers.parts import proposals
from tests.oracles import moves as oracle_moves
from tests.support.kernel_tools import tensor


def flag(value):
    return tensor(value, "bool")


def record_replay(state, acceptance, limit, forward, proposed):
    counted = flag(forward and proposed)
    given = tensor(acceptance), tensor(limit), counted
    return beta_adaptation.replay_record(state, *given)


def record_paper(state, acceptance, forward, accepted, proposed):
    flags = map(flag, (forward and proposed, accepted, proposed))
    return beta_adaptation.paper_record(state, tensor(acceptance), *flags)


def assert_same(state, expected):
    for pair in zip(state, expected, strict=True):
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, pair))


# Moves of a chain: what the kernels see of them, and what the oracle does. In six
# dimensions the acceptance changes slowly with beta, from 0.02 at 1 to 0.97 at 5.
D, STEP, NOISE = 6, 0.25, 0.0625


def chain_of_moves(count, beta, normalized, seed, d=D, length=1.0, change=0.4):
    """Oracle steps, and the same moves as the kernels see them, with energy ratios."""
    rng = np.random.default_rng(seed)
    steps, seen = [], []
    scales = proposals.Scales(tensor(STEP), tensor(NOISE), tensor(beta))
    for _ in range(count):
        gradient = length * rng.normal(size=d).astype("float32").astype("float64")
        new_gradient = 0.8 * gradient + change * length * rng.normal(size=d)
        new_gradient = new_gradient.astype("float32").astype("float64")
        start = np.zeros(d)
        end, forward = oracle_moves.reversible(
            start, gradient, rng.normal(size=d), rng.uniform(), STEP, NOISE, beta
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
                limit=oracle_moves.replay_limit(
                    start, gradient, end, new_gradient, STEP, NOISE
                ),
                acceptance=acceptance,
            )
        )
        lists = [[tensor(x)] for x in (end, gradient, new_gradient)]
        seen.append((proposals.squared_distances(*lists, scales), energy_ratio))
    return steps, seen


def kernel_acceptance(squared_distances, energy_ratio, trials, normalized, d=D):
    ratio = proposals.reversible_log_ratio(
        squared_distances, trials, d, normalized, 0.5
    )
    return beta_adaptation.acceptance(ratio, tensor(energy_ratio), flag(True))


def empty_replay():
    trials = beta_adaptation.REPLAY_TRIALS
    return beta_adaptation.ReplayState(
        tensor(np.zeros(trials)), tensor(0.0), tensor(0.0)
    )


def empty_paper():
    shape = beta_adaptation.PAPER_WINDOW, beta_adaptation.PAPER_TRIALS
    return beta_adaptation.PaperState(
        tensor(np.zeros(shape)), *map(tensor, (0.0, 0.0, 0.0))
    )
