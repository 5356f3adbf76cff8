"""`torch.func.vmap` of networks of Keras."""

import torch

from keras_mhmcmc._backend.keras_internals import any_memory_format


def vectorized(function, randomness="error"):
    """Return `torch.func.vmap(function)`, in which Keras' convolutions work."""
    mapped = torch.func.vmap(function, randomness=randomness)

    def run(*values):
        with any_memory_format():
            return mapped(*values)

    return run
