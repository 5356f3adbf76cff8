"""Functions that turn a model's outputs into the quantities that are averaged.

A model with several outputs may have one function for all, or one for each.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor

Activation = Callable[[Tensor], Tensor]
# A tuple has one function for each output, in the order of `keras.tree.flatten`.
Activations = Activation | tuple[Activation, ...]
# What `keras.activations.get` takes, or a list with one of them for each output.
_Name = str | Activation | None
ActivationLike = _Name | Sequence[_Name]


def checked(value: ActivationLike) -> Activations:
    """Return the function of all outputs, or a tuple with one for each output."""
    if isinstance(value, list | tuple) and value:
        return tuple(_validate.activation(each) for each in value)
    return _validate.activation(value)


def applied(activation: Activations, outputs: Tensor) -> Tensor:
    """Return the outputs, a structure of tensors, after their activations.

    Half precision becomes float32: a mean of probabilities in bfloat16 is wrong in the
    third digit.
    """
    outputs = keras.tree.map_structure(at_least_float32, outputs)
    if not isinstance(activation, tuple):
        return keras.tree.map_structure(activation, outputs)
    flat = keras.tree.flatten(outputs)
    functions = of_each(activation, len(flat))
    flat = [function(y) for function, y in zip(functions, flat, strict=True)]
    return keras.tree.pack_sequence_as(outputs, flat)


def at_least_float32(outputs: Tensor) -> Tensor:
    """Return outputs in float32 if they have half precision."""
    dtype = keras.backend.standardize_dtype(outputs.dtype)
    return ops.cast(outputs, "float32") if dtype in ("bfloat16", "float16") else outputs


def of_each(activation: Activations, num_outputs: int) -> tuple[Activation, ...]:
    """Return one function for each output, or raise a `ValueError`."""
    if not isinstance(activation, tuple):
        return (activation,) * num_outputs
    if len(activation) != num_outputs:
        raise ValueError(
            "Argument `activation` must have one entry for each of the "
            f"{num_outputs} outputs. Received: activation={serialized(activation)}"
        )
    return activation


def serialized(activation: Activations) -> Any:
    """Return what `checked` takes: a name or a configuration, or a list of them."""
    if isinstance(activation, tuple):
        return [keras.activations.serialize(function) for function in activation]
    return keras.activations.serialize(activation)
