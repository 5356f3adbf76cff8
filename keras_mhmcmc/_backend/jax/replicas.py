"""JAX: one chain that several devices move, of one process or of several.

`keras.distribution` keeps one logical copy of everything on the devices, and every
process makes the same steps. A function that waits for the other processes says so: all
of them have to call it, in the same order.
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
    "refuse_replicas",
    "refuse_strategy",
]


def refuse_replicas(name):
    """Raise a `ValueError` if there are several processes."""
    count = jax.process_count()
    if count > 1:
        raise ValueError(
            f"`{name}` runs in one process of JAX, on any number of devices, "
            "and not over several processes. Start the processes without "
            "`keras.distribution.initialize`, each with a seed and a `directory` of "
            "its own for `mh.PosteriorSamples`, and load all directories together: "
            f"`mh.PosteriorSamples.load([...])`. Received: JAX with {count} processes."
        )


def refuse_strategy(variables):
    """Raise a `ValueError` if each of several processes would train by itself."""
    count = jax.process_count()
    if count > 1 and not any(is_spread(variable) for variable in variables):
        raise ValueError(
            "The model's variables must be spread over all processes of JAX: call "
            "`keras.distribution.set_distribution(keras.distribution.DataParallel())` "
            "before you make the model. For independent chains start the processes "
            "without `keras.distribution.initialize`, each with a seed and a "
            "`directory` of its own for `mh.PosteriorSamples`. "
            f"Received: JAX with {count} processes, and no distribution."
        )


def is_spread(variable):
    value = stored_value(variable)
    return isinstance(value, jax.Array) and not value.is_fully_addressable


def is_first_process():
    return jax.process_index() == 0


def host_value(value):
    """Return a numpy array. If other processes hold parts of it, wait for them."""
    array = ops.convert_to_tensor(value)
    if not array.is_fully_addressable and not array.is_fully_replicated:
        array = multihost_utils.process_allgather(array, tiled=True)
    return ops.convert_to_numpy(array)


def of_processes(number):
    if jax.process_count() == 1:
        return [number]
    gathered = multihost_utils.process_allgather(np.array([number], "uint32"))
    return [int(each) for each in np.ravel(gathered)]


def from_first_process(text):
    if jax.process_count() == 1:
        return text
    data = np.frombuffer(text.encode(), "uint8")
    # The processes agree on the length first: all arrays need the same shape.
    length = of_processes(len(data))[0]
    sent = np.zeros(length, "uint8")
    if is_first_process():
        sent[:] = data
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(sent))).decode()
