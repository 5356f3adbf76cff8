"""PyTorch: a chain whose processes need not tell each other anything."""

from keras_mhmcmc._backend.one_process import from_first_process
from keras_mhmcmc._backend.one_process import host_value
from keras_mhmcmc._backend.one_process import is_first_process
from keras_mhmcmc._backend.one_process import is_spread
from keras_mhmcmc._backend.one_process import of_processes

__all__ = [
    "from_first_process",
    "host_value",
    "is_first_process",
    "is_spread",
    "of_processes",
]
