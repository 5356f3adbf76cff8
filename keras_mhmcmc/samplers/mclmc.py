"""Microcanonical Langevin Monte Carlo (MCLMC): a velocity of constant length.

Papers: Robnik, De Luca, Silverstein and Seljak (2023), "Microcanonical Hamiltonian
Monte Carlo", for the steps, the partial refresh and the warm-up; Robnik and Seljak
(2024), "Fluctuation without dissipation: microcanonical Langevin Monte Carlo", for the
proof that the process in continuous time has the target.

Target: exp(-U(theta)/T), up to the error of a finite step epsilon. Nothing is rejected.
U needs all of the data.

Equations of a step, with u the velocity of length 1 in d dimensions and s the scales:

    (1)  u <- (exp(-epsilon/L) u + nu Z) / |...|,  nu^2 = (1 - exp(-2 epsilon/L)) / d
    (2)  kick by time h, with f = (N/T) s grad(U/N)(theta), e = -f/|f|, c = e u and
         delta = h |f| / (d - 1):
             u <- (u + e (sinh(delta) + c (cosh(delta) - 1))) / b
             K <- K + (d - 1) log b,      b = cosh(delta) + c sinh(delta)
    (3)  drift by time h:  theta <- theta + h s u
    energy error  Delta E = Delta K + Delta U / T

    leapfrog:      (2) epsilon/2, (3) epsilon, (2) epsilon/2
    minimal norm:  (2) a epsilon, (3) epsilon/2, (2) (1 - 2 a) epsilon, (3) epsilon/2,
                   (2) a epsilon, with a = 0.1931833

The papers write (1) as u + nu' Z with nu'^2 = (exp(2 epsilon/L) - 1)/d, which has the
same direction and overflows at large epsilon/L. In the same way (2) is computed with
zeta = exp(-delta) <= 1. The velocity is 0 before the first step, so that (1) draws its
direction.

A step to a point where energy or gradient is not finite is undone, and the velocity
turns round: (2) and (3) are reversible, so this keeps the target where it is finite.
The warm-up does the same if an energy error is 100 times as large as wanted.

`energy_adaptation.py` finds epsilon, and `step_adaptation.py` finds s, in the first
`warm_up` steps of each chain. Both stay as they are afterwards, unless the guard of
`energy_adaptation.py` sends a chain back with half of epsilon. In units of the scales
each variance is 1. L is the root of the sum of the variances, sqrt(d).

| paper    | name                  | shape           | unit                        |
|----------|-----------------------|-----------------|-----------------------------|
| theta, x | `point`               | list of tensors | weights                     |
| u        | `velocity`            | list of tensors | 1                           |
| s        | `scale`               | list of tensors | weights                     |
| epsilon  | `step_size`           | (K,)            | 1                           |
| L        | `decoherence_length`  | float           | 1                           |
| grad(U/N)| `gradient`            | list of tensors | nats per example and weight |
| U        | `energy`              | (K,)            | nats                        |
| Delta E  | `error`               | (K,)            | nats / T                    |
| d        | `dimension`           | int             | weights                     |
| T        | `temperature`         | float           | 1                           |
| Z        | `normals`             | list of tensors | 1                           |
"""

import dataclasses
import math
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import energy_adaptation
from keras_mhmcmc.samplers.parts import step_adaptation
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

_A = 0.1931833275037836
# Shares of epsilon: kicks, and the drifts between them.
_INTEGRATORS = {
    "leapfrog": ((0.5, 0.5), (1.0,)),
    "minimal_norm": ((_A, 1.0 - 2.0 * _A, _A), (0.5, 0.5)),
}
# First step, in units of sqrt(d). On a normal target the leapfrog has an energy error
# of 5e-4 per dimension at 0.62.
_FIRST_STEP = 0.5
# Float32 knows a sum of log-likelihoods to about this share of its value.
_ROUNDING = 1e-6


class State(NamedTuple):
    """The state of the chains, and what the warm-up has learned."""

    point: base.Position
    velocity: base.Position  # 0 before the first step
    gradient: base.Position  # of U/N at the point
    energy: Tensor  # at the point, (K,)
    number: Tensor  # of steps so far, int32, ()
    guard: energy_adaptation.Guard
    scale: base.Position
    search: energy_adaptation.Search
    spread: step_adaptation.Spread


@dataclasses.dataclass(frozen=True)
class mclmc(base.Kernel):
    """Make microcanonical Langevin Monte Carlo, a kernel for `mh.sample`.

    The draws are biased: the kernel rejects nothing, and samples exp(-U/T) only in the
    limit of small steps. `energy_error` sets the bias. At its default, variances
    of normal targets are 2 to 4% too large with "leapfrog", and up to 4% too small with
    "minimal_norm". Take `mh.kernels.hmc` for the exact distribution. The energy U in
    nats is minus the log density.

    The velocity has a constant length. The gradient and a little noise turn it. A step
    of the chain needs one gradient (two with "minimal_norm"). In the warm-up each chain
    learns its own step, and a scale for each weight: the standard deviation of this
    weight along the chain.

    After the warm-up the step is checked. A chain whose mean energy error in a block of
    100 steps is above ten times `energy_error` goes back to where the block began, and
    has half of the step from then on. Its draws from before are kept: their errors were
    below the limit. A chain goes back, too, if half of the steps of a block are not
    finite.

    The kernel needs at least two dimensions, a density with a gradient, and all of the
    data. Leave out `batch_size`: the noise of mini-batches differs from direction to
    direction, and would add a bias of its own (Sommer and others, 2026).

    `draws.info` has for each chain the `step_size`, the `decoherence_length`, the
    `energy_error`, how many steps were `nonfinite`, and how many `returns` there were
    from steps that were too long. A step that is not finite is undone. The energy error
    is the mean over the other steps of the squared error of the energy, divided by T^2
    and by the number of dimensions. Compare it with the argument: if it is far larger,
    the bias is larger than asked for. This happens at energies above 1e5 nats, which
    float32 rounds too coarsely, and `mh.sample` warns. Leave constants out of the log
    density.

    Args:
        step_size: length of the first step in units of the scales, which are 1 at
            first. Greater than 0. All steps have this length if `warm_up` is 0.
            Defaults to None: half of the square root of the number of weights.
        decoherence_length: L of the papers: the distance, in units of the scales, after
            which the noise alone has turned the velocity. Greater than 0. Defaults to
            None: the square root of the number of weights, which is the width of the
            target in these units.
        integrator: "leapfrog", or "minimal_norm" with steps that are twice as long at
            the same error, and two gradients. Defaults to "leapfrog".
        warm_up: number of first steps that adapt step and scales. The `burn_in` of
            `mh.sample` must be at least as long. With 0 nothing adapts, and nothing
            checks the step afterwards. Defaults to 1000.
        energy_error: mean squared energy error of a step, per dimension, that the
            warm-up ends with. Greater than 0. It begins with five times as
            much, and falls steadily over its first nine tenths. The step grows with its
            sixth root: a 64 times smaller value halves the step, and lowers the bias.
            Networks take 0.1, with a warm-up of 5,000 steps (Sommer and others 2025).
            Standard deviations of a logistic regression are then 2 to 5% too small.
            Defaults to 5e-4.
        temperature: T, a number greater than 0. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range, or `step_size` is None with
            `warm_up` 0.

    Example:

    >>> import keras_mhmcmc as mh
    >>> from keras import ops
    >>> draws = mh.sample(
    ...     mh.kernels.mclmc(warm_up=200),
    ...     [0.0, 0.0, 0.0],
    ...     log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
    ...     num_steps=400,
    ...     burn_in=200,
    ...     num_chains=4,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (4, 200, 3)

    Reference: Robnik, De Luca, Silverstein and Seljak (2023), "Microcanonical
    Hamiltonian Monte Carlo"; Robnik and Seljak (2024), "Fluctuation without
    dissipation: microcanonical Langevin Monte Carlo". For networks: Sommer and others
    (2025), "Microcanonical Langevin ensembles". For mini-batches: Sommer and others
    (2026), "Can microcanonical Langevin dynamics leverage mini-batch gradient noise?"
    """

    step_size: float | None = None
    _: dataclasses.KW_ONLY
    decoherence_length: float | None = None
    integrator: str = "leapfrog"
    warm_up: int = 1000
    energy_error: float = 5e-4
    temperature: float = 1.0

    def __post_init__(self) -> None:
        positive = _validate.POSITIVE
        names = ("step_size", "decoherence_length")
        values = {name: getattr(self, name) for name in names}
        base.set_checked(
            self,
            **{
                name: None if value is None else _validate.number(name, value, positive)
                for name, value in values.items()
            },
            integrator=_validate.choice(
                "integrator", self.integrator, tuple(_INTEGRATORS)
            ),
            warm_up=_validate.integer("warm_up", self.warm_up, 0),
            energy_error=_validate.number("energy_error", self.energy_error, positive),
            temperature=_validate.number("temperature", self.temperature, positive),
        )
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
            is_flat=True,
            warm_up=self.warm_up,
            warm_up_argument=("warm_up", self.warm_up),
        )

    def energy_unit(self, number: int, dimension: int) -> float | None:
        if self.warm_up == 0:
            return None
        return self.temperature * math.sqrt(self.energy_error * dimension)

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        if batch_size is not None and batch_size != train_size:
            raise ValueError(
                "Argument `batch_size` must be None with `mh.kernels.mclmc`: the noise "
                "of mini-batches adds a bias of its own. With mini-batches use "
                "`mh.kernels.sghmc` or `mh.kernels.amagold`. "
                f"Received: batch_size={batch_size}"
            )
        return self

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
            energy_adaptation.init_guard(position),
            base.slots_like(position, "scale", value=1.0),
            energy_adaptation.init_search(step_size),
            step_adaptation.init_spread(position),
        )

    def step(
        self, state: State, density: base.Density
    ) -> tuple[State, base.Position, dict[str, Tensor]]:
        energy, gradient = tensors.when(
            state.number < 1,
            lambda _: density.energies_and_gradient(state.point),
            (state.energy, list(state.gradient)),
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
        throws = ratio >= energy_adaptation.LARGEST_RATIO
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
            new, returns = energy_adaptation.guarded(new, ratio, self.warm_up)
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
        """Return point, velocity, gradient, energy, and change of the kinetic energy.

        Args:
            state: before the step.
            step: epsilon, (K,).
            density: of the target.
        """
        point, velocity, gradient = state.point, state.velocity, state.gradient
        energy = state.energy
        (first, *kicks), drifts = _INTEGRATORS[self.integrator]
        factor = density.train_size / self.temperature
        velocity, kinetic = kicked(
            velocity, gradient, state.scale, (first * factor) * step
        )
        for drift, kick in zip(drifts, kicks, strict=True):
            point = drifted(point, velocity, state.scale, drift * step)
            energy, gradient = density.energies_and_gradient(point)
            velocity, change = kicked(
                velocity, gradient, state.scale, (kick * factor) * step
            )
            kinetic = kinetic + change
        return point, velocity, gradient, energy, kinetic

    def _wanted(self, dimension: int, energy: Tensor, number: Tensor) -> Tensor:
        """Return the mean squared energy error that is wanted at a step, (K,).

        It falls until the last window of the warm-up begins. It grows with what float32
        leaves open. Without that a step of a large energy would shrink without end.
        """
        falls = max(1.0, step_adaptation.WINDOWS[-1] * self.warm_up)
        rest = ops.maximum(1.0 - ops.cast(number, "float32") / falls, 0.0)
        wanted = 1.0 + (energy_adaptation.FIRST_ERROR - 1.0) * rest
        rounding = _ROUNDING / self.temperature * energy
        return wanted * (self.energy_error * dimension) + ops.square(rounding)

    def _adapted(self, state: State, ratio: Tensor, dimension: int) -> State:
        """Return the state with step and scales, learned if the warm-up is not over.

        Args:
            state: after the step, with the number of the step.
            ratio: squared energy error over its wanted mean, (K,).
            dimension: d.
        """
        scale, search, spread = tensors.when(
            state.number < self.warm_up,
            lambda learned: self._learned(learned, state, ratio, dimension),
            (state.scale, state.search, state.spread),
        )
        return state._replace(scale=list(scale), search=search, spread=spread)

    def _learned(
        self, learned: Any, state: State, ratio: Tensor, dimension: int
    ) -> tuple[base.Position, energy_adaptation.Search, step_adaptation.Spread]:
        """Return scale, search and spread after a step of the warm-up."""
        scale, search, spread = learned
        window = step_adaptation.window_of(state.number, self.warm_up)
        closes = step_adaptation.window_of(state.number + 1, self.warm_up) > window
        search = energy_adaptation.update_search(
            search, ratio, window == len(step_adaptation.WINDOWS)
        )
        spread = step_adaptation.update_spread(spread, state.point)
        renews = closes & (window > 0) & (spread.count >= step_adaptation.LEAST_COUNT)
        found = step_adaptation.scales_of(spread, scale)
        # The first scales change the unit of the step.
        first = math.log(_FIRST_STEP) + 0.5 * math.log(dimension)
        log_step = ops.where(
            renews & (window == 1), first + 0.0 * search.log_step, search.log_step
        )
        spread = step_adaptation.chosen(
            closes, step_adaptation.empty_spread(spread), spread
        )
        scale = tensors.select(renews, found, scale)
        return scale, search._replace(log_step=log_step), spread

    def check(self, state: State) -> None:
        """Raise an error if the chains cannot move from their start."""
        with np.errstate(over="ignore"):
            finite = [np.isfinite(np.square(g)).all() for g in state.gradient]
        if not all(finite):
            raise ValueError(
                "Argument `init` must be where the gradient of the log density is "
                "finite, and its square too. Received: a position without"
            )

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        with np.errstate(invalid="ignore"):
            return {
                "step_size": counts["step_size"] / counts["steps"],
                "decoherence_length": counts["decoherence_length"] / counts["steps"],
                "energy_error": counts["energy_error"] / counts["measured"],
                "nonfinite": counts["nonfinite"],
                "returns": counts["returns"],
            }


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

    Args:
        velocity: u.
        gradient: of U/N.
        scale: s.
        factor: time of the kick times N/T, (K,).
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


def drifted(
    position: base.Position, velocity: base.Position, scale: base.Position, step: Tensor
) -> base.Position:
    """Return the position after a drift, (3)."""
    moves = [s * u for s, u in zip(scale, velocity, strict=True)]
    return tensors.add_scaled(position, step, moves)


def normalised(
    xs: base.Position, otherwise: base.Position, like: Tensor
) -> base.Position:
    """Return x / |x|; `otherwise` where x is 0."""
    size = ops.sqrt(tensors.sum_squares(xs, like=like))
    divisor = ops.where(size > 0.0, size, ops.ones_like(size))
    return tensors.select(size > 0.0, tensors.scaled(1.0 / divisor, xs), otherwise)
