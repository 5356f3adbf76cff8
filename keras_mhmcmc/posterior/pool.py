"""The chains of one posterior that several runs kept, each in a folder of its own."""

import os
from collections.abc import Sequence
from typing import NoReturn

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.posterior.directory import DirectoryStore
from keras_mhmcmc.posterior.run import differences
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Store


class PooledStore(Store):
    """The samples of several folders, read side by side. Nothing is written.

    The i-th record describes the i-th sample of all chains. The chains of each folder
    follow those of the one before it.
    """

    def __init__(self, stores: Sequence[DirectoryStore], length: int) -> None:
        self.stores = stores
        self.records = [
            _joined(stores, [store.records[i] for store in stores])
            for i in range(length)
        ]

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        """Return the iteration of each sample, shape (samples, chains)."""
        columns = [
            store.iterations[: len(self.records)]
            for store in self.stores
            for _ in range(chains_of(store))
        ]
        return np.stack(columns, axis=1)

    def join(self, model: keras.Model) -> None:
        """Do nothing: `open` refuses the store."""

    def open(self, model: keras.Model, iterations: int) -> NoReturn:
        """Refuse to keep samples of a further run."""
        raise ValueError(
            "A collection of several directories must not be a callback of `fit`. To "
            "continue a chain, pass `mh.PosteriorSamples(directory=...)` with its own "
            "directory, and load all of them again afterwards. Received: directory="
            f"{[store.directory for store in self.stores]}"
        )

    def close(self) -> None:
        """Do nothing: nothing was opened."""

    def read(self, model: keras.Model) -> list[Array]:
        """Return one array (samples, folders, ...) for each of `model.weights`.

        If all samples of all folders hold the same array, it is a read-only view.
        """
        length = len(self.records)
        folders = [store.read(model, length) for store in self.stores]
        return [_side_by_side(arrays) for arrays in zip(*folders, strict=True)]


def loaded(directory: PathLike | Sequence[PathLike], truncate: bool) -> Store:
    """Return the samples of a folder, or of several folders that fit together.

    Raises:
        ValueError: see `mh.PosteriorSamples.load`.
    """
    truncate = _validate.choice("truncate", truncate, (False, True))
    if isinstance(directory, str | os.PathLike):
        return _opened(directory)
    if not isinstance(directory, list | tuple) or not directory:
        raise ValueError(
            "Argument `directory` must be the path of a folder, or a list with at "
            f"least one. Received: directory={_validate.shown(directory)}"
        )
    stores = [_opened(folder) for folder in directory]
    # Older folders say nothing of their sampler, and fit any.
    known = next((s for s in stores if s.run.arguments is not None), stores[0])
    by_path: dict[str, DirectoryStore] = {}
    by_seed: dict[int, DirectoryStore] = {}
    for store in stores:
        _check_once(store, by_path)
        _check_seed(store, by_seed)
        _check_same_law(known, store)
    lengths = [len(store.records) for store in stores]
    if len(set(lengths)) > 1 and not truncate:
        counts = {store.directory: len(store.records) for store in stores}
        raise ValueError(
            "Argument `directory` must list chains with equally many samples. Wait "
            "until all runs have ended, or pass truncate=True, which leaves out the "
            "newest samples of the longer chains. Received: directories with these "
            f"numbers of samples: {counts}"
        )
    return PooledStore(stores, min(lengths))


def _opened(directory: PathLike) -> DirectoryStore:
    """Return the samples of a folder, of which there must be some."""
    store = DirectoryStore(directory)
    if not store.records:
        raise ValueError(
            "Argument `directory` must be a folder with samples that "
            "`mh.PosteriorSamples(directory=...)` kept. Received: "
            f"directory={store.directory!r}, which has none."
        )
    return store


def chains_of(store: DirectoryStore) -> int:
    """Return the number of chains in a folder."""
    if store.run.chains is not None:
        return store.run.chains
    # Manifests without the number have energies of all chains, if it is not 1.
    counts = [len(r.energy) for r in store.records if isinstance(r.energy, list)]
    return max(counts, default=1)


def _check_once(store: DirectoryStore, by_path: dict[str, DirectoryStore]) -> None:
    path = os.path.realpath(store.directory)
    if path in by_path:
        raise ValueError(
            "Argument `directory` must list each folder once. Received: "
            f"{by_path[path].directory!r} and {store.directory!r}, the same folder"
        )
    by_path[path] = store


def _check_seed(store: DirectoryStore, by_seed: dict[int, DirectoryStore]) -> None:
    seed = store.run.seed
    if seed is None:
        return
    if seed in by_seed:
        raise ValueError(
            "Argument `directory` must list chains with noise of their own, but two "
            "have the same seed. Run one of them again, with another `seed` of the "
            f"sampler. Received: {by_seed[seed].directory!r} and {store.directory!r}, "
            f"both with seed={seed}"
        )
    by_seed[seed] = store


def _check_same_law(first: DirectoryStore, other: DirectoryStore) -> None:
    if first.signature != other.signature:
        raise ValueError(
            "Argument `directory` must list chains of one model, with the same names, "
            "shapes and types of weights. Load the others by themselves. Received: "
            f"{first.directory!r}, with samples of {first.signature}, and "
            f"{other.directory!r}, with samples of {other.signature}"
        )
    found = differences(first.run, other.run)
    if found:
        raise ValueError(
            "Argument `directory` must list chains of one sampler, with the same "
            "arguments but for `seed` and `learning_rate`. Load the others by "
            f"themselves. Received: {first.directory!r} and {other.directory!r}, with "
            f"{'; '.join(found)[:500]}"
        )


def _joined(stores: Sequence[DirectoryStore], records: Sequence[Record]) -> Record:
    """Return the record of a sample of all chains, with a list entry for each chain."""
    log_weights: list[float] = []
    energies: list[float] = []
    excess: list[float] = []
    for store, record in zip(stores, records, strict=True):
        chains = chains_of(store)
        energy = np.nan if record.energy is None else record.energy
        log_weights += np.broadcast_to(record.log_weight, chains).tolist()
        energies += np.broadcast_to(energy, chains).tolist()
        excess += [-np.inf] * chains if record.excess is None else record.excess
    last = max(record.iteration for record in records)
    return Record(last, log_weights, energies, excess=excess)


def _side_by_side(arrays: Sequence[Array]) -> Array:
    """Return arrays (samples, ...) of folders as one (samples, folders, ...)."""
    first = arrays[0]
    # The samples of a folder share an array along an axis with a stride of 0.
    are_shared = all(array.strides[0] == 0 for array in arrays)
    if are_shared and all(np.array_equal(a[0], first[0]) for a in arrays):
        shape = (len(first), len(arrays), *first.shape[1:])
        return np.broadcast_to(first[0], shape)
    return np.stack(arrays, axis=1)
