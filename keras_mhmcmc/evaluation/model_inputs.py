"""Inputs of a model: one array, or a dict or list of arrays."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.ensemble import recalibration
from keras_mhmcmc.evaluation.checks import are_several
from keras_mhmcmc.evaluation.checks import as_inputs

# Arrays have the shape (N, ...), all with the same N.
Inputs = Array | dict[str, Array] | list[Array]


def as_model_inputs(name: str, x: Any, network: keras.Model) -> Inputs:
    """Return `x` as inputs that a network takes, or raise a `ValueError`.

    Integers stay integers, unless the network declares inputs of another kind. Other
    numbers become float32.

    Args:
        name: name of the argument.
        x: inputs, shape (N, ...); or a dict, list or tuple of arrays with equal N.
        network: the model that takes them. A subclass of `keras.Model` does not
            declare what it takes.
    """
    declared = _declared(network)
    if isinstance(declared, Mapping):
        takes_one = len(declared) == 1 and not isinstance(x, Mapping)
    elif declared is not None:
        takes_one = len(declared) == 1
    else:
        takes_one = not are_several(name, x)
    if takes_one:
        array = as_inputs(name, x)
        _validate.examples(name, array.shape, network)
        integers = _validate.array(f"Argument `{name}`", x, dtype=None)
        if integers.dtype.kind in "iu" and _takes_integers(declared):
            return integers
        return array
    _check_parts(name, x, declared)
    parts = dict(x) if isinstance(x, Mapping) else list(x)
    inputs: Inputs = keras.tree.map_structure(
        lambda array: array.astype("float32") if array.dtype.kind == "f" else array,
        recalibration.checked_inputs(parts, name),
    )
    return inputs


def declares_integers(network: keras.Model) -> bool:
    """Return whether a network declares that one of its inputs has integers."""
    declared = keras.tree.flatten(_declared(network) or [])
    return any("int" in keras.backend.standardize_dtype(x.dtype) for x in declared)


def example_shapes(inputs: Inputs) -> Any:
    """Return the shape of an example of each array, in the structure of the inputs."""
    if isinstance(inputs, dict):
        return {key: array.shape[1:] for key, array in inputs.items()}
    if isinstance(inputs, list):
        return [array.shape[1:] for array in inputs]
    return inputs.shape[1:]


def _declared(network: keras.Model) -> Mapping[str, Any] | Sequence[Any] | None:
    """Return the inputs that a network declares, or None for a subclass of `Model`."""
    if isinstance(network, keras.Sequential):
        return network.inputs
    if not isinstance(network, keras.Function):
        return None
    return network.input if isinstance(network.input, Mapping) else network.inputs


def _takes_integers(declared: Mapping[str, Any] | Sequence[Any] | None) -> bool:
    """Return whether a network of one input takes integers as they are."""
    if declared is None:
        return True
    (tensor,) = keras.tree.flatten(declared)
    return "int" in keras.backend.standardize_dtype(tensor.dtype)


def _check_parts(
    name: str, x: Any, declared: Mapping[str, Any] | Sequence[Any] | None
) -> None:
    """Raise unless `x` has the parts that a network declares, if it does."""
    if declared is None:
        return
    if isinstance(declared, Mapping):
        fits = isinstance(x, Mapping) and set(declared) <= set(x)
        expected = f"dict with the keys {list(declared)}"
    else:
        fits = isinstance(x, Mapping | list | tuple) and len(x) == len(declared)
        expected = f"list of {len(declared)} arrays"
    if not fits:
        received = list(x) if isinstance(x, Mapping) else _validate.shown(x)
        raise ValueError(
            f"Argument `{name}` must be a {expected}, the inputs of the model. "
            f"Received: {name}={received}"
        )
