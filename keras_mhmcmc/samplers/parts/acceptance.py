"""The decision of Metropolis-Hastings, eq. (2) of `samplers/mhbt.py` and its symbols.

A *refresh* is the state's own position, for a new batch: its two densities q cancel. A
*warm-up* step is a plain gradient step, which is accepted if it is finite. If it was
not finite, the state is evaluated again, on the next batch.
"""

import math
from typing import NamedTuple

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.proposals import Scales
from keras_mhmcmc.samplers.parts.tensors import ops

# What the point that is evaluated next is to the state.
NOTHING = 0  # there is no state yet: the point becomes the state
PROPOSAL = 1  # a move proposed from the state
REFRESH = 2  # the state's own position, for a new batch
WARM_UP = 3  # a plain gradient step from the state, which is accepted if it is finite


class Candidate(NamedTuple):
    """A position with the energy and the gradient that one batch gave it."""

    position: Position
    gradient: Position  # empty for proposals that need none
    energy: Tensor


class Outcome(NamedTuple):
    """What happened to the point that was evaluated."""

    accepted: Tensor  # bool: the point is the new state
    proposed: Tensor  # bool: the point was a proposal
    finite: Tensor  # bool: the energy and the gradient were finite
    has_state: Tensor  # bool: there is a state now
    log_ratio: Tensor  # log r of the rule above


def energy_log_ratio(energy: Tensor, new_energy: Tensor, temperature: Tensor) -> Tensor:
    """Return -(U_I'(theta') - U_I(theta)) / T, the energies' part of log r."""
    return (energy - new_energy) / temperature


def accept_or_reject(
    state: Candidate,
    candidate: Candidate,
    pending: Tensor,
    log_q_ratio: Tensor,
    restart: Tensor,
    uniform: Tensor,
    *,
    temperature: Tensor,
) -> tuple[Candidate, Outcome]:
    """Return the next state, and what happened to an evaluated point.

    `log_q_ratio` is not finite where the gradient is not. `restart` says whether the
    point starts a new chain; None: it does not.
    """
    proposed = pending == PROPOSAL
    finite = ops.isfinite(candidate.energy) & ops.isfinite(log_q_ratio)
    log_ratio = energy_log_ratio(state.energy, candidate.energy, temperature)
    log_ratio = log_ratio + ops.where(proposed, log_q_ratio, 0.0)
    log_ratio = ops.where(finite, log_ratio, -math.inf)

    first = pending == NOTHING
    if restart is not None:
        first = first | restart
    is_free = first | (pending == WARM_UP)
    accepted = finite & (is_free | (ops.log(uniform) < log_ratio))
    state = Candidate(
        # A first point that is not finite is kept, to be evaluated on another batch.
        position=tensors.select(accepted | first, candidate.position, state.position),
        gradient=tensors.select(accepted, candidate.gradient, state.gradient),
        energy=ops.where(accepted, candidate.energy, state.energy),
    )
    return state, Outcome(accepted, proposed, finite, ~first | accepted, log_ratio)


def was_modified(delta: Position, pending: Tensor) -> Tensor:
    """Return whether somebody changed the weights by `delta` after a settle."""
    is_elsewhere = tensors.sum_squares(delta, like=pending) > 0
    return ops.logical_and(pending == REFRESH, is_elsewhere)


def next_kind(has_state: Tensor, refreshes: Tensor, warms_up: Tensor) -> Tensor:
    """Return what the next point is to the state; None: no step is of the kind."""
    is_pending = ops.cast(has_state, "int32")
    kind = PROPOSAL * is_pending
    if refreshes is not None:
        kind = ops.where(refreshes, REFRESH * is_pending, kind)
    if warms_up is not None:
        kind = ops.where(warms_up, WARM_UP * is_pending, kind)
    return kind


def has_beta(kind: Tensor) -> Tensor:
    """Return whether a beta belongs to a point of this kind; a refresh keeps it."""
    return (kind == PROPOSAL) | (kind == REFRESH)


def scales_of(kind: Tensor, scales: Scales, finite: Tensor) -> Scales:
    """Return the scales of a point of this kind; `finite` None: no warm-up."""
    proposes = kind == PROPOSAL
    moves = proposes
    if finite is not None:
        moves = proposes | ((kind == WARM_UP) & finite)
    # JAX with float64 takes a number of Python for a float64.
    step, noise, beta = (ops.cast(scale, "float32") for scale in scales)
    return Scales(
        step=ops.where(moves, step, 0.0),
        noise=ops.where(proposes, noise, 0.0),
        beta=ops.where(has_beta(kind), beta, 1.0),
    )
