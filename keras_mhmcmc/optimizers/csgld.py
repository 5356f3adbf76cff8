"""Contour SGLD and contour SGHMC as Keras optimizers."""

from typing import Any
from typing import Literal

from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc.optimizers.contour import ContourOptimizer
from keras_mhmcmc.partition import PILOT_STEPS
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.partition import contour_sampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers.base import OF_OPTIMIZER
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld
from keras_mhmcmc.schedules import Schedule


@serializable
class CSGLD(ContourOptimizer):
    """Contour stochastic gradient Langevin dynamics: SGLD on a flattened energy.

    It samples exp(-U/T) / Psi(U)^zeta. The energy U in nats is train_size * loss - log
    prior. Psi is the mass of the energy's subregions, and the sampler learns it. The
    chain therefore crosses barriers that stop SGLD. Each sample has the importance
    weight Psi(U)^zeta. The weighted samples have the density exp(-U/T), up to the bias
    of a finite step, of gradient noise, and of an active `max_multiplier`.
    `mh.PosteriorSamples` keeps the weights and the ensemble uses them. The sampler
    keeps no copy of the weights of the model.

    The importance weight of a sample needs its energy, which the next step evaluates.
    The last sample of a `fit` has the weight of the point before it, until another
    `fit` continues the chain.

    Args:
        learning_rate: factor of the gradient of the mean loss, as in
            `keras.optimizers.SGD`. A number of at least 0, or a schedule.
        train_size: number of training examples, N. Defaults to "auto",
            which reads it from `fit`.
        partition: "auto", or an `mh.EnergyPartition`, the subregions of the energy in
            nats. With "auto", the first steps are a pilot: plain steps of SGLD. The
            energies of its second half make a partition of 100 subregions. It begins at
            their 10% quantile, and the last subregion begins four times as far above it
            as the highest energy. Each chain of an `mh.ParallelChains` finds its
            own.
        pilot_steps: number of steps of the pilot, at least 20. They are burn-in:
            `mh.PosteriorSamples` keeps no sample of them. The energies must be
            stationary in its second half. An `mh.EnergyPartition` needs no pilot, and
            this argument has no effect then. Defaults to None: 1000, and at most a
            quarter of the steps of the first `fit`.
        zeta: power that flattens the energy, greater than 0. With 1 the histogram of
            the energies becomes flat. Defaults to 0.75.
        temperature: T, at least 0, or a schedule (simulated annealing).
        step_size: omega, the step of the learned masses: a decreasing schedule, or a
            number in (0, 1). None is `mh.schedules.RobbinsMonro()`. A schedule begins
            after the pilot.
        random_field: "zeta" updates the masses with theta(J)^zeta, "one" with theta(J).
            Choose "one" if zeta is much larger than 1.
        difference: "backward" or "forward", the kind of difference that gives the slope
            of log theta.
        max_multiplier: largest absolute value of the gradient's factor, at least 1.
            None sets no limit. If the limit is active, the weights are not exact. On a
            normal distribution in 20 dimensions they made the mean energy 0.5% too high
            at zeta = 5, 3.4% at 10, and did not change it at 2
            (`examples/benchmarks/contour_weights.py`).
        weight_power: samples have the weights Psi(U)^weight_power. None is zeta, which
            is exact unless `max_multiplier` is active. With a large zeta few samples
            have most of the weight. A smaller power evens the weights out, but then the
            weighted samples do not have the density exp(-U/T).
        rho: bias of the update towards low energies, eq. (57), at least 0.
        masses: initial theta, the positive mass of each subregion, shape (partitions,).
            The sum may differ from 1. None is a linear decrease, and must be chosen
            with "auto".
        adapt: whether theta is learned. False keeps `masses` fixed (KSGLD).
        prior: such as `mh.priors.Gaussian(scale)`. None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        nan_policy: what to do when the loss or a gradient is NaN or infinite. The chain
            then stands still. At the end of the epoch "stop" warns, and
            `mh.PosteriorSamples` ends `fit`; "raise" raises an error.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, with `nan_policy="raise"`.
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.CSGLD(0.01, train_size=1000)
    >>> known = mh.EnergyPartition(energy_min=200.0, energy_gap=20.0, partitions=100)
    >>> optimizer = mh.CSGLD(0.01, train_size=1000, partition=known)

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm for simulations of multi-modal distributions", algorithm 1.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        partition: EnergyPartition | Literal["auto"] = "auto",
        pilot_steps: int | None = None,
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
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "csgld",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=contour_sampler(
                sgld(OF_OPTIMIZER, temperature=temperature),
                partition=partition,
                pilot_steps=PILOT_STEPS if pilot_steps is None else pilot_steps,
                zeta=zeta,
                step_size=step_size,
                random_field=random_field,
                difference=difference,
                max_multiplier=max_multiplier,
                weight_power=weight_power,
                rho=rho,
                masses=masses,
                adapt=adapt,
                counts_visits=True,
            ),
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )


@serializable
class CSGHMC(ContourOptimizer):
    """Contour stochastic gradient Hamiltonian Monte Carlo: SGHMC on a flattened energy.

    It samples exp(-U/T) / Psi(U)^zeta, and exp(-U/T) with the importance weights, like
    `mh.CSGLD`. Momentum makes it faster on networks. With schedules for the learning
    rate and the temperature it is the paper's saCSGHMC. The sampler keeps one copy of
    the model's weights.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum. A number of at least
            0, or a schedule.
        train_size: number of training examples, N. Defaults to "auto",
            which reads it from `fit`.
        partition: "auto", or an `mh.EnergyPartition`, the subregions of the energy in
            nats. `mh.CSGLD` describes this argument and all arguments up to `adapt`,
            except `momentum`, in detail.
        pilot_steps: number of plain steps of SGHMC that find the partition with "auto",
            at least 20. They are burn-in. Defaults to None, as in `mh.CSGLD`.
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
        prior: such as `mh.priors.Gaussian(scale)`. None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        nan_policy: what to do when the loss or a gradient is NaN or infinite. The chain
            then stands still. At the end of the epoch "stop" warns, and
            `mh.PosteriorSamples` ends `fit`; "raise" raises an error.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, with `nan_policy="raise"`.
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.CSGHMC(
    ...     mh.schedules.CyclicalCosine(0.01, cycle_steps=1000),
    ...     train_size=1000,
    ...     pilot_steps=2000,
    ...     zeta=1.0,
    ... )

    Reference: Deng, Lin and Liang (2020), sections 4.2 and 4.3.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        partition: EnergyPartition | Literal["auto"] = "auto",
        pilot_steps: int | None = None,
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
        prior: Prior | None = None,
        seed: int | None = None,
        nan_policy: str = "stop",
        name: str = "csghmc",
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            algorithm=contour_sampler(
                sghmc(OF_OPTIMIZER, temperature=temperature, momentum=momentum),
                partition=partition,
                pilot_steps=PILOT_STEPS if pilot_steps is None else pilot_steps,
                zeta=zeta,
                step_size=step_size,
                random_field=random_field,
                difference=difference,
                max_multiplier=max_multiplier,
                weight_power=weight_power,
                rho=rho,
                masses=masses,
                adapt=adapt,
                counts_visits=True,
            ),
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            nan_policy=nan_policy,
            options=options,
        )
