"""First weights of chains: drawn by initializers, or taken from other networks."""

import io
import os
import random
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
from keras_mhmcmc._stored_model import rebuilt
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.fit.sampler import Sampler

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

    The states of random generators are drawn: equal ones would give equal masks.
    """
    generator, is_stacked = np.random.default_rng(seed), isinstance(start, StackedModel)
    if not is_stacked and not isinstance(start, list | tuple):
        raise ValueError(f"{_MUST_BE} Received: start={_validate.shown(start)}")
    count = start.num_chains if is_stacked else len(start)
    if count != num_chains:
        remedy = f"`num_chains={count}`, or " if count else ""
        raise ValueError(
            "Argument `start` must have one network for each chain. Pass "
            f"{remedy}a `start` of {num_chains} networks. "
            f"Received: {count} networks, num_chains={num_chains}"
        )
    names = [f"start[{place}]" for place in range(count)]
    if is_stacked:
        rows = start.member_weights(_current_weights(start))
        members = [[row[chain] for row in rows] for chain in range(count)]
    else:
        for place, entry in enumerate(start):
            if isinstance(entry, str | os.PathLike):
                names[place] += f"={os.fspath(entry)!r}"
        members = list(_weights_of_each(start, names, model, generator))
    for name, member in zip(names, members, strict=True):
        _check_weights(name, member, model)
    columns = (np.stack(values) for values in zip(*members, strict=True))
    stacked = dict(zip(map(id, model.weights), columns, strict=True))
    for variable in model.variables:
        if id(variable) not in stacked:  # the state of a `keras.random.SeedGenerator`
            seeds = generator.integers(2**31, size=num_chains)
            stacked[id(variable)] = np.stack([seeds, np.zeros_like(seeds)], axis=1)
    return [stacked[id(variable)] for variable in model.variables]


def _weights_of_each(
    start: Sequence[Any], names: Sequence[str], model: keras.Model, generator: Any
) -> Iterator[list[Array]]:
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
    names: list[str] = []
    with h5py.File(content, "r") as file:
        file.visit(names.append)
        arrays = [name for name in names if isinstance(file[name], h5py.Dataset)]
    return sum(not name.startswith("optimizer/") for name in arrays)


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


def initial_values(model: keras.Model, num_chains: int, seed: int) -> list[Array]:
    """Return one array (chains, ...) for each of `model.variables`.

    The first chain has the model's own values. Each other chain has the initial values
    of a new model, but for weights that are not trained.
    """
    generator = np.random.default_rng(seed)
    own = _values(model)
    weights = {id(variable) for variable in model.weights}  # no random generators
    is_kept = [id(v) in weights and not v.trainable for v in model.variables]
    members = [own]
    for _ in range(num_chains - 1):
        drawn = _values(drawn_again(model, generator))
        members.append(
            [x if kept else y for x, y, kept in zip(own, drawn, is_kept, strict=True)]
        )
    return [np.stack(values) for values in zip(*members, strict=True)]


def drawn_again(model: keras.Model, generator: np.random.Generator) -> keras.Model:
    state = random.getstate()
    # Layers without a seed in their configuration draw one from Python's generator.
    random.seed(int(generator.integers(2**31)))
    try:
        member = rebuilt(model, lambda config: _with_new_seeds(config, generator))
    except (NotImplementedError, TypeError, ValueError) as error:
        # Keras prints the whole configuration first, and the reason last.
        reason = str(error).strip().rsplit("\n", 1)[-1]
        raise ValueError(_REMEDY.format(reason)) from error
    finally:
        random.setstate(state)
    shapes = [[tuple(v.shape) for v in one.variables] for one in (member, model)]
    if shapes[0] != shapes[1]:
        difference = f"its weights have the shapes {shapes[0]} instead of {shapes[1]}"
        raise ValueError(_REMEDY.format(difference))
    return member


_REMEDY = (
    "Argument `model` must be a model that Keras can rebuild from its configuration. "
    "Let its constructor pass `**kwargs` to `super().__init__`, give its class "
    "`get_config` for other arguments, register it with "
    "`keras.saving.register_keras_serializable`, and build the model with an input "
    "shape. Received: a model that cannot be rebuilt: {}"
)


def _with_new_seeds(config: Any, generator: np.random.Generator) -> Any:
    """Return the configuration with another number for every seed in it."""
    if isinstance(config, dict):
        return {
            key: int(generator.integers(2**31))
            if key == "seed" and (value is None or isinstance(value, int))
            else _with_new_seeds(value, generator)
            for key, value in config.items()
        }
    if isinstance(config, list | tuple):
        return type(config)(_with_new_seeds(value, generator) for value in config)
    return config


def _values(model: keras.Model) -> list[Array]:
    return [np.array(ops.convert_to_numpy(variable)) for variable in model.variables]
