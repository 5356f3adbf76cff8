"""Choose beta of the reversible proposal from acceptances that cost no gradient.

Paper: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", section 3.2, "Choosing beta".

Where a forward proposal goes does not depend on beta. Only whether it is accepted does.
The distances of a forward step therefore give its acceptance under any other beta,
min(1, r(beta)), exactly. The paper runs 100 extra forward steps for each value. Here
the steps of the run itself are replayed, and both rules choose at the end of an epoch.

`replay_*`: take the smallest beta of a grid whose mean acceptance reaches 90% of the
best. Acceptance is not monotone in beta. It rises steeply where the strong-gradient
regime begins, and then stays. Where backward moves begin to be accepted, at
beta = sqrt(a) |grad'| with a = epsilon^2 / (2 s^2), the move is a random walk, which
destroys the weights in the end. So the grid is cut at a fifth of this beta, or at the
end of the strong-gradient regime where the latter is larger, as in low dimension.

`paper_*`: the paper's rule. If an epoch's acceptance is above 0.4, beta falls in steps
of 5%, by 50% at most, while the acceptance of the last 100 forward steps is above 0.7.
If it is below 0.2, beta rises by 5%. The paper makes 100 new forward steps for each
trial beta. Here all trials share the last 100 steps of the epoch.

For K chains every scalar has the shape (K,), and every record a leading chain axis.
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Self

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.proposals import AT_LEAST_ONE
from keras_mhmcmc.samplers.parts.tensors import ops

REPLAY_TRIALS = 192
REPLAY_SMALLEST = 1e-4
REPLAY_LARGEST = 1e5
REPLAY_SHARE = 0.9
REPLAY_MARGIN = 1.2  # of beta - 1: the rise moves from epoch to epoch
REPLAY_ONSET = 0.2  # of the beta at which backward moves are accepted

PAPER_TRIALS = 14  # 0.95^13 = 0.51, the last step before 50%
PAPER_WINDOW = 100
PAPER_STEP = 0.05
PAPER_ACCEPTED = 0.7  # of the trials, above which beta may fall on
PAPER_FALL_ABOVE = 0.4  # acceptance of an epoch
PAPER_RISE_BELOW = 0.2  # acceptance of an epoch

_RANGE = REPLAY_LARGEST / REPLAY_SMALLEST
_SHARES = [i / (REPLAY_TRIALS - 2) for i in range(REPLAY_TRIALS - 1)]
_GRID = (1.0, *(1.0 + REPLAY_SMALLEST * _RANGE**share for share in _SHARES))
_FACTORS = tuple((1.0 - PAPER_STEP) ** i for i in range(PAPER_TRIALS))
# Forward steps before the first choice, if the user gives no beta.
FIRST_CHOICE = 16


class ReplayState(NamedTuple):
    """Sums over the forward steps since beta was chosen."""

    acceptance: Tensor  # (..., trials)
    limit: Tensor  # the sum of the largest betas to choose
    count: Tensor  # forward steps


class PaperState(NamedTuple):
    """The last forward steps, and the acceptance of the whole epoch."""

    acceptance: Tensor  # (..., window, trials), a ring
    count: Tensor  # forward steps so far
    accepted: Tensor  # accepted proposals so far
    proposed: Tensor  # proposals so far


class State(NamedTuple):
    beta: Tensor  # 0: not chosen yet
    choice_at: Tensor  # forward steps until an early choice; 0: none comes
    replay: Any  # `ReplayState`, or ()
    paper: Any  # `PaperState`, or ()


class Move(NamedTuple):
    distances: proposals.SquaredDistances
    energy_log_ratio: Tensor
    finite: Tensor
    forward: Tensor
    accepted: Tensor
    proposed: Tensor


RatioAt = Callable[[proposals.SquaredDistances, Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class BetaAdaptation:
    first: float | None  # None: of the first gradient, and of 16 forward steps
    rule: str | None  # "replay", "paper", or None for a fixed beta
    steps: int = 0  # of an epoch

    @classmethod
    def of(cls, beta: float | str, rule: str | None) -> Self:
        """Return the adaptation of these arguments of `mh.RSGLD`, checked."""
        first = None
        if not (isinstance(beta, str) and beta == "auto"):
            first = _validate.number("beta", beta, AT_LEAST_ONE, hint='Or "auto".')
        rule = _validate.choice("beta_adaptation", rule, ("replay", "paper", None))
        return cls(first, rule)

    def init(self) -> State:
        is_auto = self.first is None
        replay: Any = ()
        paper: Any = ()
        if is_auto or self.rule == "replay":
            record = Slot("replay_acceptance", (REPLAY_TRIALS,))
            replay = ReplayState(record, Slot("replay_limit"), Slot("replay_count"))
        if self.rule == "paper":
            record = Slot("paper_acceptance", (PAPER_WINDOW, PAPER_TRIALS))
            counts = map(Slot, ("paper_count", "paper_accepted", "paper_proposed"))
            paper = PaperState(record, *counts)
        beta = Slot("adapted_beta", value=self.first or 0.0)
        choice_at = Slot("choice_at", value=float(FIRST_CHOICE) if is_auto else 0.0)
        return State(beta, choice_at, replay, paper)

    def start(
        self, state: State, gradient: Position, scales: Any, has_state: Tensor
    ) -> State:
        """Return the state with a first beta, if there is a gradient to choose it."""
        if self.first is not None:
            return state
        known = state.beta
        is_due = has_state & (known <= 0.0)

        def choose() -> Tensor:
            chosen = proposals.strong_gradient_beta(gradient, scales, like=has_state)
            return ops.where(is_due, chosen, known)

        return state._replace(beta=tensors.cond(ops.any(is_due), choose, lambda: known))

    def update(
        self, state: State, move: Move, number: Tensor, log_q_ratio_at: RatioAt
    ) -> State:
        """Return the state after one more move, with a new beta if one is due.

        `log_q_ratio_at` gives the log density ratio of distances under values of beta.
        """
        if self.first is not None and self.rule is None:
            return state
        beta, choice_at, replay, paper = state
        is_epoch_end = (number + 1) % self.steps == 0
        limit = replay_limit(move.distances)

        def judge(trials: Tensor) -> Tensor:
            distances = [ops.expand_dims(x, -1) for x in move.distances]
            ratio = log_q_ratio_at(proposals.SquaredDistances(*distances), trials)
            return acceptance(ratio, move.energy_log_ratio, move.finite)

        def acceptances(trials: Tensor) -> Tensor:
            # Only forward proposals count.
            none = ops.zeros_like(ops.expand_dims(limit, -1) * trials)
            return tensors.cond(ops.any(counted), lambda: judge(trials), lambda: none)

        counted = move.forward & move.proposed
        early: Any = None
        if replay:
            replay = replay_record(
                replay, acceptances(replay_trials(beta)), limit, counted
            )
            early = ends = (choice_at > 0.0) & (replay.count >= choice_at)
            # The intervals between early choices double: gradients still grow.
            factor = 2.0 if self.rule == "replay" else 0.0
            choice_at = ops.where(ends, factor * choice_at, choice_at)
            if self.rule == "replay":
                ends = ops.logical_or(ends, is_epoch_end)
            beta = _choose_where(ends, replay_choose, replay, beta)
            replay = _emptied_where(ends, replay)
        if paper:
            trials = paper_trials(state.beta)
            seen = counted, move.accepted, move.proposed
            paper = paper_record(paper, acceptances(trials), *seen)
            if early is not None:
                # The trials of the record are fractions of the beta before.
                paper = _emptied_where(early, paper)
            beta = _choose_where(is_epoch_end, paper_choose, paper, beta)
            paper = _emptied_where(is_epoch_end, paper)
        return State(beta, choice_at, replay, paper)


def _choose_where(ends: Tensor, choose: Any, state: Any, beta: Tensor) -> Tensor:
    """Return the chosen beta if a record ends, which is rare."""
    return tensors.cond(
        ops.any(ends),
        lambda: ops.where(ends, choose(state, beta), beta),
        lambda: beta,
    )


def _emptied_where(ends: Tensor, state: Any) -> Any:
    empty = [ops.zeros_like(value) for value in state]
    return type(state)(*tensors.select(ends, empty, list(state)))


def acceptance(log_q_ratio: Tensor, energy_log_ratio: Tensor, finite: Tensor) -> Tensor:
    """Return min(1, r) of one move under each trial value; 0 if it is not finite."""
    log_r = log_q_ratio + ops.expand_dims(energy_log_ratio, -1)
    share = ops.exp(ops.minimum(log_r, 0.0))
    return ops.where(ops.expand_dims(finite, -1), share, 0.0)


def replay_limit(distances: proposals.SquaredDistances) -> Tensor:
    """Return the largest beta that one forward move allows to choose."""
    return ops.maximum(
        proposals.strong_gradient_limit(distances),
        REPLAY_ONSET * proposals.onset_of_backward(distances),
    )


def replay_trials(beta: Tensor) -> Tensor:
    """Return the grid of trial values: 1, and 1 + 1e-4 to 1 + 1e5, as `beta` is.

    It is even in log(beta - 1): the regime approaches 1 as gradients get small.
    """
    return tensors.constant(_GRID, "float32", beta)


def replay_record(
    state: ReplayState, acceptance: Tensor, limit: Tensor, counted: Tensor
) -> ReplayState:
    """Return the record with one more step, if it is `counted`: a forward proposal."""
    # Use `where`: zero times a value that is not finite is NaN.
    return ReplayState(
        state.acceptance + ops.where(ops.expand_dims(counted, -1), acceptance, 0.0),
        state.limit + ops.where(counted & ops.isfinite(limit), limit, 0.0),
        state.count + ops.cast(counted, "float32"),
    )


def replay_choose(state: ReplayState, beta: Tensor) -> Tensor:
    """Return the smallest trial value with 90% of the best acceptance, and a margin."""
    trials = replay_trials(beta)
    limit = ops.maximum(state.limit / ops.maximum(state.count, 1.0), 1.0)
    in_regime = trials <= ops.expand_dims(limit, -1)
    acceptance = ops.where(in_regime, state.acceptance, 0.0)
    best = ops.max(acceptance, axis=-1)
    reached = acceptance >= REPLAY_SHARE * ops.expand_dims(best, -1)
    smallest = ops.argmax(ops.cast(reached, "int32"), axis=-1)
    found = ops.take(trials, smallest)
    choice = ops.minimum(1.0 + REPLAY_MARGIN * (found - 1.0), limit)
    # If no trial value would have been accepted, widen beta.
    informed = best > 1e-3 * state.count
    choice = ops.where(informed, choice, ops.maximum(beta, limit))
    return ops.where(state.count > 0, choice, beta)


def paper_trials(beta: Tensor) -> Tensor:
    """Return the values that one adjustment can reach, each 5% below the last."""
    factors = tensors.constant(_FACTORS, "float32", beta)
    return ops.expand_dims(beta, -1) * factors


def paper_record(
    state: PaperState,
    acceptance: Tensor,
    counted: Tensor,
    accepted: Tensor,
    proposed: Tensor,
) -> PaperState:
    """Return the record with one more step. Only forward proposals enter the ring."""
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


def paper_choose(state: PaperState, beta: Tensor) -> Tensor:
    rows = ops.maximum(ops.minimum(state.count, float(PAPER_WINDOW)), 1.0)
    mean = ops.sum(state.acceptance, axis=-2) / ops.expand_dims(rows, -1)
    # Number of 5% steps: how many trials in a row, from the present beta, exceed 0.7.
    above = ops.cumprod(ops.cast(mean > PAPER_ACCEPTED, "float32"), axis=-1)
    steps = ops.minimum(ops.sum(above, axis=-1), PAPER_TRIALS - 1.0)
    epoch = state.accepted / ops.maximum(state.proposed, 1.0)
    fallen = beta * ops.power(1.0 - PAPER_STEP, steps)
    beta = ops.where(epoch > PAPER_FALL_ABOVE, fallen, beta)
    rises = (epoch < PAPER_RISE_BELOW) & (state.proposed > 0)
    beta = ops.where(rises, beta * (1.0 + PAPER_STEP), beta)
    # Without a proposal, as in a warm-up, beta may not be chosen yet.
    return ops.where(state.proposed > 0, ops.maximum(beta, 1.0), beta)
