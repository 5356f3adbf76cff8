"""Kept samples as arrays, of one folder or of the chains of several."""

import os
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NoReturn

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit import run_watch
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Store
from keras_mhmcmc.posterior.store import differences

Floats = npt.NDArray[np.float64]


def log_weights(records: Sequence[Record]) -> Floats:
    return _rows([record.log_weight for record in records])


def energies(records: Sequence[Record]) -> Floats:
    """Return U in nats, NaN if unknown, shape (samples,) or (samples, chains)."""
    return _rows([np.nan if r.energy is None else r.energy for r in records])


def _rows(values: Sequence[float | list[float]]) -> Floats:
    """Stack numbers, which stand for all chains, and lists, with one for each."""
    chains = max([np.shape(value) for value in values], default=())
    rows = [np.broadcast_to(value, chains) for value in values]
    return np.array(rows, "float64").reshape(len(values), *chains)


def members(
    store: Store, model: keras.Model, weights: Floats
) -> tuple[list[Array], Floats, keras.Model]:
    """Return the draws of all chains as members of one ensemble.

    They are one array (members, ...) for each weight of a single model, the importance
    weights, and that model. Draws of lost chains and runaways are left out.
    """
    draws, single = _by_chain(store, model)
    samples, count = draws[0].shape[:2]
    stacked = [draw.reshape(samples * count, *draw.shape[2:]) for draw in draws]
    is_lost = _are_lost(store.records, model, count)
    is_above = run_watch.are_above(store.records, count)
    run_watch.tell_of_left_out(is_above[~is_lost], "samples")
    is_out = (is_lost | is_above).reshape(-1)
    if is_out.any():  # else weights that all samples share stay views
        stacked = [draw[~is_out] for draw in stacked]
    return stacked, _of_chains(weights, count).reshape(-1)[~is_out], single


def chains(store: Store, model: keras.Model) -> tuple[list[Array], keras.Model]:
    """Return one array (chain, draw, ...) for each weight, and the single model.

    Chains that were lost at any sample, or ran away, are left out.
    """
    draws, single = _by_chain(store, model)
    draws = [np.moveaxis(draw, 1, 0) for draw in draws]
    above = np.asarray(run_watch.are_above(store.records, len(draws[0])).all(axis=0))
    run_watch.tell_of_left_out(above, "chains")
    is_lost = np.asarray(_are_lost(store.records, model, len(above)).any(axis=0))
    if is_lost.any():
        warn(
            f"Chains {np.flatnonzero(is_lost).tolist()} of {len(is_lost)} are left "
            "out, since their loss or gradient was not finite."
        )
    is_out = is_lost | above
    return [draw[~is_out] for draw in draws] if is_out.any() else draws, single


def _by_chain(store: Store, model: keras.Model) -> tuple[list[Array], keras.Model]:
    draws, single = store.read(model), model
    is_pool = isinstance(store, PooledStore)
    if isinstance(model, StackedModel):
        draws, single = model.member_weights(draws), model.template
        if is_pool:  # (samples, folders, chains of a folder, ...)
            draws = [d.reshape(len(d), -1, *d.shape[3:]) for d in draws]
    elif not is_pool:
        draws = [draw[:, None] for draw in draws]
    return draws, single


def _of_chains(values: Floats, count: int) -> Floats:
    """Return values (samples, chains), also of samples without a chain axis."""
    return np.repeat(values[:, None], count, axis=1) if values.ndim == 1 else values


def _are_lost(
    records: Sequence[Record], model: keras.Model, count: int
) -> npt.NDArray[np.bool_]:
    """Return whether each chain was lost at each sample, shape (samples, chains)."""
    logs = _of_chains(log_weights(records), count)
    if not isinstance(model, StackedModel):  # a lost chain of its own has no samples
        return np.zeros((len(logs), count), bool)
    # A learning rate of 0 gives all chains of a sample the weight 0: none is lost.
    return np.isneginf(logs) & ~np.isneginf(logs).all(axis=1, keepdims=True)


class PooledStore(Store):
    """The samples of several folders side by side: a record is of all chains."""

    def __init__(self, stores: Sequence[Store], length: int) -> None:
        super().__init__()
        self.stores = stores
        self.records = [
            _joined(stores, [store.records[i] for store in stores])
            for i in range(length)
        ]

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        columns = [
            store.iterations[: len(self.records)]
            for store in self.stores
            for _ in range(_chains_of(store))
        ]
        return np.stack(columns, axis=1)

    def open(self, model: keras.Model, iterations: int) -> NoReturn:
        """Refuse to keep samples of a further run."""
        raise ValueError(
            "A collection of several directories must not be a callback of `fit`. To "
            "continue a chain, pass `mh.PosteriorSamples(directory=...)` with its own "
            "directory, and load all of them again afterwards. Received: directory="
            f"{[store.directory for store in self.stores]}"
        )

    def read(self, model: keras.Model, length: int | None = None) -> list[Array]:
        folders = [store.read(model, len(self.records)) for store in self.stores]
        return [_side_by_side(arrays) for arrays in zip(*folders, strict=True)]


def _chains_of(store: Store) -> int:
    return store.run.chains or 1


def _joined(stores: Sequence[Store], records: Sequence[Record]) -> Record:
    """Return the record of a sample of all chains, with a list entry for each chain."""

    def of_all(values: Iterable[float | list[float]]) -> list[float]:
        pairs = zip(values, map(_chains_of, stores), strict=True)
        return np.concatenate([np.broadcast_to(*pair) for pair in pairs]).tolist()

    return Record(
        max(record.iteration for record in records),
        of_all(record.log_weight for record in records),
        of_all(np.nan if r.energy is None else r.energy for r in records),
        excess=of_all(-np.inf if r.excess is None else r.excess for r in records),
    )


def _side_by_side(arrays: Sequence[Array]) -> Array:
    """Return arrays (samples, ...) of folders as one (samples, folders, ...)."""
    first = arrays[0]
    # The samples of a folder share an array along an axis with a stride of 0.
    are_shared = all(array.strides[0] == 0 for array in arrays)
    if are_shared and all(np.array_equal(a[0], first[0]) for a in arrays):
        shape = (len(first), len(arrays), *first.shape[1:])
        return np.broadcast_to(first[0], shape)
    return np.stack(arrays, axis=1)


def loaded(directory: PathLike | Sequence[PathLike], truncate: bool) -> Store:
    """Return the samples of a folder, or of several folders that fit together."""
    truncate = _validate.choice("truncate", truncate, (False, True))
    if isinstance(directory, str | os.PathLike):
        return _opened(directory)
    if not isinstance(directory, list | tuple) or not directory:
        raise ValueError(
            "Argument `directory` must be the path of a folder, or a list with at "
            f"least one. Received: directory={_validate.shown(directory)}"
        )
    stores = [_opened(folder) for folder in directory]
    for index, store in enumerate(stores):
        for other in stores[:index]:
            _check_independent(other, store)
        _check_same_law(stores[0], store)
    counts = {store.directory: len(store.records) for store in stores}
    if len(set(counts.values())) > 1 and not truncate:
        raise ValueError(
            "Argument `directory` must list chains with equally many samples. Wait "
            "until all runs have ended, or pass truncate=True, which leaves out the "
            "newest samples of the longer chains. Received: directories with these "
            f"numbers of samples: {counts}"
        )
    return PooledStore(stores, min(counts.values()))


def _opened(directory: PathLike) -> Store:
    """Return the samples of a folder, of which there must be some."""
    kinds = str, os.PathLike
    store = Store(_validate.instance("directory", directory, kinds, "paths of folders"))
    if not store.records:
        raise ValueError(
            "Argument `directory` must be a folder with samples that "
            "`mh.PosteriorSamples(directory=...)` kept. Received: "
            f"directory={os.fspath(directory)!r}, which has none."
        )
    return store


def _check_independent(one: Store, other: Store) -> None:
    """Refuse the same folder twice, and the same noise twice."""
    both = f"{one.directory!r} and {other.directory!r}"
    if os.path.samefile(one.directory, other.directory):
        raise ValueError(
            "Argument `directory` must list each folder once. "
            f"Received: {both}, the same folder"
        )
    if one.run.seed == other.run.seed is not None:
        raise ValueError(
            "Argument `directory` must list chains with noise of their own, but two "
            "have the same seed. Run one of them again, with another `seed` of the "
            f"sampler. Received: {both}, with seed={one.run.seed}"
        )


def _check_same_law(one: Store, other: Store) -> None:
    if one.signature != other.signature:
        raise ValueError(
            "Argument `directory` must list chains of one model, with the same names, "
            "shapes and types of weights. Load the others by themselves. Received: "
            f"{one.directory!r}, with samples of {one.signature}, and "
            f"{other.directory!r}, with samples of {other.signature}"
        )
    found = differences(one.run, other.run)
    if found:
        raise ValueError(
            "Argument `directory` must list chains of one sampler, with the same "
            "arguments but for `seed` and `learning_rate`. Load the others by "
            f"themselves. Received: {one.directory!r} and {other.directory!r}, with "
            f"{'; '.join(found)[:500]}"
        )
