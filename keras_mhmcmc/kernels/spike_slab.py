"""Build the kernels for `mh.sample` with spike-and-slab priors: SGLD-SA, SGHMC-SA."""

from keras_mhmcmc import _validate
from keras_mhmcmc.algorithms.spike_slab import SpikeSlabSampler
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.priors import checked_spike_slab
from keras_mhmcmc.samplers.base import Diffusion
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import sgld
from keras_mhmcmc.schedules import Schedule
from keras_mhmcmc.schedules import check_shares


def sgldsa(
    learning_rate: float | Schedule,
    *,
    prior: SpikeSlab,
    likelihood: str = "categorical",
    step_size: float | Schedule | None = None,
    temperature: float | Schedule = 1.0,
    layer_temperatures: bool = False,
) -> SpikeSlabSampler:
    """Return SGLD with a spike-and-slab prior, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) given the latent variables, which it learns at the same
    time, like `mh.SGLDSA`. The energy U in nats is minus the log density of `mh.sample`
    plus the energy of `prior` on the sparse tensors. `log_prior` is the prior of the
    other tensors. `draws.info` has `sparsity`, `sigma` and `delta` of each chain, and
    `inclusion_probabilities`, a dict of arrays (chain, ...).

    Args:
        learning_rate: step, as in `mh.SGLDSA`. A number of at least 0, or a schedule.
        prior: a `mh.priors.SpikeSlab`. If its `sparse` is a regular expression, it
            matches the names of the position's tensors: the keys of a dict, or
            "position" for a single tensor. If `sparse` is a function, it takes an
            object with `path` and `shape`, the chain axis first.
        likelihood: "categorical" if `log_likelihood` returns a log-likelihood;
            "gaussian" if it returns minus the squared error of each example. Sigma is
            then the standard deviation of the noise, and there is no `log_prior`.
        step_size: omega, the step of the latent variables: a decreasing schedule, or a
            number in (0, 1]. None is 0.1 (k + 1000)^(-3/4) at step k.
        temperature: T, at least 0, or a schedule. Defaults to 1.
        layer_temperatures: whether each tensor has its own temperature, as in
            `mh.SGLDSA`.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sgldsa(
    ...     0.01, prior=mh.priors.SpikeSlab("weights", v0=1e-3, v1=1.0)
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", algorithm 1.
    """
    base = sgld(learning_rate, temperature=temperature)
    return _spike_slab(base, prior, likelihood, step_size, layer_temperatures)


def sghmcsa(
    learning_rate: float | Schedule,
    *,
    prior: SpikeSlab,
    likelihood: str = "categorical",
    momentum: float = 0.9,
    step_size: float | Schedule | None = None,
    temperature: float | Schedule = 1.0,
    layer_temperatures: bool = False,
) -> SpikeSlabSampler:
    """Return SGHMC with a spike-and-slab prior, a kernel for `mh.sample`.

    The kernel samples the same distribution as `mh.kernels.sgldsa`, with momentum. The
    other arguments are the same.

    Args:
        learning_rate: step, as in `mh.SGHMCSA`. A number of at least 0, or a schedule.
        prior: a `mh.priors.SpikeSlab`.
        likelihood: "categorical" or "gaussian".
        momentum: share of the velocity that each step keeps, in [0, 1).
        step_size: omega, the step of the latent variables.
        temperature: T, at least 0, or a schedule.
        layer_temperatures: whether each tensor has its own temperature.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sghmcsa(
    ...     0.01, prior=mh.priors.SpikeSlab("weights", v0=1e-3, v1=1.0)
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), section 3.3.
    """
    base = sghmc(learning_rate, temperature=temperature, momentum=momentum)
    return _spike_slab(base, prior, likelihood, step_size, layer_temperatures)


def _spike_slab(
    base: Diffusion,
    prior: SpikeSlab,
    likelihood: str,
    step_size: float | Schedule | None,
    layer_temperatures: bool,
) -> SpikeSlabSampler:
    checked_spike_slab(prior)
    check_shares("step_size", step_size)
    _validate.choice("likelihood", likelihood, ("categorical", "gaussian"))
    return SpikeSlabSampler(
        base,
        prior,
        likelihood == "gaussian",
        step_size,
        layer_temperatures,
        is_network=False,
    )
