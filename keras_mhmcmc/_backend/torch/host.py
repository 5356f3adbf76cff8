"""PyTorch: what a step saves on the host: memory, Keras' wrappers."""

from keras.src.backend.common.stateless_scope import in_stateless_scope


def is_known(condition):
    """Whether a scalar is on the host, where reading it stops no queue."""
    return condition.device.type == "cpu"


class Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""


def values_of(variables):
    """The tensors of Keras variables, without the layers of `Variable.value`."""
    if in_stateless_scope():
        return [variable.value for variable in variables]
    return [variable._value for variable in variables]
