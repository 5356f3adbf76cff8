"""Microcanonical Langevin Monte Carlo (MCLMC): a velocity of constant length.

Papers: Robnik, De Luca, Silverstein and Seljak (2023), "Microcanonical Hamiltonian
Monte Carlo", for the steps, the partial refresh and the warm-up; Robnik and Seljak
(2024), "Fluctuation without dissipation: microcanonical Langevin Monte Carlo", for the
proof that the process in continuous time has the target; Sommer and others (2025),
"Microcanonical Langevin ensembles", for the falling error.

Target: exp(-U(theta)/T), up to the error of a finite step epsilon.

Equations of a step, with u the velocity of length 1 in d dimensions and s the scales:

    (1)  u <- (exp(-epsilon/L) u + nu Z) / |...|,  nu^2 = (1 - exp(-2 epsilon/L)) / d
    (2)  kick by time h, with f = (N/T) s grad(U/N)(theta), e = -f/|f|, c = e u and
         delta = h |f| / (d - 1):
             u <- (u + e (sinh(delta) + c (cosh(delta) - 1))) / b
             K <- K + (d - 1) log b,      b = cosh(delta) + c sinh(delta)
    (3)  drift by time h:  theta <- theta + h s u
    energy error  Delta E = Delta K + Delta U / T

    leapfrog: (2) epsilon/2, (3) epsilon, (2) epsilon/2

The papers write (1) as u + nu' Z with nu'^2 = (exp(2 epsilon/L) - 1)/d, which has the
same direction and overflows at large epsilon/L. In the same way (2) is computed with
zeta = exp(-delta) <= 1. The velocity is 0 before the first step, so that (1) draws its
direction.

A step to a point where energy or gradient is not finite is undone, and the velocity
turns round: (2) and (3) are reversible, so this keeps the target where it is finite.
The warm-up does the same if an energy error is 100 times as large as wanted.

The first `warm_up` steps of each chain find epsilon, and s by `step_adaptation.py`. In
units of the scales each variance is 1 if `scale_power` is 1. L is the root of their
sum, sqrt(d), the width of a target without correlations; others are wider. The
variance of the energy error per dimension decides about epsilon, since it bounds the
bias. The error of a symmetric step of second order is proportional to epsilon^3. With
xi_m the squared error of step m over its wanted mean, W imagined steps with xi = 1 give
a recursion of ours, in which the mean of xi comes to 1:

    (4)  log epsilon <- log epsilon - log((W + xi_m) / (W + 1)) / 6
    (5)  W <- min(W + 1, C)

While the warm-up still changes the scales, C is small, and the step follows fast. In
the last window C is infinite, and its steps are averaged. The wanted error falls while
C is small, from five times its last value: long steps take a chain far in a short time.

After the warm-up a guard checks the step, since rare steps may have errors that the
warm-up never saw. If the mean xi of a block of steps must be above `UNSAFE`, the chain
goes back to where the block began, with half of the step.

| paper    | name         | shape           | unit     |
|----------|--------------|-----------------|----------|
| u        | `velocity`   | list of tensors | 1        |
| s        | `scale`      | list of tensors | weights  |
| epsilon  | `log_step`   | (K,), its log   | 1        |
| W        | `weight`     | (K,)            | steps    |
| xi       | `ratio`      | (K,)            | 1        |
| Delta E  | `error`      | (K,)            | nats / T |
"""

import dataclasses
import math
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.hmc import drifted
from keras_mhmcmc.samplers.parts import step_adaptation
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

# First step, in units of sqrt(d). On a normal target the leapfrog has an energy error
# of 5e-4 per dimension at 0.62.
_FIRST_STEP = 0.5
# Float32 knows a sum of log-likelihoods to about this share of its value.
_ROUNDING = 1e-6
# The step grows by at most (5/4)^(1/6), 4% in a step, where its error is 0, and shrinks
# by at most (1e4/5)^(1/6), to a third.
LEAST_WEIGHT = 4.0
LARGEST_RATIO = 1e4
ORDER = 6.0  # of the squared error in epsilon
FIRST_ERROR = 5.0  # wanted error at the first step, relative to the last
BLOCK = 100  # steps that the guard takes together
UNSAFE = 10.0  # mean of xi in a block above which a step is too long
_ZERO_TO_ONE = _validate.Interval(0.0, 1.0, high_open=False)


class Search(NamedTuple):
    log_step: Tensor
    weight: Tensor


class Guard(NamedTuple):
    """Where a block of steps began, and the sum of xi in the block so far."""

    point: base.Position
    gradient: base.Position
    energy: Tensor
    total: Tensor


class State(NamedTuple):
    point: base.Position
    velocity: base.Position  # 0 before the first step
    gradient: base.Position  # of U/N at the point
    energy: Tensor  # at the point, (K,)
    number: Tensor  # of steps so far, int32, ()
    guard: Guard
    scale: base.Position
    search: Search
    spread: step_adaptation.Spread


@dataclasses.dataclass(frozen=True)
class mclmc(step_adaptation.WarmedUp):
    """Make microcanonical Langevin Monte Carlo, a kernel for `mh.sample`.

    The draws are biased: the kernel rejects nothing, and samples exp(-U/T) only in the
    limit of small steps. `energy_error` sets the bias. At its default, variances of
    normal targets are 2 to 4% too large. Take `mh.kernels.hmc` for the exact
    distribution. The energy U in nats is minus the log density.

    The velocity has a constant length. The gradient and a little noise turn it. A step
    of the chain, a leapfrog, needs one gradient. In the warm-up each chain learns its
    own step, and a scale for each weight: the standard deviation of this weight along
    the chain, to a power. After the warm-up a chain whose mean energy error in a block
    of 100 steps is above ten times `energy_error`, or half of whose steps are not
    finite, goes back to where the block began, and has half of the step from then on.

    The kernel needs at least two dimensions, a density with a gradient, and all of the
    data: leave out `batch_size`.

    `draws.info` has for each chain `step_size`, `decoherence_length`, how many steps
    were `nonfinite`, which undoes them, how many `returns` there were from steps that
    were too long, and `energy_error`: the mean squared error of the energy of the other
    steps, over T^2 and the number of dimensions. If it is far larger than the argument,
    so is the bias. This happens above 1e5 nats, which float32 rounds too coarsely, and
    `mh.sample` warns. Leave constants out of the log density.

    Args:
        step_size: length of the first step in units of the scales, which are 1 at
            first, or of all steps if `warm_up` is 0. Greater than 0. Defaults to None:
            half of the square root of the number of weights.
        decoherence_length: L of the papers: the distance, in units of the scales, after
            which the noise alone has turned the velocity. Greater than 0. Defaults to
            None: the square root of the number of weights, the width of a target
            without correlations.
        warm_up: number of first steps that adapt step and scales. The `burn_in` of
            `mh.sample` must be at least as long. With 0 nothing adapts, and nothing
            checks the step afterwards. Defaults to 1000.
        energy_error: mean squared energy error of a step, per dimension, that the
            warm-up ends with, from five times as much. Greater than 0. The step grows
            with its sixth root: a 64 times smaller value halves the step, and lowers
            the bias. Networks take 0.1, with a warm-up of 5,000 steps (Sommer and
            others 2025); standard deviations of a logistic regression are then 2 to 5%
            too small. Defaults to 5e-4.
        scale_power: power of the standard deviations that the scales are, from 0 to 1.
            0 leaves them at 1. A network takes 0.5: its warm-up sees only part of how
            far a weight goes. Defaults to 1.
        temperature: T, a number greater than 0. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range, or `step_size` is None with
            `warm_up` 0.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.mclmc(warm_up=5000, energy_error=0.1)  # of a network

    Reference: Robnik, De Luca, Silverstein and Seljak (2023); Robnik and Seljak (2024).
    For networks: Sommer and others (2025). For mini-batches: Sommer and others (2026),
    "Can microcanonical Langevin dynamics leverage mini-batch gradient noise?"
    """

    step_size: float | None = None
    _: dataclasses.KW_ONLY
    decoherence_length: float | None = None
    warm_up: int = 1000
    energy_error: float = 5e-4
    scale_power: float = 1.0
    temperature: float = 1.0

    reason = (
        ": the noise of mini-batches adds a bias of its own. With mini-batches use "
        "`mh.kernels.sghmc` or `mh.kernels.amagold`"
    )

    def __post_init__(self) -> None:
        length = base.OrNone(base.POSITIVE)
        base.check(self, step_size=length, decoherence_length=length, warm_up=0)
        base.check(self, energy_error=base.POSITIVE, temperature=base.POSITIVE)
        base.check(self, scale_power=_ZERO_TO_ONE)
        if self.step_size is None and self.warm_up == 0:
            raise ValueError(
                "Argument `step_size` must be a number if `warm_up` is 0: without a "
                "warm-up nothing finds the step. Received: step_size=None, warm_up=0"
            )

    @property
    def traits(self) -> base.Traits:
        settings = ("steps", "step_size", "decoherence_length")
        return base.Traits(
            counts=(*settings, "energy_error", "measured", "nonfinite", "returns"),
            draws_data=True,
            draws_once=True,
            is_flat=True,
            warm_up=self.warm_up,
            warm_up_argument=("warm_up", self.warm_up),
        )

    def energy_unit(self, number: int, dimension: int) -> float | None:
        if self.warm_up == 0:
            return None
        return self.temperature * math.sqrt(self.energy_error * dimension)

    def init(self, position: base.Position) -> State:
        dimension = tensors.size(position, like=position[0])
        if dimension < 2:
            raise ValueError(
                "Argument `init` must have at least 2 numbers for each chain with "
                "`mh.kernels.mclmc`: in one dimension a velocity of length 1 never "
                "turns. Use `mh.kernels.hmc`. Received: a position of 1 number"
            )
        step_size = self.step_size or _FIRST_STEP * math.sqrt(dimension)
        return State(
            position,
            base.slots_like(position, "velocity"),
            base.slots_like(position, "gradient"),
            base.Slot("energy"),
            base.Slot("number", dtype="int32", value=0, is_shared=True),
            Guard(
                base.slots_like(position, "guard_point"),
                base.slots_like(position, "guard_gradient"),
                base.Slot("guard_energy"),
                base.Slot("guard_total"),
            ),
            base.slots_like(position, "scale", value=1.0),
            init_search(step_size),
            step_adaptation.init_spread(position),
        )

    def step(
        self, state: State, density: base.Density
    ) -> tuple[State, base.Position, dict[str, Tensor]]:
        energy, gradient = tensors.when(
            state.number < 1,
            lambda _: density.energies_and_gradient(state.point),
            (state.energy, list(state.gradient)),
            at_first=True,
        )
        dimension = tensors.size(state.point, like=energy)
        length = self.decoherence_length or math.sqrt(dimension)
        step = ops.exp(state.search.log_step)
        velocity = refreshed(state.velocity, density.normals(0), step, length)
        moved = self._path(
            state._replace(velocity=velocity, gradient=gradient, energy=energy),
            step,
            density,
        )
        point, turned, new_gradient, new_energy, kinetic = moved
        error = kinetic + (new_energy - energy) / self.temperature
        finite = ops.isfinite(error)
        ratio = ops.square(error) / self._wanted(dimension, energy, state.number)
        # A first step that is far too large would throw the chain far out.
        throws = ratio >= LARGEST_RATIO
        moves = finite & ~(throws & (state.number < self.warm_up))
        new = state._replace(
            point=tensors.select(moves, point, state.point),
            velocity=tensors.select(moves, turned, [-u for u in velocity]),
            gradient=tensors.select(moves, new_gradient, gradient),
            energy=ops.where(moves, new_energy, energy),
        )
        returns = ops.zeros_like(finite)
        if self.warm_up > 0:
            new = self._adapted(new, ratio, dimension)
            new, returns = guarded(new, ratio, self.warm_up)
        measured = finite & ~returns
        zero = ops.zeros_like(energy)
        counts = {
            "steps": zero + 1.0,
            "step_size": step,
            "decoherence_length": zero + length,
            "energy_error": ops.where(measured, ops.square(error) / dimension, zero),
            "measured": ops.cast(measured, "float32"),
            "nonfinite": ops.cast(~finite, "float32"),
            "returns": ops.cast(returns, "float32"),
        }
        return new._replace(number=state.number + 1), list(new.point), counts

    def _path(
        self, state: State, step: Tensor, density: base.Density
    ) -> tuple[base.Position, base.Position, base.Position, Tensor, Tensor]:
        """Return point, velocity, gradient, energy, and change of kinetic energy."""
        point, velocity, gradient, energy = state[:4]
        half, scale = (0.5 * density.train_size / self.temperature) * step, state.scale
        velocity, before = kicked(velocity, gradient, scale, half)
        point = drifted(point, velocity, scale, step)
        energy, gradient = density.energies_and_gradient(point)
        velocity, after = kicked(velocity, gradient, scale, half)
        return point, velocity, gradient, energy, before + after

    def _wanted(self, dimension: int, energy: Tensor, number: Tensor) -> Tensor:
        """Return the mean squared energy error that is wanted at a step, (K,).

        It falls until the last window of the warm-up. It grows with what float32 leaves
        open: otherwise the step of a large energy would shrink without end.
        """
        falls = max(1.0, step_adaptation.WINDOWS[-1] * self.warm_up)
        rest = ops.maximum(1.0 - ops.cast(number, "float32") / falls, 0.0)
        wanted = 1.0 + (FIRST_ERROR - 1.0) * rest
        rounding = _ROUNDING / self.temperature * energy
        return wanted * (self.energy_error * dimension) + ops.square(rounding)

    def _adapted(self, state: State, ratio: Tensor, dimension: int) -> State:
        """Return the state with step and scales, new ones until the warm-up is over."""

        def learned(before: Any) -> Any:
            scale, search, spread = before
            parts = spread, scale, state.point, state.number, self.warm_up
            found = step_adaptation.renewed(*parts, self.scale_power)
            spread, scale, renews, window = found
            averages = window == len(step_adaptation.WINDOWS)
            search = update_search(search, ratio, averages)
            # The first scales change the unit of the step.
            first = math.log(_FIRST_STEP) + 0.5 * math.log(dimension)
            changes, log_step = renews & (window == 1), search.log_step
            log_step = ops.where(changes, first + 0.0 * log_step, log_step)
            return scale, search._replace(log_step=log_step), spread

        before = state.scale, state.search, state.spread
        warms_up = state.number < self.warm_up
        scale, search, spread = tensors.when(warms_up, learned, before)
        return state._replace(scale=list(scale), search=search, spread=spread)

    def check(self, state: State) -> None:
        with np.errstate(over="ignore"):
            finite = [np.isfinite(np.square(g)).all() for g in state.gradient]
        if not all(finite):
            raise ValueError(
                "Argument `init` must be where the gradient of the log density is "
                "finite, and its square too. Received: a position without"
            )

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        steps, names = counts["steps"], ("step_size", "decoherence_length")
        found = {name: base.share(counts[name], steps) for name in names}
        found["energy_error"] = base.share(counts["energy_error"], counts["measured"])
        return found | {name: counts[name] for name in ("nonfinite", "returns")}


def init_search(step_size: float) -> Search:
    return Search(
        base.Slot("log_step", value=math.log(step_size)),
        base.Slot("search_weight", value=LEAST_WEIGHT),
    )


def update_search(search: Search, ratio: Tensor, averages: Tensor) -> Search:
    """Return the search after one more step, eq. (4) and (5); `averages`: W grows.

    `ratio` is xi, (K,). It may be infinite or NaN, which is the largest ratio.
    """
    largest = LARGEST_RATIO + 0.0 * search.weight
    ratio = ops.where(ratio < LARGEST_RATIO, ratio, largest)
    change = ops.log1p((ratio - 1.0) / (search.weight + 1.0)) / ORDER
    weight = ops.where(averages, search.weight + 1.0, LEAST_WEIGHT + 0.0 * largest)
    return Search(search.log_step - change, weight)


def guarded(state: Any, ratio: Tensor, warm_up: int) -> tuple[Any, Tensor]:
    """Return the state after the guard, and which chains it has sent back, (K,).

    `ratio` is xi, (K,). It may be infinite, or NaN if the step was not finite.
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


def refreshed(
    velocity: base.Position, normals: base.Position, step: Tensor, length: float
) -> base.Position:
    """Return the velocity after a partial refresh, (1)."""
    dimension = tensors.size(velocity, like=step)
    nu = ops.sqrt(-ops.expm1(step * (-2.0 / length)) / dimension)
    keep = ops.exp(step * (-1.0 / length))
    kept = tensors.scaled(keep, velocity)
    return normalised(tensors.add_scaled(kept, nu, normals), velocity, step)


def kicked(
    velocity: base.Position,
    gradient: base.Position,
    scale: base.Position,
    factor: Tensor,
) -> tuple[base.Position, Tensor]:
    """Return the velocity after a kick, and the change of the kinetic energy, (2).

    `gradient` is that of U/N, and `factor` is the time of the kick times N/T, (K,).
    """
    rest = tensors.size(velocity, like=factor) - 1
    force = [s * g for s, g in zip(scale, gradient, strict=True)]
    size = ops.sqrt(tensors.sum_squares(force, like=factor))
    divisor = ops.where(size > 0.0, size, ops.ones_like(size))
    cosine = ops.clip(-tensors.dot(force, velocity, like=factor) / divisor, -1.0, 1.0)
    delta = factor * size / rest
    zeta = ops.exp(-delta)
    less = -ops.expm1(-delta)  # 1 - zeta
    along = less * (1.0 + zeta + cosine * less)
    moved = tensors.add_scaled(
        tensors.scaled(2.0 * zeta, velocity), -along / divisor, force
    )
    change = rest * log_factor(delta, cosine)
    return normalised(moved, velocity, factor), change


def log_factor(delta: Tensor, cosine: Tensor) -> Tensor:
    """Return log(cosh(delta) + c sinh(delta)), for delta >= 0 and c in [-1, 1].

    The first form is exact where delta is small, the second where it is large.
    """
    small = ops.minimum(delta, ops.ones_like(delta))
    ahead, behind = 0.5 * (1.0 + cosine), 0.5 * (1.0 - cosine)
    near = small + ops.log1p(behind * ops.expm1(-2.0 * small))
    far = delta + ops.logaddexp(ops.log(ahead), ops.log(behind) - 2.0 * delta)
    return ops.where(delta < 1.0, near, far)


def normalised(
    xs: base.Position, otherwise: base.Position, like: Tensor
) -> base.Position:
    """Return x / |x|; `otherwise` where x is 0."""
    size = ops.sqrt(tensors.sum_squares(xs, like=like))
    divisor = ops.where(size > 0.0, size, ops.ones_like(size))
    return tensors.select(size > 0.0, tensors.scaled(1.0 / divisor, xs), otherwise)
