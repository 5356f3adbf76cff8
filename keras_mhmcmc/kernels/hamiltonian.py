"""Build the kernels for `mh.sample` on Hamiltonian paths: HMC and MCLMC."""

from typing import Literal

from keras_mhmcmc.algorithms.hmc import HMC
from keras_mhmcmc.algorithms.mclmc import MCLMC


def hmc(
    *,
    leapfrog_steps: int = 10,
    step_size: float = 0.1,
    warm_up: int = 500,
    target_acceptance: float = 0.8,
    temperature: float = 1.0,
) -> HMC:
    """Return Hamiltonian Monte Carlo, a kernel for `mh.sample`.

    After the warm-up the kernel samples exp(-U/T) exactly. The energy U in nats is
    minus the log density. The kernel needs all of the data, so `batch_size` is left
    out, and a density with a gradient.

    A step of the chain is a path of `leapfrog_steps` gradients, and of one energy at
    its end, where the path is accepted or rejected. In the warm-up each chain learns
    its own step, and a scale for each weight, the standard deviation of its positions.
    `draws.info` has the `acceptance` and the `step_size` of each chain.

    Args:
        leapfrog_steps: gradients of a path, at least 1. Paths that are as long as the
            target is wide mix best: leapfrog_steps times the step of about 1.5 to 3.
            Defaults to 10.
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

    Reference: Neal (2011), "MCMC using Hamiltonian dynamics", section 3.2; Hoffman and
    Gelman (2014), "The No-U-Turn sampler", section 3.2.
    """
    return HMC(leapfrog_steps, step_size, warm_up, target_acceptance, temperature)


def mclmc(
    step_size: float | None = None,
    *,
    decoherence_length: float | None = None,
    integrator: Literal["leapfrog", "minimal_norm"] = "leapfrog",
    warm_up: int = 1000,
    energy_error: float = 5e-4,
    temperature: float = 1.0,
) -> MCLMC:
    """Return microcanonical Langevin Monte Carlo, a kernel for `mh.sample`.

    The draws are biased: the kernel samples exp(-U/T) in the limit of small steps
    alone, and rejects nothing. `energy_error` sets the bias. At its default, variances
    of normal targets are 2 to 4% too large with "leapfrog", and up to 4% too small with
    "minimal_norm". Take `mh.kernels.hmc` for the exact distribution. The energy U in
    nats is minus the log density.

    The velocity has a constant length. The gradient and a little noise turn it. A step
    of the chain needs one gradient (two with "minimal_norm"). In the warm-up each chain
    learns its own step, and a scale for each weight, the standard deviation of its
    positions. The kernel needs at least two dimensions, a density with a gradient, and
    all of the data, so `batch_size` is left out: the noise of mini-batches has another
    size in each direction, and adds a bias of its own (Sommer and others, 2026).

    `draws.info` has for each chain the `step_size`, the `decoherence_length`, the
    `energy_error`, and how many steps were `nonfinite`. Such a step is undone. The
    energy error is the mean squared error of a step, in nats at T = 1, per dimension.
    If it is far above the argument, the bias is larger than asked for. Energies above
    1e5 nats do this: float32 knows them too coarsely, and `mh.sample` warns. Leave
    constants out of them.

    Args:
        step_size: first step in units of the scales, which are 1 at first. Greater than
            0. It is the step of all steps if `warm_up` is 0. Defaults to None: half of
            the square root of the number of weights.
        decoherence_length: L of the papers, the distance after which the noise alone
            has turned the velocity, in units of the scales. Greater than 0. Defaults to
            None: the square root of the number of weights, which is the width of the
            target.
        integrator: "leapfrog", or "minimal_norm" with steps that are twice as long at
            the same error, and two gradients. Defaults to "leapfrog".
        warm_up: number of first steps that adapt. The `burn_in` of `mh.sample` must be
            at least as long. Defaults to 1000.
        energy_error: mean squared energy error of a step, per dimension, that the
            warm-up aims at. Greater than 0. A smaller one gives smaller steps, by its
            sixth root, and less bias. Defaults to 5e-4.
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
    return MCLMC(
        step_size, decoherence_length, integrator, warm_up, energy_error, temperature
    )
