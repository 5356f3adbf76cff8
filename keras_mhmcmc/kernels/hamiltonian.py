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
    minus the log density. The density needs a gradient. Each step needs all of the
    data, so leave out `batch_size`.

    A step of the chain is a path of `leapfrog_steps` gradients. At its end one energy
    decides whether the path is accepted. So `num_steps` and `burn_in` count paths. In
    the warm-up each chain learns its own step, and a scale for each weight: the
    standard deviation of this weight along the chain. `draws.info` has the `acceptance`
    and the `step_size` of each chain.

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
    return MCLMC(
        step_size, decoherence_length, integrator, warm_up, energy_error, temperature
    )
