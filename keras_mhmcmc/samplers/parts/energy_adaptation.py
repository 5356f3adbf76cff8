"""Find the step at which the energy error of a path has a given variance.

Paper: Robnik, De Luca, Silverstein and Seljak (2023), "Microcanonical Hamiltonian Monte
Carlo", Journal of Machine Learning Research 24. There the variance of the energy error
per dimension decides about the step, since it bounds the bias. The recursion here is
ours.

The error of a symmetric step of second order is proportional to epsilon^3, so its
square is proportional to epsilon^6. With xi_m the squared error of step m over its
wanted mean, W imagined steps with xi = 1 give the recursion

    (1)  log epsilon <- log epsilon - log((W + xi_m) / (W + 1)) / 6
    (2)  W <- min(W + 1, C)

In the mean xi comes to 1. While the warm-up still changes the scales, C is small, and
the step follows fast. In the last window C is infinite, and its steps are averaged.

The wanted error falls while C is small, as in Sommer and others (2025), "Microcanonical
Langevin ensembles": long steps take a chain far in a short time. It falls from five
times its last value, as there from 0.5 to 0.1 per dimension.

After the warm-up a guard checks the step, since rare steps may have errors that the
warm-up never saw. It adds xi over blocks of `BLOCK` steps. If the mean of a block must
be above `UNSAFE`, the chain goes back to where the block began, with half of the step.
A step that is not finite counts so much that half of them in a block are too many.

| symbol  | name       | shape         | unit  |
|---------|------------|---------------|-------|
| epsilon | `log_step` | (K,), its log | 1     |
| W       | `weight`   | (K,)          | steps |
| xi      | `ratio`    | (K,)          | 1     |
| -       | `total`    | (K,)          | 1     |
"""

import math
from typing import Any
from typing import NamedTuple

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import slots_like
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

# The step grows by at most (5/4)^(1/6), 4% in a step, where its error is 0, and shrinks
# by at most (1e4/5)^(1/6), to a third.
LEAST_WEIGHT = 4.0
LARGEST_RATIO = 1e4
ORDER = 6.0  # of the squared error in epsilon
FIRST_ERROR = 5.0  # wanted error at the first step, relative to the last
BLOCK = 100  # steps that the guard takes together
UNSAFE = 10.0  # mean of xi in a block above which a step is too long


class Search(NamedTuple):
    """The state of the search."""

    log_step: Tensor
    weight: Tensor


class Guard(NamedTuple):
    """Where a block of steps began, and the sum of xi in the block so far."""

    point: Position
    gradient: Position
    energy: Tensor
    total: Tensor


def init_search(step_size: float) -> Search:
    """Return the search before the first step."""
    return Search(
        Slot("log_step", value=math.log(step_size)),
        Slot("search_weight", value=LEAST_WEIGHT),
    )


def update_search(search: Search, ratio: Tensor, averages: Tensor) -> Search:
    """Return the search after one more step, eq. (1) and (2).

    Args:
        search: before the step.
        ratio: xi, (K,). It may be infinite or NaN, which is the largest ratio.
        averages: bool, whether W grows, ().
    """
    largest = LARGEST_RATIO + 0.0 * search.weight
    ratio = ops.where(ratio < LARGEST_RATIO, ratio, largest)
    change = ops.log1p((ratio - 1.0) / (search.weight + 1.0)) / ORDER
    weight = ops.where(averages, search.weight + 1.0, LEAST_WEIGHT + 0.0 * largest)
    return Search(search.log_step - change, weight)


def init_guard(position: Position) -> Guard:
    """Return the guard before the first step."""
    return Guard(
        slots_like(position, "guard_point"),
        slots_like(position, "guard_gradient"),
        Slot("guard_energy"),
        Slot("guard_total"),
    )


def guarded(state: Any, ratio: Tensor, warm_up: int) -> tuple[Any, Tensor]:
    """Return the state after the guard, and which chains it has sent back, (K,).

    Args:
        state: after a step, with the number of the step. It has the fields `point`,
            `velocity`, `gradient`, `energy`, `number`, `guard` and `search`.
        ratio: xi, (K,). It may be infinite, or NaN if the step was not finite.
        warm_up: number of first steps, after which the guard begins.
    """
    guard, number = state.guard, state.number
    lost = ops.zeros_like(ratio) + 2.0 * UNSAFE
    total = guard.total + ops.where(ops.isnan(ratio), lost, ratio)
    unsafe = (total > UNSAFE * BLOCK) & (number >= warm_up)
    share = ops.cast(unsafe, "float32")
    log_step = state.search.log_step - math.log(2.0) * share
    state = state._replace(
        point=tensors.select(unsafe, guard.point, state.point),
        velocity=tensors.scaled(1.0 - share, state.velocity),  # 0 is drawn anew
        gradient=tensors.select(unsafe, guard.gradient, state.gradient),
        energy=ops.where(unsafe, guard.energy, state.energy),
        search=state.search._replace(log_step=log_step),
    )
    begins = (number < warm_up) | ((number + 1 - warm_up) % BLOCK == 0)
    guard = Guard(
        tensors.select(begins, state.point, guard.point),
        tensors.select(begins, state.gradient, guard.gradient),
        ops.where(begins, state.energy, guard.energy),
        ops.where(begins | unsafe, ops.zeros_like(total), total),
    )
    return state._replace(guard=guard), unsafe
