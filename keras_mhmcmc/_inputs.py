"""Inputs of a model: one array, or a dict or list of arrays."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

# Arrays have the shape (N, ...), all with the same N.
Inputs = Array | dict[str, Array] | tuple[Array, ...]


def are_several(name: str, x: Any) -> bool:
    """Return whether `x` holds several arrays, and not the examples of one."""
    if isinstance(x, Mapping):
        return True
    if isinstance(x, tuple) and x:
        return _validate.array(f"Argument `{name}`", x[0]).ndim > 1
    if isinstance(x, list):  # of examples, if their shapes are the same
        shapes = {tuple(each.shape) for each in x if _is_array(each)}
        return len(shapes) > 1 and min(map(len, shapes)) > 1
    return False


def as_inputs(name: str, x: Any) -> Array:
    """Return `x` as float32 inputs of shape (N, ...), N >= 1, or raise."""
    if are_several(name, x):
        raise ValueError(
            f"Argument `{name}` must be one array: a model with several inputs cannot "
            "be attacked or given corrupted inputs. Score it with `mh.evaluate`. "
            "Received: several arrays"
        )
    x = _validate.array(f"Argument `{name}`", x, "float32")
    if x.ndim == 0 or x.size == 0:
        raise ValueError(
            f"Argument `{name}` must have at least one example along its first axis. "
            f"Received: shape {x.shape}"
        )
    check_finite(name, x)
    return x


def as_model_inputs(name: str, x: Any, network: keras.Model) -> Inputs:
    """Return `x` as inputs that a network takes, or raise a `ValueError`.

    Integers stay integers, unless the network declares inputs of another kind. Other
    numbers become float32.
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
        takes_integers = declared is None or declares_integers(network)
        if integers.dtype.kind in "iu" and takes_integers:
            return integers
        return array
    _check_parts(name, x, declared)
    if isinstance(x, Mapping):
        inputs: Inputs = {key: _as_part(name, part) for key, part in x.items()}
    else:
        inputs = tuple(_as_part(name, part) for part in x)
    shapes = [array.shape for array in keras.tree.flatten(inputs)]
    lengths = {shape[0] if shape else 0 for shape in shapes}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            f"Argument `{name}` must have at least one example along the first axis, "
            "and the same number in each of its arrays. "
            f"Received: arrays of shapes {shapes}"
        )
    for array in keras.tree.flatten(inputs):
        check_finite(name, array)
    return inputs


def check_taken(x: Inputs, model: keras.Model) -> None:
    """Raise unless `model` takes the first example of `x`."""
    try:
        model(tensors(x, slice(0, 1)))
    except (KeyError, TypeError, ValueError) as error:
        shapes = keras.tree.map_structure(lambda a: a.shape, x)
        raise ValueError(
            "Argument `x` must be an array, or a dict, list or tuple of arrays, that "
            "the model takes as inputs. If their shapes are equal, pass several inputs "
            "as a tuple, and the examples of one input as a list. Received: arrays of "
            f"shapes {shapes}"
        ) from error


def tensors(x: Inputs, chosen: Any) -> Any:
    """Return the examples `chosen` as tensors, in the structure of `x`."""
    return keras.tree.map_structure(lambda a: ops.convert_to_tensor(a[chosen]), x)


def declares_integers(network: keras.Model) -> bool:
    declared = keras.tree.flatten(_declared(network) or [])
    return any("int" in keras.backend.standardize_dtype(x.dtype) for x in declared)


def example_shapes(inputs: Inputs) -> Any:
    """Return the shape of an example of each array, in the structure of the inputs."""
    if isinstance(inputs, dict):
        return {key: array.shape[1:] for key, array in inputs.items()}
    if isinstance(inputs, tuple):
        return [array.shape[1:] for array in inputs]
    return inputs.shape[1:]


def _declared(network: keras.Model) -> Mapping[str, Any] | Sequence[Any] | None:
    """Return the inputs that a network declares, or None for a subclass of `Model`."""
    if isinstance(network, keras.Sequential):
        return network.inputs
    if not isinstance(network, keras.Function):
        return None
    is_one = not isinstance(network.input, Mapping | list | tuple)
    return network.inputs if is_one else network.input


def _as_part(name: str, x: Any) -> Any:
    """Return one of several inputs as an array, or as a structure of arrays."""
    if isinstance(x, Mapping):
        return {key: _as_part(name, part) for key, part in x.items()}
    if isinstance(x, list | tuple) and any(map(_is_array, keras.tree.flatten(x))):
        return [_as_part(name, part) for part in x]
    array = _validate.array(f"Argument `{name}`", x, dtype=None)
    return array.astype("float32") if array.dtype.kind == "f" else array


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or ops.is_tensor(value)


def check_finite(name: str, array: Array) -> None:
    """Raise a `ValueError` if floats are NaN or infinite."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(
            f"Argument `{name}` must be finite. Remove or repair the other examples. "
            f"Received: {np.sum(~np.isfinite(array))} of {array.size} values that are "
            "NaN or infinite"
        )


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
