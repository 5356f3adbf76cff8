"""Checks of the arguments of `mh.equi_energy` that describe its ladder of chains."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.samplers import ladders

_ABOVE_ONE = _validate.Interval(1.0, low_open=True)
_FINITE = _validate.Interval(-3e38)


def sizes(
    train_size: int, batch_size: Any, growth: Any, num_levels: Any, batch_sizes: Any
) -> list[int]:
    """Return the batch sizes of all chains, decreasing from `train_size`.

    Args:
        train_size: number of examples, n.
        batch_size: as in `mh.equi_energy`.
        growth: as in `mh.equi_energy`.
        num_levels: as in `mh.equi_energy`.
        batch_sizes: as in `mh.equi_energy`.

    Raises:
        ValueError: an argument is wrong.
    """
    if (batch_size is None) == (batch_sizes is None):
        raise ValueError(
            "Exactly one of the arguments `batch_size` and `batch_sizes` must be "
            "given: the hottest chain's size, or all sizes. Received: "
            f"batch_size={batch_size!r}, batch_sizes={batch_sizes!r}"
        )
    if batch_sizes is not None:
        return _all_sizes(train_size, batch_sizes)
    batch_size = _validate.integer("batch_size", batch_size, 1)
    growth = _validate.number("growth", growth, _ABOVE_ONE)
    if num_levels is not None:
        num_levels = _validate.integer("num_levels", num_levels, 2)
    above: list[int] = []  # the hottest chain's first
    while not above or batch_size * growth ** len(above) < train_size:
        above.append(int(batch_size * growth ** len(above)))
        # Stop at equal sizes: with a growth of nearly 1 the loop would take long.
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
            f"smaller than the {train_size} examples of `data`: only the coldest chain "
            f"takes all of them. Received: batch_size={batch_size}, "
            f"growth={growth:g}, num_levels={num_levels}"
        )
    return [train_size, *reversed(above)]


def _all_sizes(train_size: int, values: Any) -> list[int]:
    if not _is_list(values) or len(values) < 2:
        raise ValueError(
            "Argument `batch_sizes` must be a list of at least two sizes, the coldest "
            f"chain's first. Received: batch_sizes={_validate.shown(values)}"
        )
    values = [_validate.integer("batch_sizes", value, 1) for value in values]
    falls = all(high > low for high, low in zip(values, values[1:], strict=False))
    if values[0] != train_size or not falls:
        raise ValueError(
            f"Argument `batch_sizes` must decrease from {train_size}, the number of "
            "examples in `data`: the coldest chain takes all of them. "
            f"Received: batch_sizes={values}"
        )
    return values


def levels(
    energy_levels: Any, lowest: Any, energy: float, temperatures: Sequence[float]
) -> list[float]:
    """Return the energy levels H_0..H_{K-1} in nats.

    Args:
        energy_levels: as in `mh.equi_energy`.
        lowest: `lowest_energy` of `mh.equi_energy`.
        energy: of the reference, nats, which replaces `lowest` if it is None.
        temperatures: of the chains, the coldest first.

    Raises:
        ValueError: an argument is wrong.
    """
    if energy_levels is None:
        if lowest is None:
            lowest = energy
        lowest = _validate.number("lowest_energy", lowest, _FINITE)
        return ladders.default_levels(lowest, temperatures)
    if lowest is not None:
        raise ValueError(
            "Argument `lowest_energy` must be None with `energy_levels`, which begin "
            f"with it. Received: lowest_energy={lowest!r} and energy_levels"
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
            "Argument `energy_levels` must increase, the coldest chain's first. "
            f"Received: energy_levels={values}"
        )
    return values


def target(value: Any) -> tuple[float, float]:
    """Return the target range of the acceptance, (lowest, highest), or raise."""
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    if is_pair and all(_is_number(end) for end in value):
        low, high = value
        if 0 <= low < high <= 1:
            return float(low), float(high)
    raise ValueError(
        "Argument `target_acceptance` must be two increasing numbers in [0, 1], such "
        f"as (0.2, 0.5). Received: target_acceptance={_validate.shown(value)}"
    )


def _is_list(values: Any) -> bool:
    return isinstance(values, list | tuple) or (
        isinstance(values, np.ndarray) and values.ndim == 1
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
