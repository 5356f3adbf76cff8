"""Kept samples as arrays: weights, energies, ensemble members, chains."""

from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit import run_watch
from keras_mhmcmc.posterior.pool import PooledStore
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

    Each draw of each chain is a member, except for draws of lost chains, and for those
    that lie above a constant prediction.

    Args:
        store: the samples.
        model: the model that was sampled, or an `mh.ParallelChains`.
        weights: their importance weights, shape (samples,) or (samples, chains).

    Returns:
        One array (members, ...) for each weight of a single model, the members'
        importance weights of shape (members,), and that single model.

    Raises:
        ValueError: all draws lie above a constant prediction.
    """
    draws, single = _by_chain(store, model)
    samples, count = draws[0].shape[:2]
    if weights.ndim == 1:
        weights = np.repeat(weights[:, None], count, axis=1)
    weights = weights.reshape(-1)
    stacked = [draw.reshape(samples * count, *draw.shape[2:]) for draw in draws]
    is_lost = _are_lost(store.records, model, count).reshape(-1)
    is_above = run_watch.are_above(store.records, count).reshape(-1)
    run_watch.tell_of_left_out(is_above[~is_lost], "samples")
    is_out = is_lost | is_above
    if is_out.any():
        stacked = [draw[~is_out] for draw in stacked]
    return stacked, weights[~is_out], single


def chains(store: Store, model: keras.Model) -> tuple[list[Array], keras.Model]:
    """Return one array (chain, draw, ...) for each weight, and the single model.

    Leave out each chain that was lost at any sample, or ran away: all chains need as
    many draws.
    """
    draws, single = _by_chain(store, model)
    draws = [np.moveaxis(draw, 1, 0) for draw in draws]
    above = np.asarray(run_watch.are_above(store.records, len(draws[0])).all(axis=0))
    run_watch.tell_of_left_out(above, "chains")
    kept = _complete_chains(store.records, model, len(draws[0]))
    kept = kept[~above[kept]]
    if len(kept) < len(draws[0]):
        draws = [draw[kept] for draw in draws]
    return draws, single


def _by_chain(store: Store, model: keras.Model) -> tuple[list[Array], keras.Model]:
    """Return one array (samples, chains, ...) for each weight, and the single model."""
    draws, single = store.read(model), model
    is_stacked, is_pool = (
        isinstance(model, StackedModel),
        isinstance(store, PooledStore),
    )
    if isinstance(model, StackedModel):
        draws, single = model.member_weights(draws), model.template
    if is_stacked and is_pool:  # (samples, folders, chains of a folder, ...)
        shapes = [(len(d), d.shape[1] * d.shape[2], *d.shape[3:]) for d in draws]
        draws = [d.reshape(shape) for d, shape in zip(draws, shapes, strict=True)]
    elif not is_stacked and not is_pool:
        draws = [draw[:, None] for draw in draws]
    return draws, single


def _complete_chains(
    records: Sequence[Record], model: keras.Model, count: int
) -> npt.NDArray[np.intp]:
    """Return the positions of the chains that were never lost, and warn of others."""
    is_lost = np.asarray(_are_lost(records, model, count).any(axis=0))
    if is_lost.any():
        warn(
            f"Chains {np.flatnonzero(is_lost).tolist()} of {len(is_lost)} were lost, "
            "since their loss or gradient was not finite. They are left out."
        )
    return np.flatnonzero(~is_lost)


def _are_lost(
    records: Sequence[Record], model: keras.Model, count: int
) -> npt.NDArray[np.bool_]:
    """Return whether each chain was lost at each sample, shape (samples, chains)."""
    logs = log_weights(records)
    if not isinstance(model, StackedModel):  # a lost chain of its own has no samples
        return np.zeros((len(logs), count), bool)
    if logs.ndim == 1:
        logs = np.repeat(logs[:, None], count, axis=1)
    # A learning rate of 0 gives all chains of a sample the weight 0: none is lost.
    return np.isneginf(logs) & ~np.isneginf(logs).all(axis=1, keepdims=True)
