"""Kept samples as arrays: weights, energies, ensemble members, chains."""

from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Store

Floats = npt.NDArray[np.float64]


def log_weights(records: Sequence[Record]) -> Floats:
    """Return the samples' log weights, shape (samples,) or (samples, chains)."""
    return _rows([record.log_weight for record in records])


def energies(records: Sequence[Record]) -> Floats:
    """Return U of each sample in nats, NaN if unknown.

    The shape is (samples,) or (samples, chains).
    """
    return _rows([np.nan if r.energy is None else r.energy for r in records])


def _rows(values: Sequence[float | list[float]]) -> Floats:
    """Stack numbers or lists. A number stands for all chains, a list has one for each.

    A run may have both: its samples have numbers until the chains differ.
    """
    chains = max([np.shape(value) for value in values], default=())
    rows = [np.broadcast_to(value, chains) for value in values]
    return np.array(rows, "float64").reshape(len(values), *chains)


def members(
    store: Store, model: keras.Model, weights: Floats
) -> tuple[list[Array], Floats, keras.Model]:
    """Return the samples as members of one ensemble.

    Each draw of each chain is a member, except for draws of lost chains.

    Args:
        store: the samples.
        model: the model that was sampled, or an `mh.ParallelChains`.
        weights: their importance weights, shape (samples,) or (samples, chains).

    Returns:
        One array (members, ...) for each weight of a single model, the members'
        importance weights of shape (members,), and that single model.
    """
    stacked = store.read(model)
    if not isinstance(model, StackedModel):
        return stacked, weights, model
    stacked = [
        draws.reshape(-1, *draws.shape[2:]) for draws in model.member_weights(stacked)
    ]
    if weights.ndim == 1:
        weights = np.repeat(weights[:, None], model.num_chains, axis=1)
    weights = weights.reshape(-1)
    is_lost = _are_lost(store.records, model).reshape(-1)
    if is_lost.any():
        stacked = [draws[~is_lost] for draws in stacked]
    return stacked, weights[~is_lost], model.template


def chains(store: Store, model: keras.Model) -> tuple[list[Array], keras.Model]:
    """Return one array (chain, draw, ...) for each weight, and the single model.

    Leave out each chain that was lost at any sample: all chains need as many draws.
    """
    draws = store.read(model)
    if not isinstance(model, StackedModel):
        return [draw[None] for draw in draws], model
    draws = [np.moveaxis(draw, 1, 0) for draw in model.member_weights(draws)]
    kept = _complete_chains(store.records, model)
    if len(kept) < model.num_chains:
        draws = [draw[kept] for draw in draws]
    return draws, model.template


def _complete_chains(
    records: Sequence[Record], model: StackedModel
) -> npt.NDArray[np.intp]:
    """Return the positions of the chains that were never lost, and warn of others."""
    is_lost = np.asarray(_are_lost(records, model).any(axis=0))
    if is_lost.any():
        warn(
            f"Chains {np.flatnonzero(is_lost).tolist()} of {len(is_lost)} were lost, "
            "since their loss or gradient was not finite. They are left out."
        )
    return np.flatnonzero(~is_lost)


def _are_lost(records: Sequence[Record], model: StackedModel) -> npt.NDArray[np.bool_]:
    """Return whether each chain was lost at each sample, shape (samples, chains)."""
    logs = log_weights(records)
    if logs.ndim == 1:
        logs = np.repeat(logs[:, None], model.num_chains, axis=1)
    # A learning rate of 0 gives all chains of a sample the weight 0: none is lost.
    return np.isneginf(logs) & ~np.isneginf(logs).all(axis=1, keepdims=True)
