"""Find the step of Hamiltonian Monte Carlo, and a scale for each weight, in a warm-up.

Papers: Hoffman and Gelman (2014), "The No-U-Turn sampler", section 3.2, eq. (6), for
the step; Welford (1962), "Note on a method for calculating corrected sums of squares
and products", for the scales. The order of windows follows Stan's.

Equations of dual averaging, with a_m the acceptance probability of path m, and epsilon
the step in units of the scales:

    (1)  H     <- (1 - 1/(m + t_0)) H + (delta - a_m) / (m + t_0)
    (2)  log epsilon     <- mu - sqrt(m) / gamma H,      mu = log(10 epsilon_1)
    (3)  log epsilon_bar <- m^(-kappa) log epsilon + (1 - m^(-kappa)) log epsilon_bar

A path of the warm-up has the step epsilon, all later paths have epsilon_bar. The first
and the last tenth of the warm-up adapt the step alone. Between them are three windows,
each about twice as long as the one before. Each gives new scales, the standard
deviations of its own positions, and dual averaging starts again. Unlike Stan's, the
variances are not shrunk: the warm-up does not depend on the unit of a weight.
"""

import math
from typing import Any
from typing import NamedTuple
from typing import Self

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

# The paper has 0.05, for warm-ups of thousands of paths. In a window of 50 paths the
# step then swings so far that later paths were accepted at 0.88 to 0.94 instead of 0.8.
# With 0.3 they were accepted at 0.80 and 0.81 (normal targets, 4 and 50 dimensions).
GAMMA = 0.3
T_0 = 10.0
KAPPA = 0.75
# Ends of the windows, as shares of the warm-up. The first window has no scales.
WINDOWS = (0.1, 0.2, 0.4, 0.9)
LEAST_COUNT = 5.0  # positions that make a standard deviation


class Step(NamedTuple):
    count: Tensor  # m, paths, (K,)
    error: Tensor  # H, (K,)
    log_step: Tensor  # log epsilon, (K,)
    log_average: Tensor  # log epsilon_bar, (K,)


class Spread(NamedTuple):
    """The sums that make a standard deviation of each weight."""

    count: Tensor  # (K,), float32
    mean: base.Position  # weights
    squares: base.Position  # sum of squared differences from the mean, weights^2


def init_step(step_size: float) -> Step:
    log_step = math.log(step_size)
    return Step(
        count=base.Slot("adaptation_count"),
        error=base.Slot("adaptation_error"),
        log_step=base.Slot("log_step", value=log_step),
        log_average=base.Slot("log_average_step", value=log_step),
    )


def init_spread(position: base.Position) -> Spread:
    return Spread(
        count=base.Slot("spread_count"),
        mean=base.slots_like(position, "spread_mean"),
        squares=base.slots_like(position, "spread_squares"),
    )


def update_step(
    state: Step, probability: Tensor, *, step_size: float, target: float
) -> Step:
    """Return the state after one more path, eq. (1) to (3).

    `probability` is a_m, (K,), `step_size` is epsilon_1, and `target` is delta.
    """
    count = state.count + 1.0
    share = 1.0 / (count + T_0)
    error = (1.0 - share) * state.error + share * (target - probability)
    log_step = math.log(10.0 * step_size) - ops.sqrt(count) / GAMMA * error
    forget = ops.power(count, -KAPPA)
    log_average = forget * log_step + (1.0 - forget) * state.log_average
    return Step(count, error, log_step, log_average)


def restart_step(state: Step, step_size: float) -> Step:
    zero = ops.zeros_like(state.count)
    log_step = zero + math.log(step_size)
    return Step(zero, zero, log_step, log_step)


def update_spread(state: Spread, position: base.Position) -> Spread:
    count = state.count + 1.0
    before = tensors.subtract(position, state.mean)
    mean = tensors.add_scaled(state.mean, 1.0 / count, before)
    after = tensors.subtract(position, mean)
    products = [x * y for x, y in zip(before, after, strict=True)]
    return Spread(count, mean, tensors.add_scaled(state.squares, 1.0, products))


def scales_of(
    state: Spread, scales: base.Position, power: float = 1.0
) -> base.Position:
    """Return powers of standard deviations; where one is 0, the scale stays."""
    share = 1.0 / ops.maximum(state.count - 1.0, 1.0)
    found = []
    for squares, scale in zip(state.squares, scales, strict=True):
        variance = squares * ops.cast(tensors.along_chains(share, squares), scale.dtype)
        root = ops.power(ops.maximum(variance, 1e-36), 0.5 * power)
        found.append(ops.where(variance > 1e-36, root, scale))
    return found


def window_of(number: Tensor, warm_up: int) -> Tensor:
    """Return how many windows have ended before the step `number`, int32, ()."""
    ends = [math.ceil(share * warm_up) for share in WINDOWS]
    return sum(ops.cast(number >= end, "int32") for end in ends)


def renewed(
    spread: Spread,
    scale: base.Position,
    point: base.Position,
    number: Tensor,
    warm_up: int,
    power: float = 1.0,
) -> tuple[Spread, base.Position, Tensor, Tensor]:
    """Return sums and scales after one more position, new ones where a window ends.

    Then which chains have new scales, bool (K,), and the window of the step.
    """
    window = window_of(number, warm_up)
    closes = window_of(number + 1, warm_up) > window
    spread = update_spread(spread, point)
    renews = closes & (window > 0) & (spread.count >= LEAST_COUNT)
    scale = tensors.select(renews, scales_of(spread, scale, power), scale)
    empty = base.map_leaves(ops.zeros_like, spread)
    return chosen(closes, empty, spread), scale, renews, window


def chosen(condition: Tensor, if_true: Any, if_false: Any) -> Any:
    """Return a named tuple of numbers (K,) and positions, chosen for each chain."""
    return type(if_true)(
        *(
            tensors.select(condition & ops.ones(x[0].shape[:1], "bool"), x, y)
            if isinstance(x, list)
            else ops.where(condition, x, y)
            for x, y in zip(if_true, if_false, strict=True)
        )
    )


class WarmedUp(base.Kernel):
    """Abstract: a kernel on all of the data that adapts in its first steps."""

    reason = ""  # why there are no mini-batches, and what to use with them

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        if batch_size is not None and batch_size != train_size:
            name = type(self).__name__
            raise ValueError(
                f"Argument `batch_size` must be None with `mh.kernels.{name}`"
                f"{self.reason}. Received: batch_size={batch_size}"
            )
        return self
