"""What some algorithms add to `Draws.info`, and warnings about draws of all."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import partition
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers import spike_slab
from keras_mhmcmc.samplers.contour import ContourSampler
from keras_mhmcmc.samplers.contour import State
from keras_mhmcmc.samplers.parts import contour
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import named_leaves
from keras_mhmcmc.sampling.resume import spacing

_FEWEST_DRAWS = 10  # fewer show no deviation
_SPACINGS = 4.0  # of float32 in a deviation: fewer are too coarse
_LARGE = 1e-3  # a spacing at which a chain may stand still by rounding
_FAR = 10.0  # times the usual height above the mode: no chain of a posterior is there
_BLOCK = 2**17  # energies that are looked at together; they fit into the cache


def of_contour(
    algorithm: ContourSampler,
    state: State,
    energy: Array,
) -> dict[str, Array]:
    """Return the learned masses, and the number of draws in each subregion.

    Warn if the partition does not fit the energies.

    Args:
        algorithm: with its settings.
        state: its last state.
        energy: of the draws, nats, (chain, draw).

    Returns:
        `masses` and `visits`, shape (chain, partitions). With a pilot also `energy_min`
        and `energy_gap` of the partition that it found, shape (chain,).
    """
    settings, pilot = algorithm.contour_of(state), algorithm.pilot
    visits = visits_of(energy, settings)
    # Transposed: the energies of all chains at one step are neighbours in memory.
    known = energy.T[np.isfinite(energy.T)]
    if known.size > 0:
        total = visits.sum(0)
        if pilot is None:
            advice = partition.fix(known.min(), known.max(), settings.partitions)
            message = partition.run_message(total, settings, advice)
        else:
            advice = partition.fix_of_pilot(pilot.steps)
            message = partition.visits_message(total, advice)
        if message is not None:
            warn(message)
    log_masses = np.asarray(ops.convert_to_numpy(state.log_masses), "float64")
    report = {
        "masses": np.broadcast_to(np.exp(log_masses), visits.shape),
        "visits": visits,
    }
    if pilot is not None:
        for name in ("energy_min", "energy_gap"):
            found = ops.convert_to_numpy(getattr(settings, name))
            report[name] = np.broadcast_to(found, len(energy))
    return report


def visits_of(energy: Array, settings: contour.Contour) -> Array:
    """Return the number of draws in each subregion, int64, (chain, partitions).

    This is `contour.locate` in numpy, block by block. With tensors of all draws it took
    9 to 20 ns a draw on JAX instead of 4 to 6.

    Args:
        energy: of the draws, nats, float32, (chain, draw).
        settings: the partition of all chains, or one for each chain.
    """
    low, gap = (
        np.asarray(ops.convert_to_numpy(x), "float32")
        for x in (settings.energy_min, settings.energy_gap)
    )
    count, num_chains = settings.partitions, len(energy)
    first = count * np.arange(num_chains)
    visits = np.zeros(num_chains * count, "int64")
    steps = max(1, _BLOCK // num_chains)
    for start in range(0, energy.shape[1], steps):
        # The chains last: each may have a partition of its own.
        block = energy[:, start : start + steps].T
        finite = np.isfinite(block)
        above = np.ceil((np.where(finite, block, 0.0) - low) / gap)
        index = np.clip(above, 0, count - 1).astype("int64") + first
        visits += np.bincount(index[finite], minlength=len(visits))
    return visits.reshape(num_chains, count)


def of_spike_slab(
    algorithm: spike_slab.SpikeSlabSampler, state: spike_slab.State, structure: Any
) -> dict[str, Any]:
    """Return the inclusion probabilities of each sparse tensor.

    Args:
        algorithm: with its settings.
        state: its last state.
        structure: of a position.

    Returns:
        `inclusion_probabilities`: rho by the name of the tensor, shape (chain, ...).
    """
    count = len(state.base.point)
    numbers = keras.tree.pack_sequence_as(structure, list(range(count)))
    names = {number: name for name, number in named_leaves(numbers).items()}
    probabilities = {
        names[i]: 1.0 - ops.convert_to_numpy(spike)
        for i, spike in zip(algorithm.sparse, state.latents.spike, strict=True)
    }
    return {"inclusion_probabilities": probabilities}


def told_of_rounding(draws: Draws) -> Draws:
    """Return the draws, and warn if rounding to float32 decides where they lie."""
    for name, array in named_leaves(draws.position).items():
        numbers = np.asarray(array, "float64").reshape(-1, *array.shape[2:])
        if len(numbers) < _FEWEST_DRAWS or not np.isfinite(numbers).all():
            continue
        wide, apart = numbers.std(axis=0), spacing(np.abs(numbers).max(axis=0))
        is_coarse = (wide < _SPACINGS * apart) & ((wide > 0.0) | (apart > _LARGE))
        if is_coarse.any():
            size = np.abs(numbers[:, is_coarse]).max()
            warn(
                f"The draws of {name!r} have a deviation of "
                f"{wide[is_coarse].min():.3g} at values of {size:.4g}, where the "
                f"float32 numbers of a chain are {apart[is_coarse].max():.3g} apart: "
                "rounding decides where they lie. Sample the difference from a value "
                "near them, in units of its size."
            )
    return draws


def warn_of_runaway_chains(
    start: Array | None, energy: Array, temperature: Any, position: Sequence[Array]
) -> None:
    """Warn of chains whose late draws lie far above the start. Call it after a run.

    A chain that starts at the mode rises by T/2 for each number of its position.

    Args:
        start: energy of each chain at the start, nats, (K,). None: unknown.
        energy: of the draws, nats, (chain, draw).
        temperature: of the target.
        position: the draws, (chain, draw, ...).
    """
    late = energy[:, -(energy.shape[1] // 3) :]
    if start is None or late.shape[1] == 0 or len(start) != len(late):
        return
    numbers = sum(math.prod(x.shape[2:]) for x in position)
    usual = 0.5 * numbers * float(ops.convert_to_numpy(temperature))
    rise = late.mean(axis=1) - start
    is_far = np.isfinite(rise) & (rise > _FAR * usual + np.abs(start))
    if is_far.any():
        warn(
            f"{is_far.sum()} of {len(is_far)} chains ran away: their late draws have "
            f"an energy of {late[is_far].mean():.4g} nats, and the start had "
            f"{start[is_far].mean():.4g}. A posterior of {numbers} numbers lies about "
            f"{usual:.3g} nats above its mode. Their draws are useless. Lower the "
            "learning rate or step size, or use `mh.kernels.mhbt`, which rejects such "
            "moves."
        )
