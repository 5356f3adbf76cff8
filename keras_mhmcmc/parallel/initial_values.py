"""Where chains begin: weights that the layers' own initializers draw anew."""

import random

import keras
import numpy as np
from keras import ops

from keras_mhmcmc._serialize import architecture


def initial_values(model, num_chains, seed):
    """Stacked values for each of `model.variables`, the first of them the model's own.

    The other chains get what a model of the same architecture begins with, every seed
    in its configuration drawn from one generator.
    """
    generator = np.random.default_rng(seed)
    members = [_values(model)]
    for _ in range(num_chains - 1):
        members.append(_values(_drawn_again(model, generator)))
    return [np.stack(values) for values in zip(*members, strict=True)]


def _drawn_again(model, generator):
    state = random.getstate()
    # Layers without a seed in their configuration take one from Python's generator.
    random.seed(int(generator.integers(2**31)))
    try:
        config = _with_new_seeds(architecture(model), generator)
        custom = {type(model).__name__: type(model)}
        member = keras.saving.deserialize_keras_object(config, custom_objects=custom)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(_REMEDY.format(error)) from error
    finally:
        random.setstate(state)
    shapes = [[tuple(v.shape) for v in one.variables] for one in (member, model)]
    if shapes[0] != shapes[1]:
        difference = f"its weights have the shapes {shapes[0]} instead of {shapes[1]}"
        raise ValueError(_REMEDY.format(difference))
    return member


_REMEDY = (
    "Argument `model` must be a model that Keras can make again from its "
    "configuration, since each chain draws its own first weights. Give the class "
    "`get_config` and `from_config`, register it with "
    "`keras.saving.register_keras_serializable`, and build it with an input shape. "
    "Making it again failed: {}"
)


def _with_new_seeds(config, generator):
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


def _values(model):
    return [np.array(ops.convert_to_numpy(variable)) for variable in model.variables]
