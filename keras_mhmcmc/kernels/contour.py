"""Build the kernels for `mh.sample` on a flattened energy: CSGLD and CSGHMC."""

from typing import Literal

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.algorithms.contour_sampler import ContourSampler
from keras_mhmcmc.partition import PILOT_STEPS
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.partition import contour_sampler
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld
from keras_mhmcmc.schedules import Schedule


def csgld(
    learning_rate: float | Schedule,
    *,
    partition: EnergyPartition | Literal["auto"] = "auto",
    pilot_steps: int = PILOT_STEPS,
    zeta: float = 0.75,
    temperature: float | Schedule = 1.0,
    step_size: float | Schedule | None = None,
    random_field: str = "zeta",
    difference: str = "backward",
    max_multiplier: float | None = 5.0,
    weight_power: float | None = None,
    rho: float = 0.0,
    masses: Array | None = None,
    adapt: bool = True,
    shared_density: bool = False,
) -> ContourSampler:
    """Return contour SGLD, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) / Psi(U)^zeta. The energy U in nats is minus the log
    density, and Psi is the learned mass of the energy's subregions. With the weights of
    the draws it samples exp(-U/T), up to the bias of a finite step, of gradient noise,
    and of an active `max_multiplier`.

    Args:
        learning_rate: step, as in `mh.CSGLD`. A number of at least 0, or a schedule.
        partition: "auto", or an `mh.EnergyPartition`, the subregions of the energy in
            nats. With "auto", the first steps are a pilot: plain steps of SGLD. The
            energies of its second half make a partition of 100 subregions. It begins at
            their 10% quantile, and the last subregion begins four times as far above it
            as the highest energy. Each chain finds its own, and with
            `shared_density` all chains find one.
        pilot_steps: number of steps of the pilot, at least 20. The `burn_in` of
            `mh.sample` must be at least as long. An `mh.EnergyPartition` needs no
            pilot, and this argument has no effect then. Defaults to 1000.
        zeta: power that flattens the energy, greater than 0. With 1 the histogram of
            the energies becomes flat. Defaults to 0.75.
        temperature: T, at least 0, or a schedule.
        step_size: omega, the step of the learned masses: a decreasing schedule, or a
            number in (0, 1). None is `mh.schedules.RobbinsMonro()`. A schedule begins
            after the pilot.
        random_field: "zeta" for theta(J)^zeta in the update, "one" for theta(J).
        difference: "backward" or "forward", the kind of difference that gives the slope
            of log theta.
        max_multiplier: largest absolute value of the gradient's factor, at least 1.
            None sets no limit. If the limit is active, the weights are not exact: see
            `mh.CSGLD`.
        weight_power: draws have the weights Psi(U)^weight_power. None is zeta, which is
            exact unless `max_multiplier` is active.
        rho: bias of the update towards low energies, eq. (57), at least 0.
        masses: initial theta, the positive mass of each subregion, shape (partitions,).
            None is a linear decrease, and must be chosen with "auto".
        adapt: whether theta is learned. False keeps `masses` fixed (KSGLD).
        shared_density: whether all chains learn one theta together (ICSGLD). By default
            each chain learns its own.

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
    _validate.choice("shared_density", shared_density, (True, False))
    return contour_sampler(
        sgld(learning_rate, temperature=temperature),
        partition=partition,
        pilot_steps=pilot_steps,
        zeta=zeta,
        step_size=step_size,
        random_field=random_field,
        difference=difference,
        max_multiplier=max_multiplier,
        weight_power=weight_power,
        rho=rho,
        masses=masses,
        adapt=adapt,
        is_shared=shared_density,
    )


def csghmc(
    learning_rate: float | Schedule,
    *,
    partition: EnergyPartition | Literal["auto"] = "auto",
    pilot_steps: int = PILOT_STEPS,
    zeta: float = 0.75,
    momentum: float = 0.9,
    temperature: float | Schedule = 1.0,
    step_size: float | Schedule | None = None,
    random_field: str = "zeta",
    difference: str = "backward",
    max_multiplier: float | None = 5.0,
    weight_power: float | None = None,
    rho: float = 0.0,
    masses: Array | None = None,
    adapt: bool = True,
    shared_density: bool = False,
) -> ContourSampler:
    """Return contour SGHMC, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) / Psi(U)^zeta, and exp(-U/T) with the weights of the
    draws, like `mh.kernels.csgld`.

    Args:
        learning_rate: step, as in `mh.CSGHMC`. A number of at least 0, or a schedule.
        partition: "auto", or an `mh.EnergyPartition`, the subregions of the energy in
            nats. `mh.kernels.csgld` describes this argument and the others, except
            `momentum`, in detail.
        pilot_steps: number of plain steps of SGHMC that find the partition with "auto",
            at least 20. Defaults to 1000.
        zeta: power that flattens the energy, greater than 0.
        momentum: share of the velocity that each step keeps, in [0, 1).
        temperature: T, at least 0, or a schedule.
        step_size: step of the learned masses.
        random_field: "zeta" or "one", the power of theta(J) in the update.
        difference: "backward" or "forward".
        max_multiplier: largest absolute value of the gradient's factor.
        weight_power: power of Psi(U) in the importance weights.
        rho: bias of the update towards low energies.
        masses: initial theta, shape (partitions,).
        adapt: whether theta is learned.
        shared_density: whether all chains learn one theta together.

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
    _validate.choice("shared_density", shared_density, (True, False))
    return contour_sampler(
        sghmc(learning_rate, temperature=temperature, momentum=momentum),
        partition=partition,
        pilot_steps=pilot_steps,
        zeta=zeta,
        step_size=step_size,
        random_field=random_field,
        difference=difference,
        max_multiplier=max_multiplier,
        weight_power=weight_power,
        rho=rho,
        masses=masses,
        adapt=adapt,
        is_shared=shared_density,
    )
