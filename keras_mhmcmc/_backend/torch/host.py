"""PyTorch: what a step saves on the host: single numbers, memory, Keras' wrappers."""

import numpy as np
import torch
from keras.src.backend.common.stateless_scope import in_stateless_scope

ON_HOST = {
    torch.bool: np.bool_,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float32: np.float32,
    torch.float64: np.float64,
}
OF_PYTHON = {bool: np.bool_, int: np.int32, float: np.float32}
ON_DEVICE = {kind: dtype for dtype, kind in ON_HOST.items()}


def is_number(x):
    """Whether `x` is a single number on the host."""
    return isinstance(x, np.generic)


def number(x):
    """A tensor of rank 0 that is on the host as a numpy scalar; else `x` itself."""
    if torch.is_tensor(x) and x.ndim == 0 and is_known(x) and not x.requires_grad:
        kind = ON_HOST.get(x.dtype)
        return x if kind is None else kind(x.item())
    return x


def is_known(condition):
    """Whether a scalar is on the host, where reading it stops no queue."""
    return is_number(condition) or condition.device.type == "cpu"


class Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""


def values_of(variables):
    """The tensors of Keras variables, without the layers of `Variable.value`."""
    if in_stateless_scope():
        return [variable.value for variable in variables]
    return [variable._value for variable in variables]
