"""Mini-batch Metropolis-Hastings with batch tempering (MHBT), one gradient a step.

Papers: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", algorithm 1; Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.

Law: on position and mini-batch together, exp(-U_I(theta)/T) nu(I), with U_I the energy
estimated from batch I: the state keeps the energy and the gradient of *its own* batch,
and a proposal brings its own. The marginal of theta is approximately exp(-U(theta)/T).

Equations, with q the density of the proposal:

    log r = -(U_I'(theta') - U_I(theta)) / T
            + log q_I'(theta' -> theta) - log q_I(theta -> theta')
    accept (theta', I') if log u < log r, u uniform on (0, 1)

    MINT's temperature: T = n^(1 - lambda), lambda = alpha log m / log n

A *refresh* proposes the position itself with a new batch. Its densities cancel, so the
same rule with the energies alone is an exact move on (theta, I). It is what follows
after the current state was put back into a model.

A step has two halves: `decide` judges the point that was evaluated, and the caller
proposes the next one (`moves`) from the state that `decide` returns.

| paper             | name          | shape            | unit                        |
|-------------------|---------------|------------------|-----------------------------|
| theta             | `position`    | list of tensors  | weights                     |
| -g_I(theta)       | `gradient`    | list of tensors  | nats per example and weight |
| -n mu_I(theta)    | `energy`      | scalar, or (K,)  | nats                        |
| T = n / c_n       | `temperature` | scalar, or (K,)  | 1                           |
| u                 | `uniform`     | scalar, or (K,)  | 1                           |
"""

import math
from typing import Any
from typing import NamedTuple

from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.tensors import ops

# What the point that is evaluated next is to the state.
NOTHING = 0  # there is no state yet: the point becomes the state
PROPOSAL = 1  # a move proposed from the state
REFRESH = 2  # the state's own position, for a new batch


class State(NamedTuple):
    """A position with the energy and the gradient that one batch gave it."""

    position: list
    gradient: list  # empty for proposals that need none
    energy: Any


class Info(NamedTuple):
    """What happened to the point that was evaluated."""

    accepted: Any  # bool: it is the new state
    proposed: Any  # bool: it was a proposal, not a first point or a refresh
    finite: Any  # bool: its energy and gradient were finite
    has_state: Any  # bool: there is a state now
    log_ratio: Any  # log r of the rule above


def was_modified(delta, pending, chains=False):
    """Whether the pending point differs from the state's position.

    A refresh that moved means that somebody changed the weights after they were
    settled: the state is then out of date.
    """
    is_elsewhere = tensors.sum_squares(delta, chains) > 0
    return ops.logical_and(pending == REFRESH, is_elsewhere)


def energy_log_ratio(energy, new_energy, temperature):
    """-(U_I'(theta') - U_I(theta)) / T, the energies' part of log r."""
    return (energy - new_energy) / temperature


def decide(state, evaluated, pending, log_q_ratio, restart, uniform, *, temperature):
    """Accepts or rejects an evaluated point.

    Args:
        state: `State` before the step; arbitrary while `pending` is `NOTHING`.
        evaluated: `State` of the point that was evaluated.
        pending: one of `NOTHING`, `PROPOSAL`, `REFRESH`.
        log_q_ratio: log density of the way back minus that of the way there; not
            finite where the gradient is not.
        restart: bool, the evaluated point starts a new chain.
        uniform: draw from (0, 1).
        temperature: T, greater than 0.

    Returns:
        The next `State`, and `Info`.
    """
    proposed = pending == PROPOSAL
    finite = ops.isfinite(evaluated.energy) & ops.isfinite(log_q_ratio)
    log_ratio = energy_log_ratio(state.energy, evaluated.energy, temperature)
    log_ratio = log_ratio + ops.where(proposed, log_q_ratio, 0.0)
    log_ratio = ops.where(finite, log_ratio, -math.inf)

    first = (pending == NOTHING) | restart
    accepted = finite & (first | (ops.log(uniform) < log_ratio))
    state = State(
        # A first point that is not finite is kept, to be evaluated on another batch.
        position=tensors.select(accepted | first, evaluated.position, state.position),
        gradient=tensors.select(accepted, evaluated.gradient, state.gradient),
        energy=ops.where(accepted, evaluated.energy, state.energy),
    )
    has_state = ((pending != NOTHING) & ~restart) | accepted
    return state, Info(accepted, proposed, finite, has_state, log_ratio)


def mint_temperature(alpha, train_size, batch_size):
    """MINT's temperature n^(1 - lambda), with n^lambda = m^alpha."""
    return train_size / batch_size**alpha
