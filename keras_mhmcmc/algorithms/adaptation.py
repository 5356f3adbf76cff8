"""Choosing beta of the reversible proposal from acceptances that cost no gradient.

Paper: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", section 3.2, "Choosing beta".

A forward proposal does not depend on beta, only its acceptance does. So the acceptance
that a forward step would have had under any other beta follows exactly from its stored
distances, min(1, r(beta)). The paper runs 100 extra forward steps for each value;
here the steps of the run itself are replayed.

`replay_*`: at the end of an epoch, the smallest beta of a grid whose mean acceptance
reaches 90% of the best, in the strong-gradient regime. Acceptance is not monotone in
beta: it rises steeply where the regime begins, stays, and above the regime the move is
a random walk that may be accepted more often still and destroys the weights in the end.
The rise moves from epoch to epoch, and right at its top an epoch may come to accept
nothing; so beta - 1 is a fifth larger than that.

`paper_*`: the paper's rule. An epoch's acceptance above 0.4 starts an adjustment: beta
falls in steps of 5% while the acceptance of the last 100 forward steps is above 0.7, by
50% at most. An epoch's acceptance below 0.2 raises beta by 5%.

For K chains every scalar has the shape (K,), and every record a leading chain axis.

| paper | name         | shape          | unit |
|-------|--------------|----------------|------|
| beta  | `beta`       | scalar, or (K,)| 1    |
| r     | `acceptance` | one per trial  | 1    |
"""

from typing import Any
from typing import NamedTuple

from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.tensors import ops

REPLAY_TRIALS = 192
REPLAY_SMALLEST = 1e-4
REPLAY_LARGEST = 1e5
REPLAY_SHARE = 0.9
REPLAY_MARGIN = 1.2

PAPER_TRIALS = 14  # 0.95^13 = 0.51, the last step before 50%
PAPER_WINDOW = 100

_RANGE = REPLAY_LARGEST / REPLAY_SMALLEST
_SHARES = [i / (REPLAY_TRIALS - 2) for i in range(REPLAY_TRIALS - 1)]
_GRID = (1.0, *(1.0 + REPLAY_SMALLEST * _RANGE**share for share in _SHARES))
_FACTORS = tuple(0.95**i for i in range(PAPER_TRIALS))


class ReplayState(NamedTuple):
    """Sums over the forward steps since beta was chosen."""

    acceptance: Any  # (trials,)
    limit: Any  # upper ends of the strong-gradient regime
    count: Any  # forward steps


class PaperState(NamedTuple):
    """The last forward steps, and what the whole epoch accepted."""

    acceptance: Any  # (window, trials), a ring
    count: Any  # forward steps so far
    accepted: Any  # accepted proposals so far
    proposed: Any  # proposals so far


def acceptance(log_q_ratio, energy_log_ratio, finite):
    """min(1, r) of one move under each trial value, 0 where it was not finite.

    Args:
        log_q_ratio: log q(theta' -> theta) - log q(theta -> theta') under each trial.
        energy_log_ratio: -(U_I'(theta') - U_I(theta)) / T, a scalar, or (K,).
        finite: bool, whether energy and gradient of theta' were finite; or (K,).
    """
    log_r = log_q_ratio + ops.expand_dims(energy_log_ratio, -1)
    share = ops.exp(ops.minimum(log_r, 0.0))
    return ops.where(ops.expand_dims(finite, -1), share, 0.0)


def replay_trials(beta):
    """The grid of trial values, whatever `beta` is now: 1, and 1 + 1e-4 to 1 + 1e5.

    Even in log(beta - 1), since the regime comes down to 1 as gradients get small.
    """
    return tensors.constant(_GRID, "float32", beta)


def replay_record(state, acceptance, limit, forward, accepted, proposed):
    """Adds one step; only proposals that went forward count."""
    counted = forward & proposed
    counted_trials = ops.expand_dims(counted, -1)
    # A weight of zero does not silence a value that is not finite; `where` does.
    return ReplayState(
        state.acceptance + ops.where(counted_trials, acceptance, 0.0),
        state.limit + ops.where(counted & ops.isfinite(limit), limit, 0.0),
        state.count + ops.cast(counted, "float32"),
    )


def replay_choose(state, beta):
    """The smallest trial value with 90% of the best mean acceptance, and a margin."""
    trials = replay_trials(beta)
    limit = ops.maximum(state.limit / ops.maximum(state.count, 1.0), 1.0)
    in_regime = trials <= ops.expand_dims(limit, -1)
    acceptance = ops.where(in_regime, state.acceptance, 0.0)
    best = ops.max(acceptance, axis=-1)
    reached = acceptance >= REPLAY_SHARE * ops.expand_dims(best, -1)
    smallest = ops.argmax(ops.cast(reached, "int32"), axis=-1)
    found = ops.take(trials, smallest)
    choice = ops.minimum(1.0 + REPLAY_MARGIN * (found - 1.0), limit)
    # Where nothing would have been accepted the record has one thing to say: widen.
    informed = best > 1e-3 * state.count
    choice = ops.where(informed, choice, ops.maximum(beta, limit))
    return ops.where(state.count > 0, choice, beta)


def paper_trials(beta):
    """The values that one adjustment phase can reach: 5% smaller each."""
    factors = tensors.constant(_FACTORS, "float32", beta)
    return ops.expand_dims(beta, -1) * factors


def paper_record(state, acceptance, limit, forward, accepted, proposed):
    """Adds one step; only proposals that went forward enter the ring."""
    counted = forward & proposed
    place = ops.cast(state.count % PAPER_WINDOW, "int32")
    rows = tensors.constant(range(PAPER_WINDOW), "int32", place)
    row = rows == ops.expand_dims(place, -1)
    is_written = ops.logical_and(row, ops.expand_dims(counted, -1))
    is_written = ops.expand_dims(is_written, -1)
    acceptance = ops.expand_dims(acceptance, -2)
    return PaperState(
        ops.where(is_written, acceptance, state.acceptance),
        state.count + ops.cast(counted, "float32"),
        state.accepted + ops.cast(accepted & proposed, "float32"),
        state.proposed + ops.cast(proposed, "float32"),
    )


def paper_choose(state, beta):
    """The paper's rule at the end of an epoch."""
    rows = ops.maximum(ops.minimum(state.count, float(PAPER_WINDOW)), 1.0)
    mean = ops.sum(state.acceptance, axis=-2) / ops.expand_dims(rows, -1)
    # The number of 5% steps: trials in a row, from the present beta, above 0.7.
    above = ops.cumprod(ops.cast(mean > 0.7, "float32"), axis=-1)
    steps = ops.minimum(ops.sum(above, axis=-1), PAPER_TRIALS - 1.0)
    epoch = state.accepted / ops.maximum(state.proposed, 1.0)
    beta = ops.where(epoch > 0.4, beta * ops.power(0.95, steps), beta)
    beta = ops.where((epoch < 0.2) & (state.proposed > 0), beta * 1.05, beta)
    return ops.maximum(beta, 1.0)
