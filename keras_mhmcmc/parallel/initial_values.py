"""Initial weights of chains, drawn by the initializers of the model's layers."""

import random
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc._serialize import architecture
from keras_mhmcmc._types import Array


def initial_values(model: keras.Model, num_chains: int, seed: int) -> list[Array]:
    """Return one array (chains, ...) for each of `model.variables`.

    The first chain has the model's own values. Each other chain has the initial values
    of a new model of the same architecture. One generator draws all seeds in its
    configuration. Weights that are not trained are the model's own in all chains: a
    frozen network, moving statistics, what `adapt` has found.
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
    """Return a new model of the same architecture, with other initial weights."""
    state = random.getstate()
    # Layers without a seed in their configuration draw one from Python's generator.
    random.seed(int(generator.integers(2**31)))
    try:
        config = _with_new_seeds(architecture(model), generator)
        custom = {type(model).__name__: type(model)}
        member = keras.saving.deserialize_keras_object(config, custom_objects=custom)
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
    "Argument `model` must be a model that Keras can rebuild from its configuration, "
    "since each chain draws its own initial weights. Let the constructor of its class "
    "take `**kwargs` and pass them to `super().__init__`. Give the class `get_config` "
    "if the constructor has arguments of its own, register it with "
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
