"""Kernels for `mh.sample` on a flattened energy: CSGLD, CSGHMC."""

import dataclasses
import warnings
from typing import Any
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc import partition as partition_
from keras_mhmcmc.algorithms import contour
from keras_mhmcmc.transitions.kernel import Kernel
from keras_mhmcmc.transitions.kernel import Record
from keras_mhmcmc.transitions.kernel import at_step
from keras_mhmcmc.transitions.stochastic_gradient import StochasticGradientKernel
from keras_mhmcmc.transitions.stochastic_gradient import sghmc
from keras_mhmcmc.transitions.stochastic_gradient import sgld

# Steps after which theta is given the sum 1 again: the pass over all subregions with
# exponentials costs more than the rest of the step.
_ROUNDINGS = 16


class ContourState(NamedTuple):
    """The state of K chains, each with its own learned masses or all with the same."""

    base: Any
    log_masses: Any  # (K, partitions), or (partitions,) where it is shared


@dataclasses.dataclass(frozen=True)
class ContourKernel(Kernel):
    """A kernel of `base` on the energy that its own visits flatten."""

    base: StochasticGradientKernel
    settings: partition_.ContourSettings
    shared_density: bool
    num_uniforms = 0
    has_weights = True

    def energy_unit(self, number):
        return self.settings.contour.energy_gap

    def init(self, position):
        chains = position[0].shape[0]
        log_masses = ops.convert_to_tensor(self.settings.log_masses)
        if not self.shared_density:
            log_masses = ops.tile(log_masses[None], (chains, 1))
        return ContourState(self.base.init(position), log_masses)

    def point(self, state):
        return self.base.point(state.base)

    def advance(self, state, step):
        settings = self.settings.contour
        log_masses, place = state.log_masses, contour.locate(step.energy, settings)
        if self.settings.adapt:
            learn = (
                contour.update_shared_log_masses
                if self.shared_density
                else contour.update_log_masses
            )
            size = at_step(self.settings.step_size, step.number)
            log_masses = learn(log_masses, place, size, settings)
            # With rho the sum grows at each step, else by rounding alone.
            is_due = step.number % (1 if settings.rho > 0.0 else _ROUNDINGS) == 0
            log_masses = _backend.when(is_due, contour.normalized, log_masses)
        per_chain = log_masses
        if self.shared_density:
            shape = (step.energy.shape[0], settings.partitions)
            per_chain = ops.broadcast_to(log_masses[None], shape)

        current, counts = self.base.decide(state.base, step)
        temperature = at_step(self.base.temperature, step.number)
        factor, log_weight = contour.multiplier_and_log_weight(
            per_chain, place, temperature, settings
        )
        base = self.base.move(current, step, multiplier=factor)
        record = Record(current.position, current.energy, counts, log_weight)
        return ContourState(base, log_masses), record

    def report(self, state, info):
        """Return the learned masses of each chain, and the draws in each subregion.

        `masses` and `visits`, shape (chain, partitions). Warns of a bad partition.
        """
        settings = self.settings.contour
        place = contour.locate(ops.convert_to_tensor(info["energy"]), settings)
        index, finite = map(ops.convert_to_numpy, (place.index, place.finite))
        visits = np.array(
            [
                np.bincount(row[known], minlength=settings.partitions)
                for row, known in zip(index, finite, strict=True)
            ]
        )
        log_masses = np.asarray(ops.convert_to_numpy(state.log_masses), "float64")
        energy = info["energy"][np.isfinite(info["energy"])]
        if energy.size > 0:
            message = partition_.run_message(
                visits.sum(0), energy.min(), energy.max(), settings
            )
            if message is not None:
                warnings.warn(message, stacklevel=4)
        masses = np.broadcast_to(np.exp(log_masses), visits.shape)
        return {"masses": masses, "visits": visits}


def csgld(
    learning_rate,
    *,
    partition,
    zeta=0.75,
    temperature=1.0,
    step_size=None,
    random_field="zeta",
    difference="backward",
    max_multiplier=5.0,
    weight_power=None,
    rho=0.0,
    masses=None,
    adapt=True,
    shared_density=False,
):
    """Return contour SGLD, a kernel for `mh.sample`.

    Samples exp(-U/T) / Psi(U)^zeta, where Psi is the learned mass of the energy's
    subregions. With the weights of the draws it samples exp(-U/T), up to the bias of a
    finite step, of gradient noise, and of `max_multiplier` where that is in force.

    Args:
        learning_rate: step, as in `mh.CSGLD`, at least 0, or a schedule.
        partition: `mh.EnergyPartition`, the subregions of the energy in nats.
            `mh.suggest_partition` makes one.
        zeta: how far the energy is flattened, greater than 0. 1 makes its histogram
            flat.
        temperature: T, at least 0, or a schedule.
        step_size: omega, the step of the learned masses: a schedule that falls, or a
            number in (0, 1). None is `mh.schedules.RobbinsMonro()`.
        random_field: "zeta" for theta(J)^zeta in the update, "one" for theta(J).
        difference: "backward" or "forward", the kind of difference that gives the slope
            of log theta.
        max_multiplier: largest absolute value of the gradient's factor, at least 1.
            None is no limit. Where the limit is in force, the weights are not exact:
            see `mh.CSGLD`.
        weight_power: draws have the weights Psi(U)^weight_power. None is zeta, which is
            exact where `max_multiplier` limits nothing.
        rho: bias of the update towards low energies, eq. (57), at least 0.
        masses: first theta, the mass of each subregion, shape (partitions,), positive.
            None falls linearly.
        adapt: whether theta is learned. False keeps `masses` as they are (KSGLD).
        shared_density: whether all chains learn one theta together (ICSGLD) instead of
            one each.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.csgld(
    ...     0.1,
    ...     partition=mh.EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=50),
    ... )

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm", algorithm 1; Deng, Liang, Hao, Lin and Liang (2022),
    "Interacting contour stochastic gradient Langevin dynamics", algorithm 1.
    """
    settings = partition_.contour_settings(
        partition=partition,
        zeta=zeta,
        step_size=step_size,
        random_field=random_field,
        difference=difference,
        max_multiplier=max_multiplier,
        weight_power=weight_power,
        rho=rho,
        masses=masses,
        adapt=adapt,
    )
    _validate.choice("shared_density", shared_density, (True, False))
    base = sgld(learning_rate, temperature=temperature)
    return ContourKernel(base, settings, shared_density)


def csghmc(
    learning_rate,
    *,
    partition,
    zeta=0.75,
    momentum=0.9,
    temperature=1.0,
    step_size=None,
    random_field="zeta",
    difference="backward",
    max_multiplier=5.0,
    weight_power=None,
    rho=0.0,
    masses=None,
    adapt=True,
    shared_density=False,
):
    """Return contour SGHMC, a kernel for `mh.sample`.

    Samples the position from exp(-U/T) / Psi(U)^zeta, and with the weights of the draws
    from exp(-U/T), as `mh.kernels.csgld` does.

    Args:
        learning_rate: step, as in `mh.CSGHMC`, at least 0, or a schedule.
        partition: `mh.EnergyPartition`, the subregions of the energy in nats.
            `mh.kernels.csgld` says more of this argument and of all that follow, except
            for `momentum`.
        zeta: how far the energy is flattened, greater than 0.
        momentum: share of the velocity that each step keeps, in [0, 1).
        temperature: T, at least 0, or a schedule.
        step_size: step of the learned masses.
        random_field: "zeta" or "one", the power of theta(J) in the update.
        difference: "backward" or "forward".
        max_multiplier: largest absolute value of the gradient's factor.
        weight_power: power of Psi(U) in the importance weights.
        rho: bias of the update towards low energies.
        masses: first theta, shape (partitions,).
        adapt: whether theta is learned.
        shared_density: whether all chains learn one theta.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.csghmc(
    ...     0.01,
    ...     partition=mh.EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=50),
    ... )

    Reference: Deng, Lin and Liang (2020), section 4.2.
    """
    kernel = csgld(
        learning_rate,
        partition=partition,
        zeta=zeta,
        temperature=temperature,
        step_size=step_size,
        random_field=random_field,
        difference=difference,
        max_multiplier=max_multiplier,
        weight_power=weight_power,
        rho=rho,
        masses=masses,
        adapt=adapt,
        shared_density=shared_density,
    )
    base = sghmc(learning_rate, momentum=momentum, temperature=temperature)
    return dataclasses.replace(kernel, base=base)
