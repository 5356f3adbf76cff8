"""Checks of the arguments that make a ladder of chains."""

import numbers

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.algorithms import equi_energy

_ABOVE_ONE = _validate.Interval(1.0, low_open=True)
_FINITE = _validate.Interval(-3e38)


def sizes(train_size, batch_size, growth, num_levels, batch_sizes):
    """Batch sizes of all chains, decreasing from `train_size`."""
    if (batch_size is None) == (batch_sizes is None):
        raise ValueError(
            "Arguments `batch_size` and `batch_sizes`: exactly one of them must be "
            "given, the hottest chain's size or all sizes. Received: "
            f"batch_size={batch_size!r}, batch_sizes={batch_sizes!r}"
        )
    if batch_sizes is not None:
        return _all_sizes(train_size, batch_sizes)
    batch_size = _validate.integer("batch_size", batch_size, 1)
    growth = _validate.number("growth", growth, _ABOVE_ONE)
    if num_levels is not None:
        num_levels = _validate.integer("num_levels", num_levels, 2)
    above = []
    while not above or batch_size * growth ** len(above) < train_size:
        above.append(int(batch_size * growth ** len(above)))
        # A growth of nearly 1 would go on for long.
        if len(above) + 1 == num_levels or above[-1:] == above[-2:-1]:
            break
    if len(set(above)) < len(above):
        raise ValueError(
            "Arguments `batch_size` and `growth` must give batches of different sizes. "
            f"Received: batch_size={batch_size}, growth={growth:g}, which give {above}"
        )
    if above[-1] >= train_size or len(above) + 1 != (num_levels or len(above) + 1):
        raise ValueError(
            "Arguments `batch_size`, `growth` and `num_levels` must give batches "
            f"smaller than the {train_size} examples of `data`, which only the coldest "
            f"chain takes all of. Received: batch_size={batch_size}, "
            f"growth={growth:g}, num_levels={num_levels}"
        )
    return [train_size, *reversed(above)]


def _all_sizes(train_size, values):
    if not _is_list(values) or len(values) < 2:
        raise ValueError(
            "Argument `batch_sizes` must be a list of at least two sizes, the coldest "
            f"chain's first. Received: batch_sizes={_validate.shown(values)}"
        )
    values = [_validate.integer("batch_sizes", value, 1) for value in values]
    falls = all(high > low for high, low in zip(values, values[1:], strict=False))
    if values[0] != train_size or not falls:
        raise ValueError(
            f"Argument `batch_sizes` must begin with {train_size}, the number of "
            "examples in `data`, and decrease: the coldest chain takes all of it. "
            f"Received: batch_sizes={values}"
        )
    return values


def levels(energy_levels, lowest, energy, temperatures):
    """H_0..H_{K-1} in nats; `energy` is the reference's."""
    if energy_levels is None:
        if lowest is None:
            lowest = energy
        lowest = _validate.number("lowest_energy", lowest, _FINITE)
        return equi_energy.default_levels(lowest, temperatures)
    if lowest is not None:
        raise ValueError(
            "Argument `lowest_energy` is the first of `energy_levels`: give one of "
            f"them. Received: lowest_energy={lowest!r} and energy_levels"
        )
    size = len(temperatures)
    values = energy_levels
    if not _is_list(values) or len(values) != size:
        raise ValueError(
            f"Argument `energy_levels` must be a list of {size} numbers, one for each "
            f"chain. Received: energy_levels={_validate.shown(values)}"
        )
    values = [_validate.number("energy_levels", value, _FINITE) for value in values]
    if any(low >= high for low, high in zip(values, values[1:], strict=False)):
        raise ValueError(
            "Argument `energy_levels` must increase, from the lowest energy on. "
            f"Received: energy_levels={values}"
        )
    return values


def target(value):
    """The range of acceptance that step sizes are adapted to, (lowest, highest)."""
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    if is_pair and all(_is_number(end) for end in value):
        low, high = value
        if 0 <= low < high <= 1:
            return float(low), float(high)
    raise ValueError(
        "Argument `target_acceptance` must be two increasing numbers in [0, 1], such "
        f"as (0.2, 0.5). Received: target_acceptance={_validate.shown(value)}"
    )


def _is_list(values):
    return isinstance(values, list | tuple) or (
        isinstance(values, np.ndarray) and values.ndim == 1
    )


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
