"""JAX: one chain that several processes run, and what they tell each other.

`keras.distribution` spreads the variables over the devices of all processes. Every
process makes the same steps. A function of this module that waits for the other
processes says so: all of them have to call it, in the same order.
"""

import jax
import numpy as np
from jax.experimental import multihost_utils
from keras import ops

from keras_mhmcmc._backend.keras_internals import stored_value

__all__ = [
    "from_first_process",
    "host_value",
    "is_first_process",
    "is_spread",
    "of_processes",
]


def is_spread(variable):
    """Return whether a variable lies on devices of several processes."""
    value = stored_value(variable)
    return isinstance(value, jax.Array) and not value.is_fully_addressable


def is_first_process():
    """Return whether this is the process that writes files."""
    return jax.process_index() == 0


def host_value(value):
    """Return a tensor or variable as a numpy array.

    If other processes hold parts of it, wait for them, and gather the parts.
    """
    array = ops.convert_to_tensor(value)
    if not array.is_fully_addressable and not array.is_fully_replicated:
        array = multihost_utils.process_allgather(array, tiled=True)
    return ops.convert_to_numpy(array)


def of_processes(number):
    """Return an integer from 0 to 2**32 - 1 of each process. Wait for all of them."""
    if jax.process_count() == 1:
        return [number]
    gathered = multihost_utils.process_allgather(np.array([number], "uint32"))
    return [int(each) for each in np.ravel(gathered)]


def from_first_process(text):
    """Return the text of the first process. Wait for all processes."""
    if jax.process_count() == 1:
        return text
    data = np.frombuffer(text.encode(), "uint8")
    # The processes agree on the length first: all arrays need the same shape.
    length = of_processes(len(data))[0]
    sent = np.zeros(length, "uint8")
    if is_first_process():
        sent[:] = data
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(sent))).decode()
