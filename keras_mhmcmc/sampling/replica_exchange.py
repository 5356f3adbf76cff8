"""`replica_exchange`: a kernel at several temperatures, which swap their positions."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import RATE
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Rate
from keras_mhmcmc.samplers.base import checked
from keras_mhmcmc.samplers.replica_exchange import OfReplicas
from keras_mhmcmc.samplers.replica_exchange import ReplicaExchange
from keras_mhmcmc.sampling import faults
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import starts
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import of_levels
from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.sampling.run import bound_to_data


@loop.in_float32()
def replica_exchange(
    kernel: Algorithm,
    init: Any,
    *,
    temperatures: Sequence[float],
    learning_rates: Sequence[Rate] | None = None,
    swap_every: int = 1,
    energy_variance: float | str = "auto",
    log_likelihood: Callable[..., Tensor] | None = None,
    data: Any = None,
    batch_size: int | None = None,
    log_prior: Callable[..., Tensor] | None = None,
    log_density: Callable[..., Tensor] | None = None,
    num_steps: int,
    num_chains: int = 1,
    burn_in: int = 0,
    every: int = 1,
    seed: int = 0,
    replacement: bool = False,
    keep_all: bool = False,
    progress: bool = True,
) -> Draws:
    """Run a kernel at several temperatures, which swap their positions.

    The replica at the lowest temperature T samples exp(-U/T), as the kernel does. The
    hotter replicas help it to reach modes that are far apart. With `mh.kernels.sgld`,
    `psgld`, `sghmc` or `sgnht` the method is reSGLD, with `mhbt` or `mint` parallel
    tempering. Memory and time are those of `mh.sample` with as many chains.

    Neighbours in the list of temperatures try to swap: even pairs, then odd pairs. A
    correction for the variance of mini-batch energies makes the swaps of reSGLD exact
    for Gaussian noise. `mhbt` and `mint` swap a position together with its mini-batch,
    which is exact. On mini-batches the distribution at T much below N/m is biased, as
    in `mh.sample`.

    Args:
        kernel: from `mh.kernels.sgld`, `psgld`, `sghmc`, `sgnht`, `mhbt` or `mint`.
            Each of `temperatures` takes the place of the kernel's own temperature.
        init: as in `mh.sample`. All replicas of a chain start at the same position.
        temperatures: at least two numbers greater than 0, increasing.
        learning_rates: numbers or schedules, one for each temperature. Hot replicas may
            take larger steps. None takes the kernel's own for all.
        swap_every: integer, to try a swap at every `swap_every`-th step. Defaults to 1.
        energy_variance: variance of the estimate of one energy, in nats^2, at least 0.
            "auto" estimates it from the log-likelihoods in each mini-batch, of at least
            two examples. It is 0 with `mhbt` and `mint`, and without mini-batches.
        log_likelihood: as in `mh.sample`.
        data: as in `mh.sample`.
        batch_size: as in `mh.sample`.
        log_prior: as in `mh.sample`.
        log_density: as in `mh.sample`.
        num_steps: as in `mh.sample`.
        num_chains: number of independent chains, K, each with all temperatures.
        burn_in: as in `mh.sample`.
        every: as in `mh.sample`.
        seed: as in `mh.sample`.
        replacement: as in `mh.sample`.
        keep_all: whether to keep the draws of all temperatures, in `levels`.
        progress: as in `mh.sample`.

    Returns:
        `Draws` of the lowest temperature. `info` has `energy`, `acceptance` and so on
        of the lowest temperature; `swap_acceptance` of each pair of neighbours, shape
        (chain, pair), NaN for a pair that never tried; and `temperatures`. With
        `keep_all`, `levels` has `Draws` of each temperature.

    Raises:
        ValueError: as in `mh.sample`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> from keras import ops
    >>> def two_modes(x):
    ...     return ops.logaddexp(-8 * ops.square(x - 2), -8 * ops.square(x + 2))
    >>> draws = mh.replica_exchange(
    ...     mh.kernels.mhbt(0.5),
    ...     2.0,
    ...     temperatures=[1.0, 5.0, 25.0],
    ...     log_density=two_modes,
    ...     num_steps=2000,
    ...     num_chains=10,
    ...     progress=False,
    ... )
    >>> share = (draws.position < 0).mean()
    >>> bool(0.3 < share < 0.7)
    True

    Reference: Deng, Feng, Gao, Liang and Lin (2020), "Non-convex learning via replica
    exchange stochastic gradient MCMC", algorithm 1.
    """
    if not (isinstance(kernel, Algorithm) and kernel.can_swap):
        raise ValueError(
            "Argument `kernel` must be built by mh.kernels.sgld, psgld, sghmc, sgnht, "
            f"mhbt or mint. Received: kernel={_validate.shown(kernel)}"
        )
    if kernel.traits.adapts_target:
        raise ValueError(
            "Argument `kernel` must have a fixed beta: a beta that adapts changes what "
            "the chains sample. Give the proposal a number, such as "
            "`mh.proposals.ReversibleLangevin(beta=2.0)`, and for `mh.kernels.rsgld` "
            "`beta=2.0, beta_adaptation=None` with `normalized=True`. Received: "
            f"kernel={kernel!r}"
        )
    ladder = _checked_temperatures(temperatures)
    rates = _checked_rates(learning_rates, ladder)
    swap_every = _validate.integer("swap_every", swap_every, 1)
    keep_all = _validate.choice("keep_all", keep_all, (True, False))
    plan = loop.checked_plan(num_steps, burn_in, every)
    _validate.choice("progress", progress, (True, False))
    functions = log_density, log_likelihood, log_prior
    target = LogDensity(*functions, data, batch_size, replacement)
    variance = _checked_variance(
        energy_variance, kernel.traits.compares_batches, target
    )
    start = starts.begin(init, num_chains, seed, target.check, copies=len(ladder))
    num_chains = max(start.shapes[0][0] // len(ladder), 1)
    temperature = OfReplicas(ladder, num_chains)
    rate = None if rates is None else OfReplicas(rates, num_chains)
    hot = kernel.at_temperature(temperature, rate)
    hot = bound_to_data(hot, target, batch_size)
    exchange = ReplicaExchange(hot, ladder, num_chains, swap_every, variance)
    kept = len(ladder) if keep_all else 1
    program = loop.Program(exchange, target, start, recorded=kept * num_chains)
    name = f"{starts.kernel_of(program.kernel)} {len(ladder)} temperatures"
    run = program.run(plan, name, progress)
    of_all, shape = exchange.swaps(run.counts), (len(ladder), num_chains)
    means = {name: x.reshape(shape) for name, x in run.summary().items()}
    infos = [{name: x[r] for name, x in means.items()} | of_all for r in range(kept)]
    draws = of_levels([*run.leaves, *run.others], infos, run.saved, run.interrupted)
    coldest, unit = draws.info["energy"], run.kernel.energy_unit(run.steps - 1, 0)
    faults.warn_of_lost_chains(coldest, target)
    faults.warn_of_coarse_energies(coldest, unit)
    if kernel.traits.compares_batches:
        consequence = "only swaps move a chain of such a temperature"
        faults.warn_of_still_chains(run.counts, consequence)
    return draws


def _checked_temperatures(temperatures: Any) -> tuple[float, ...]:
    found: list[float] = []
    is_array = isinstance(temperatures, np.ndarray) and temperatures.ndim == 1
    if is_array or isinstance(temperatures, list | tuple):
        positive = _validate.POSITIVE
        found = [_validate.number("temperatures", t, positive) for t in temperatures]
    if len(found) < 2 or found != sorted(set(found)):
        raise ValueError(
            "Argument `temperatures` must be at least two numbers greater than 0, "
            "increasing, such as [1.0, 4.0, 16.0]. Received: "
            f"temperatures={_validate.shown(temperatures)}"
        )
    return tuple(found)


def _checked_rates(
    rates: Any, temperatures: tuple[float, ...]
) -> tuple[Any, ...] | None:
    if rates is None:
        return None
    if not isinstance(rates, list | tuple) or len(rates) != len(temperatures):
        raise ValueError(
            "Argument `learning_rates` must be a list with one number or schedule for "
            f"each of the {len(temperatures)} temperatures. Received: "
            f"learning_rates={_validate.shown(rates)}"
        )
    return tuple(checked("learning_rates", rate, RATE) for rate in rates)


def _checked_variance(value: Any, is_exact: bool, target: LogDensity) -> float | None:
    """Return the variance of energies, nats^2. None: estimate it from each batch."""
    if not isinstance(value, str):
        hint = 'Or "auto".'
        value = _validate.number("energy_variance", value, _validate.NOT_NEGATIVE, hint)
        if value > 0 and is_exact:
            raise ValueError(
                "Argument `energy_variance` must be 0 or 'auto' with `mh.kernels.mhbt` "
                "and `mint`, whose swaps need no correction. Received: "
                f"energy_variance={value}"
            )
        return value
    _validate.choice("energy_variance", value, ("auto",))
    if is_exact or not target.draws_batches:
        return 0.0
    if target.batch_size < 2:
        raise ValueError(
            "Argument `energy_variance` must be a number if `batch_size` is 1: one "
            "example has no variance. Received: energy_variance='auto'"
        )
    return None
