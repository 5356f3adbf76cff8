"""`torch.func.vmap` of networks of Keras."""

import contextlib

import torch
from keras.src.backend.torch import nn

# Keras' convolutions ask whether their operands lie in memory with the channels last,
# for speed. A tensor of many chains has no answer.
_ASKS = "_maybe_convert_to_channels_last"


def vectorized(function, randomness="error"):
    """Return `torch.func.vmap(function)`, in which convolutions work."""
    mapped = torch.func.vmap(function, randomness=randomness)

    def run(*values):
        with _any_memory_format():
            return mapped(*values)

    return run


@contextlib.contextmanager
def _any_memory_format():
    asks = getattr(nn, _ASKS, None)  # Keras has it from 3.13 on
    if asks is None:
        yield
        return
    setattr(nn, _ASKS, lambda tensor: tensor)
    try:
        yield
    finally:
        setattr(nn, _ASKS, asks)
