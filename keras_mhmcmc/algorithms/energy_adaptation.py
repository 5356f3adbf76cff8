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

| symbol  | name       | shape         | unit  |
|---------|------------|---------------|-------|
| epsilon | `log_step` | (K,), its log | 1     |
| W       | `weight`   | (K,)          | steps |
| xi      | `ratio`    | (K,)          | 1     |
"""

import math
from typing import NamedTuple

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms.base import Slot
from keras_mhmcmc.algorithms.tensors import ops

# The step grows by at most (5/4)^(1/6), 4% in a step, where its error is 0, and shrinks
# by at most (1e4/5)^(1/6), to a third.
LEAST_WEIGHT = 4.0
LARGEST_RATIO = 1e4
ORDER = 6.0  # of the squared error in epsilon


class Search(NamedTuple):
    """The state of the search."""

    log_step: Tensor
    weight: Tensor


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
