"""Faults that a start or the draws of a run show: errors before, warnings after."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.sampling.draws import named_leaves
from keras_mhmcmc.sampling.log_density import LogDensity

_MANY = 100  # steps after which a chain that accepted none stands still
# Largest spacing of the energies, relative to the kernel's energy unit. At this spacing
# the variance of a normal target in one dimension is wrong by up to 1.0%, at twice by
# 2.9%, at eight times by 22%. In five dimensions it is wrong by 0.3% at eight times.
COARSEST = 0.125
_FEWEST_DRAWS = 10  # fewer show no deviation
_LOOKED_AT = 1000, 100  # chains, and draws of each, whose deviation is looked at
_SPACINGS = 4.0  # of float32 in a deviation: fewer are too coarse
_LARGE = 1e-3  # a spacing at which a chain may stand still by rounding
_FAR = 10.0  # times the usual height above the mode: no chain of a posterior is there


def check_finite(
    target: LogDensity, structure: Any, position: list[Tensor], indices: list[Tensor]
) -> Array:
    """Return the energies at the start, (K,), or raise an error: one is not finite."""

    def energies(
        position: list[Tensor], indices: list[Tensor], constants: list[Tensor]
    ) -> Tensor:
        return target.energies(structure, constants, False)(position, indices)[0]

    evaluate = _backend.compile_function(energies)
    energy = ops.convert_to_numpy(evaluate(position, indices, target.constants))
    if not np.isfinite(energy).all():
        bad = int(np.argmin(np.isfinite(energy)))
        raise ValueError(
            "Argument `init` must be where the log density is finite. "
            + count_of_nonfinite(target)
            + f"Received: a position of chain {bad} with the log density "
            f"{-energy[bad]} ({np.sum(~np.isfinite(energy))} of {len(energy)} chains "
            f"are not finite): {[ops.convert_to_numpy(x)[bad] for x in position]}"
        )
    return energy


def spacing(energy: Array | float) -> Array:
    """Return the distance from each energy to the next float32 number."""
    return np.spacing(np.abs(np.asarray(energy, "float32")))


def check_resolution(energy: Array, unit: float | None, name: str) -> None:
    """Raise an error if float32 energies are too coarse for the kernel's decisions."""
    # One chain that is fine enough will do: others may start far out.
    if unit is None or (spacing(energy) <= COARSEST * unit).any():
        return
    best = float(np.min(np.abs(energy)))
    raise ValueError(
        f"Argument `{name}` must return smaller numbers: {_remedy(unit)} "
        f"Received: an energy of at least {best:.4g} nats at `init`, where float32 "
        f"numbers are {spacing(best):.3g} nats apart"
    )


def warn_of_coarse_energies(energy: Array, unit: float | None) -> None:
    """Warn of chains with mostly too coarse energies for the kernel's decisions."""
    if unit is None or energy.shape[1] == 0:
        return
    coarse = np.mean(spacing(energy) > COARSEST * unit, axis=1) > 0.5
    if coarse.any():
        typical = float(np.median(np.abs(energy[coarse])))
        warn(
            f"The draws of {coarse.sum()} of {len(coarse)} chains do not follow the "
            f"density: their energy is about {typical:.4g} nats, where float32 numbers "
            f"are {spacing(typical):.3g} nats apart, but {_remedy(unit)}",
        )


def _remedy(unit: float) -> str:
    return (
        f"the kernel decides on energy differences of {unit:.3g} nats, and needs them "
        "to within an eighth. Leave out the constants of the log density, subtract its "
        "value at the mode, start nearer to the mode, or raise the temperature or the "
        "`energy_gap`."
    )


def count_of_nonfinite(target: LogDensity) -> str:
    arrays = [ops.convert_to_numpy(tensor) for tensor in target.constants]
    count = sum(int(np.sum(~np.isfinite(a))) for a in arrays if a.dtype.kind == "f")
    return f"`data` has {count} values that are not finite. " if count else ""


def warn_of_still_chains(
    counts: Mapping[str, Array],
    consequence: str = "the draws of such a chain are one position",
) -> None:
    """Warn of Metropolis-Hastings chains that did not move."""
    tried = np.maximum(counts["proposed"], counts["nonfinite"])
    still = (counts["accepted"] == 0.0) & (tried >= _MANY)
    if still.any():
        warn(
            f"{still.sum()} of {len(still)} chains accepted no proposal after the "
            f"burn-in: {consequence}. Lower the learning rate or step size, or start "
            "where the gradient of the log density is finite. Received: "
            f"{counts['proposed'][still].max():.0f} proposals, and "
            f"{counts['nonfinite'][still].max():.0f} steps that were not finite",
        )


def warn_of_lost_chains(energy: Array, target: LogDensity) -> None:
    outside = ~np.isfinite(energy)
    lost: Array = np.any(outside, axis=1)
    if lost.any():
        warn(
            f"{lost.sum()} of {len(lost)} chains ran to where the log density is not "
            f"finite: {outside[lost].mean():.1%} of their draws lie there, and are "
            f"useless. {count_of_nonfinite(target)}Lower the learning rate, transform "
            "to variables without limits, or use `mh.kernels.mhbt`, which rejects "
            "such moves.",
        )


def warn_of_nonfinite_data(counts: Mapping[str, Array], target: LogDensity) -> None:
    steps = counts["nonfinite"].sum()
    bad = count_of_nonfinite(target)
    if steps > 0 and bad:
        warn(
            f"{steps:.0f} steps of the chains were not finite, and were rejected. "
            f"{bad}Remove these rows, or let the likelihood leave them out."
        )


def warn_of_rounding(position: Any) -> None:
    for name, array in named_leaves(position).items():
        few = [
            max(1, n // most)
            for n, most in zip(array.shape[:2], _LOOKED_AT, strict=True)
        ]
        array = array[:: few[0], :: few[1]]
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
                "near these draws, in units of their deviation."
            )


def warn_of_runaway_chains(start: Array | None, energy: Array, usual: float) -> None:
    """Warn of chains whose late draws lie far above the start.

    From the mode a chain rises by T/2 for each number of its position: `usual`.
    """
    late = energy[:, -(energy.shape[1] // 3) :]
    if start is None or late.shape[1] == 0:
        return
    rise = late.mean(axis=1) - start
    is_far = np.isfinite(rise) & (rise > _FAR * usual + np.abs(start))
    if is_far.any():
        warn(
            f"{is_far.sum()} of {len(is_far)} chains ran away, and their draws are "
            f"useless: their energy rose from {start[is_far].mean():.4g} to "
            f"{late[is_far].mean():.4g} nats, and a chain of this posterior lies about "
            f"{usual:.3g} nats above its mode. Lower the learning rate or step size, "
            "or use `mh.kernels.mhbt`."
        )


def warn_of_large_batches(batch_size: Array, train_size: int) -> None:
    mean = float(np.mean(batch_size))
    if mean > train_size:
        warn(
            f"A step of the kernel evaluated {mean:.0f} examples in the mean, and the "
            f"data has {train_size}. A test on all of the data is cheaper: use "
            "`mh.kernels.mhbt` without `batch_size`, or lower the kernel's "
            "`learning_rate` or the number of examples that it draws."
        )
