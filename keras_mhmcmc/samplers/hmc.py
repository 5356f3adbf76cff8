"""Hamiltonian Monte Carlo (HMC): a path of gradients, and a test at its end.

Papers: Neal (2011), "MCMC using Hamiltonian dynamics", sections 3.2 and 5.3.2, for the
paths; Hoffman and Gelman (2014), "The No-U-Turn sampler", section 3.2, for the step.

Target: exp(-U(theta)/T), exactly, after the warm-up. U needs all of the data.

Equations of a path of l steps, with r the momentum in units of its own standard
deviation. The mass of a weight is 1/s^2:

    start   r ~ N(0, I),   h = epsilon (1 + 0.2 (2 u' - 1)),   q = theta + h/2 s r
    (1)     r <- r - h (N/T) s grad(U/N)(q)
    (2)     q <- q + h s r            (1) and (2) l times, the last (2) with h/2
    end     log r = (U(theta) - U(q))/T + (|r_start|^2 - |r|^2)/2
            accept q if log u < log r

The position moves first, so that a path of l steps needs l gradients. The random h
keeps a path from having the length of a period of the target.

| paper     | name             | shape           | unit                        |
|-----------|------------------|-----------------|-----------------------------|
| r         | `momentum`       | list of tensors | 1                           |
| s         | `scale`          | list of tensors | weights                     |
| epsilon   | `step_size`      | (K,)            | 1                           |
| l         | `leapfrog_steps` | int             | gradients                   |
"""

import dataclasses
from typing import NamedTuple

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import step_adaptation
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

_JITTER = 0.2  # of the step, relative
_ENOUGH = 50  # paths, to know the acceptance


class State(NamedTuple):
    point: base.Position
    energy: Tensor  # at the point, (K,)
    number: Tensor  # of paths so far, int32, ()
    scale: base.Position
    adaptation: step_adaptation.Step
    spread: step_adaptation.Spread


@dataclasses.dataclass(frozen=True)
class hmc(step_adaptation.WarmedUp):
    """Make Hamiltonian Monte Carlo, a kernel for `mh.sample`.

    After the warm-up the kernel samples exp(-U/T) exactly. The energy U in nats is
    minus the log density. The density needs a gradient. Each step needs all of the
    data, so leave out `batch_size`.

    A step of the chain is a path of `leapfrog_steps` gradients, at whose end one energy
    decides. So `num_steps` and `burn_in` count paths. In the warm-up each chain learns
    its own step, and a scale for each weight: the standard deviation of this weight
    along the chain. `draws.info` has the `acceptance` and the `step_size` of each
    chain.

    Args:
        leapfrog_steps: gradients of a path, at least 1. A path has the length
            leapfrog_steps * step_size, in units of the scales. Lengths of about 1.5 to
            3 mix best. Defaults to 10.
        step_size: first step in units of the scales, which are 1 at first. It is the
            step of all paths if `warm_up` is 0. Greater than 0. Defaults to 0.1.
        warm_up: number of first paths that adapt. The `burn_in` of `mh.sample` must be
            at least as long. Defaults to 500.
        target_acceptance: mean acceptance probability that the warm-up aims at, in
            (0, 1). Defaults to 0.8.
        temperature: T, a number greater than 0. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> from keras import ops
    >>> draws = mh.sample(
    ...     mh.kernels.hmc(warm_up=100),
    ...     [0.0, 0.0],
    ...     log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
    ...     num_steps=200,
    ...     burn_in=100,
    ...     num_chains=4,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (4, 100, 2)

    Reference: Neal (2011), section 3.2; Hoffman and Gelman (2014), section 3.2.
    """

    _: dataclasses.KW_ONLY
    leapfrog_steps: int = 10
    step_size: float = 0.1
    warm_up: int = 500
    target_acceptance: float = 0.8
    temperature: float = 1.0

    @property
    def traits(self) -> base.Traits:
        return base.Traits(
            counts=("accepted", "proposed", "step_size", "nonfinite"),
            draws_data=True,
            is_flat=True,
            warns_of_rejections=True,
            warm_up=self.warm_up,
            warm_up_argument=("warm_up", self.warm_up),
        )

    reason = (
        ", which is exact with all of the data alone. With mini-batches use "
        "`mh.kernels.amagold`"
    )

    def __post_init__(self) -> None:
        base.check(self, leapfrog_steps=1, step_size=base.POSITIVE, warm_up=0)
        base.check(self, target_acceptance=base.OPEN_SHARE, temperature=base.POSITIVE)

    def energy_unit(self, number: int, dimension: int) -> float | None:
        return self.temperature

    def init(self, position: base.Position) -> State:
        return State(
            position,
            base.Slot("energy"),
            base.Slot("number", dtype="int32", value=0, is_shared=True),
            base.slots_like(position, "scale", value=1.0),
            step_adaptation.init_step(self.step_size),
            step_adaptation.init_spread(position),
        )

    def step(
        self, state: State, density: base.Density
    ) -> tuple[State, base.Position, dict[str, Tensor]]:
        energy = tensors.cond(
            state.number > 0,
            lambda: state.energy,
            lambda: density.energies(state.point),
        )
        uniforms = density.uniforms(2, 1, 0)[:, :, 0]
        warms_up = state.number < self.warm_up
        learned = state.adaptation
        chosen = ops.exp(ops.where(warms_up, learned.log_step, learned.log_average))
        step = chosen * (1.0 + _JITTER * (2.0 * uniforms[1] - 1.0))
        start = list(density.normals(0))
        end, momentum = self._path(state, start, step, density)
        new_energy = density.energies(end)
        kinetic = 0.5 * (
            tensors.sum_squares(start, like=energy)
            - tensors.sum_squares(momentum, like=energy)
        )
        log_ratio = (energy - new_energy) / self.temperature + kinetic
        finite = ops.isfinite(log_ratio)
        wins = finite & (ops.log(uniforms[0]) < log_ratio)
        zero = ops.zeros_like(log_ratio)
        safe = ops.where(finite, ops.minimum(log_ratio, zero), zero)
        probability = ops.where(finite, ops.exp(safe), zero)
        state = state._replace(
            point=tensors.select(wins, end, state.point),
            energy=ops.where(wins, new_energy, energy),
        )
        if self.warm_up > 0:
            state = self._adapted(state, probability, warms_up)
        counts = dict(accepted=wins, proposed=ops.ones_like(energy), step_size=chosen)
        counts = base.counted(**counts, nonfinite=~finite)
        return state._replace(number=state.number + 1), list(state.point), counts

    def _path(
        self, state: State, momentum: base.Position, step: Tensor, density: base.Density
    ) -> tuple[base.Position, base.Position]:
        """Return the end of a path, and the momentum there: (1) and (2)."""
        size = density.train_size

        def one(
            part: Tensor, point: base.Position, momentum: base.Position
        ) -> tuple[Tensor, base.Position, base.Position]:
            gradient = density.gradient(point, size, part)
            force = [s * g for s, g in zip(state.scale, gradient, strict=True)]
            factor = step * (size / self.temperature)
            momentum = tensors.add_scaled(momentum, -factor, force)
            return part + 1, drifted(point, momentum, state.scale, step), momentum

        begin = drifted(state.point, momentum, state.scale, 0.5 * step)
        path = tensors.loop_while(
            lambda part, *_: part <= self.leapfrog_steps, one, (1, begin, momentum)
        )
        _, end, momentum = path
        return drifted(end, momentum, state.scale, -0.5 * step), momentum

    def _adapted(self, state: State, probability: Tensor, warms_up: Tensor) -> State:
        """Return the state with step and scales after a path of the warm-up.

        `probability` is that of accepting the path, (K,).
        """
        learned = state.spread, state.scale, state.point, state.number, self.warm_up
        spread, scale, renews, _ = step_adaptation.renewed(*learned)
        step = step_adaptation.update_step(
            state.adaptation,
            probability,
            step_size=self.step_size,
            target=self.target_acceptance,
        )
        again = step_adaptation.restart_step(step, self.step_size)
        step = step_adaptation.chosen(renews, again, step)
        return state._replace(
            scale=tensors.select(warms_up, scale, state.scale),
            adaptation=step_adaptation.chosen(warms_up, step, state.adaptation),
            spread=step_adaptation.chosen(warms_up, spread, state.spread),
        )

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        means = dict(acceptance="accepted", step_size="step_size")
        report = base.of_proposals(counts, **means)
        acceptance = report["acceptance"]
        low = acceptance < 0.5 * self.target_acceptance
        if counts["proposed"].min() >= _ENOUGH and low.any():
            remedy = (
                f"Raise `warm_up`, here {self.warm_up}: too short to find the step"
                if self.warm_up > 0
                else f"Lower `step_size`, here {self.step_size:g}, or set a `warm_up`"
            )
            warn(
                f"{low.sum()} of {len(low)} chains of HMC hardly move: they accepted "
                f"less than half of `target_acceptance`={self.target_acceptance:g}, "
                f"the lowest {acceptance.min():.2f}. {remedy}."
            )
        return report


def drifted(
    position: base.Position, momentum: base.Position, scale: base.Position, step: Tensor
) -> base.Position:
    velocity = [s * r for s, r in zip(scale, momentum, strict=True)]
    return tensors.add_scaled(position, step, velocity)
