"""The functions of `jax/processes.py`, for a backend where one process is a chain."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_mhmcmc._types import Array


def is_spread(variable: keras.Variable) -> bool:
    """Return False: this process has all of the variable."""
    return False


def is_first_process() -> bool:
    """Return True: this process writes files."""
    return True


def host_value(value: Any) -> Array:
    """Return a tensor or variable as a numpy array."""
    return ops.convert_to_numpy(value)


def of_processes(number: int) -> Sequence[int]:
    """Return the number of this process, the only one."""
    return [number]


def from_first_process(text: str) -> str:
    """Return the text of this process."""
    return text
