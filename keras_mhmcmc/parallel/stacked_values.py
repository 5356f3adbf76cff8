"""Variables with a chain axis, and values that belong to some of the chains."""

import contextlib
from collections.abc import Sequence
from typing import TypeVar

import keras
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor

Value = TypeVar("Value")


def stacked_variable(
    variable: keras.Variable, value: Array, trainable: bool
) -> keras.Variable:
    """Return a variable with a leading chain axis and the path of `variable`.

    A sampler finds the regularizer there and warns of it. Only the network applies it.
    """
    *scopes, name = variable.path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        stacked = keras.Variable(
            value, dtype=variable.dtype, trainable=trainable, autocast=False, name=name
        )
    stacked.regularizer = variable.regularizer
    return stacked


def split(values: Sequence[Value], counts: Sequence[int]) -> list[list[Value]]:
    """Split `values` into lists of `counts` values, and a last list of the rest."""
    parts = []
    for count in counts:
        parts.append(list(values[:count]))
        values = values[count:]
    return [*parts, list(values)]


def where_accepted(
    accepted: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]
) -> list[Tensor]:
    """Return `new`, with `old` floating-point values in chains that did not accept.

    Args:
        accepted: boolean tensor, shape (chains,).
        new: tensors of shape (chains, ...).
        old: tensors of the same shapes.
    """
    return [
        ops.where(ops.reshape(accepted, (-1, *[1] * (len(x.shape) - 1))), x, y)
        if keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
        else x
        for x, y in zip(new, old, strict=True)
    ]
