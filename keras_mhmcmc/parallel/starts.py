"""First weights of chains, taken from other networks."""

import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.parallel.initial_values import drawn_again

Start = StackedModel | Sequence[keras.Model | PathLike]

_ENDINGS = (".keras", ".weights.h5")
_MUST_BE = (
    "Argument `start` must be None, an `mh.ParallelChains`, or a list with a built "
    "`keras.Model`, or the path of a `.keras` or `.weights.h5` file, for each chain."
)


def checked_count(num_chains: Any, start: Any) -> int:
    """Return K, by default the number of networks in `start`."""
    if num_chains is None and isinstance(start, StackedModel):
        return start.num_chains
    if num_chains is None and isinstance(start, list | tuple):
        num_chains = len(start)
    hint = "Or pass a network for each chain in `start`."
    return _validate.integer("num_chains", num_chains, 1, hint)


def values_of(
    start: Any, model: keras.Model, num_chains: int, seed: int
) -> list[Array]:
    """Return one array (chains, ...) for each of `model.variables`.

    Weights, also those that are not trained, come from `start`. The states of random
    generators are drawn, since equal states would give all chains the same masks.

    Raises:
        ValueError: `start` has another number of networks than there are chains, or one
            of them is not built, cannot be read, or has other or infinite weights.
    """
    generator = np.random.default_rng(seed)
    if isinstance(start, StackedModel):
        _check_count(num_chains, start.num_chains)
        rows = start.member_weights(_current_weights(start))
        names = [f"start[{chain}]" for chain in range(num_chains)]
        members = [[row[chain] for row in rows] for chain in range(num_chains)]
    elif isinstance(start, list | tuple):
        _check_count(num_chains, len(start))
        names = [_name(place, entry) for place, entry in enumerate(start)]
        members = list(_weights_of_each(start, names, model, generator))
    else:
        raise ValueError(f"{_MUST_BE} Received: start={_validate.shown(start)}")
    for name, member in zip(names, members, strict=True):
        _check_weights(name, member, model)
    columns = zip(*members, strict=True)
    stacked = {
        id(variable): np.stack(values)
        for variable, values in zip(model.weights, columns, strict=True)
    }
    return [
        stacked[id(variable)]
        if id(variable) in stacked
        else _generator_states(num_chains, generator)
        for variable in model.variables
    ]


def _weights_of_each(
    start: Sequence[Any],
    names: Sequence[str],
    model: keras.Model,
    generator: np.random.Generator,
) -> Iterator[list[Array]]:
    """Yield the weights of each model, or of each file."""
    reader = None
    for name, entry in zip(names, start, strict=True):
        if isinstance(entry, str | os.PathLike):
            _check_file(name, entry)
            reader = drawn_again(model, generator) if reader is None else reader
            yield _read_weights(name, entry, reader)
        elif isinstance(entry, keras.Model):
            if not entry.built:
                raise ValueError(
                    "Argument `start` must have built models: give this model an input "
                    "shape, or call it on some data. "
                    f"Received: {name}, which is not built"
                )
            yield _current_weights(entry)
        else:
            raise ValueError(f"{_MUST_BE} Received: {name}={_validate.shown(entry)}")


def _current_weights(model: keras.Model) -> list[Array]:
    """Return the values of `model.weights`: the state of a chain, not its proposal."""
    values = {id(variable): variable for variable in model.weights}
    sampler = model.optimizer if model.compiled else None
    if isinstance(sampler, Sampler) and sampler.built:
        sampled = zip(sampler.sampled_variables, sampler.state_values(), strict=True)
        values |= {id(variable): state for variable, state in sampled}
    return [np.array(ops.convert_to_numpy(value)) for value in values.values()]


def _read_weights(name: str, path: PathLike, reader: keras.Model) -> list[Array]:
    """Return the weights in a file, by way of a model of the same architecture."""
    try:
        reader.load_weights(path)
        # Keras reads what `reader` needs, and is silent about further layers in a file.
        with tempfile.TemporaryDirectory() as folder:
            own = os.path.join(folder, "own.weights.h5")
            reader.save_weights(own)
            counts = _count_arrays(path), _count_arrays(own)
        if counts[0] != counts[1]:
            raise ValueError(f"It has {counts[0]} arrays instead of {counts[1]}")
    except (KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            "Argument `start` must have files with the weights of networks of the same "
            "architecture as `model`. For another file, load the model yourself and "
            f"pass it. Received: {name}, which raises: {str(error).strip()}"
        ) from error
    return _current_weights(reader)


def _count_arrays(path: PathLike) -> int:
    """Return the number of arrays in a file that do not belong to an optimizer."""
    if os.fspath(path).endswith(".keras"):
        with zipfile.ZipFile(path) as archive:
            content: Any = io.BytesIO(archive.read("model.weights.h5"))
    else:
        content = path
    found: list[str] = []
    with h5py.File(content, "r") as file:
        file.visititems(
            lambda name, part: (
                found.append(name) if isinstance(part, h5py.Dataset) else None
            )
        )
    return sum(not name.startswith("optimizer/") for name in found)


def _name(place: int, entry: Any) -> str:
    """Return how an error calls an entry of `start`."""
    is_path = isinstance(entry, str | os.PathLike)
    return f"start[{place}]={os.fspath(entry)!r}" if is_path else f"start[{place}]"


def _generator_states(num_chains: int, generator: np.random.Generator) -> Array:
    """Return first states of a `keras.random.SeedGenerator`, shape (chains, 2)."""
    seeds = generator.integers(2**31, size=num_chains)
    return np.stack([seeds, np.zeros_like(seeds)], axis=1)


def _check_count(num_chains: int, count: int) -> None:
    if count != num_chains:
        remedy = f"`num_chains={count}`, or " if count else ""
        raise ValueError(
            "Argument `start` must have one network for each chain. Pass "
            f"{remedy}a `start` of {num_chains} networks. "
            f"Received: {count} networks, num_chains={num_chains}"
        )


def _check_file(name: str, path: PathLike) -> None:
    if not os.fspath(path).endswith(_ENDINGS):
        raise ValueError(
            "Argument `start` must have paths that end in `.keras` or `.weights.h5`. "
            f"Save a trained model with `model.save('name.keras')`. Received: {name}"
        )
    if not Path(path).is_file():
        raise ValueError(
            "Argument `start` must have paths of files that exist. Save a trained "
            "model with `model.save('name.keras')`, and check the folder: Python runs "
            f"in {os.getcwd()!r}. Received: {name}"
        )


def _check_weights(name: str, values: Sequence[Array], model: keras.Model) -> None:
    """Refuse weights of another architecture, and weights that are not finite."""
    if len(values) != len(model.weights):
        raise ValueError(
            f"{_SAME} Received: {name}, which has {len(values)} weights instead of "
            f"{len(model.weights)}"
        )
    for variable, value in zip(model.weights, values, strict=True):
        if value.shape != tuple(variable.shape):
            raise ValueError(
                f"{_SAME} Received: {name}, whose weight {variable.path!r} has the "
                f"shape {value.shape} instead of {tuple(variable.shape)}"
            )
        if keras.backend.is_float_dtype(variable.dtype):
            bad = int(np.sum(~np.isfinite(value.astype("float64"))))
            if bad:
                raise ValueError(
                    "Argument `start` must have finite weights: train this network "
                    "again, with a smaller learning rate. "
                    f"Received: {name}, whose weight {variable.path!r} has {bad} "
                    "values that are NaN or infinite"
                )


_SAME = (
    "Argument `start` must have networks of the same architecture as `model`: as many "
    "weights, with the same shapes. Build each with the function that builds `model`."
)
