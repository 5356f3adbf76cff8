"""What kept samples are, as arrays: weights, energies, members, chains."""

import numpy as np

from keras_mhmcmc._warn import warn
from keras_mhmcmc.parallel.stacked_model import StackedModel


def log_weights(records):
    """Log weights of the samples, shape (samples,), or (samples, chains)."""
    return _rows([record.log_weight for record in records])


def energies(records):
    """U of each sample in nats, NaN where it is not known, shaped alike."""
    return _rows([np.nan if r.energy is None else r.energy for r in records])


def _rows(values):
    """Numbers, or lists with one for each chain, as an array; a number counts for all.

    A sample has a list only from when the chains differ.
    """
    chains = max([np.shape(value) for value in values], default=())
    rows = [np.broadcast_to(value, chains) for value in values]
    return np.array(rows, "float64").reshape(len(values), *chains)


def members(store, model, weights):
    """Arrays of all members, one for each weight of a model; weights; that model.

    Every draw of every chain is a member, but for those of chains that were lost.
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


def chains(store, model):
    """Arrays (chain, draw, ...), one for each weight of a model, and that model.

    A chain that was lost is left out, since all chains have the same draws.
    """
    draws = store.read(model)
    if not isinstance(model, StackedModel):
        return [draw[None] for draw in draws], model
    draws = [np.moveaxis(draw, 1, 0) for draw in model.member_weights(draws)]
    kept = whole_chains(store.records, model)
    if len(kept) < model.num_chains:
        draws = [draw[kept] for draw in draws]
    return draws, model.template


def whole_chains(records, model):
    """Positions of the chains that were never lost; warns of the others."""
    is_lost = _are_lost(records, model).any(axis=0)
    if is_lost.any():
        warn(
            f"Chains {np.flatnonzero(is_lost).tolist()} of {len(is_lost)} were lost, "
            "since their loss or gradient was not finite. They are left out."
        )
    return np.flatnonzero(~is_lost)


def _are_lost(records, model):
    """Whether each chain, the columns, was lost at each sample, the rows."""
    logs = log_weights(records)
    if logs.ndim == 1:
        logs = np.repeat(logs[:, None], model.num_chains, axis=1)
    # A learning rate of 0 leaves no chain of a sample a weight.
    return np.isneginf(logs) & ~np.isneginf(logs).all(axis=1, keepdims=True)


def distinct(names):
    """The names, numbered where one comes again: nested models may share paths."""
    counts, distinct = {}, []
    for name in names:
        count = counts[name] = counts.get(name, -1) + 1
        distinct.append(f"{name}_{count}" if count else name)
    return distinct
