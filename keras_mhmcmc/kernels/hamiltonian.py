"""Build the kernel for `mh.sample` on Hamiltonian paths: HMC."""

from keras_mhmcmc.algorithms.hmc import HMC


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
