"""JAX: one chain that several devices move.

`keras.distribution` keeps one logical copy of everything, in one process or in several.
"""

import contextlib

import jax

from keras_mhmcmc._backend.jax.processes import is_spread

__all__ = [
    "check_processes",
    "count_processes",
    "independent_processes",
    "on_each_replica",
    "over_replicas",
    "refuse_replicas",
    "refuse_strategy",
    "shares_chains",
]


def refuse_replicas(name):
    """Raise a `ValueError` if there are several processes.

    `mh.ParallelChains` divides its chains among the devices of one process.
    """
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
    """Raise a `ValueError` if each of several processes would train by itself.

    `keras.distribution` keeps one logical copy of everything, on the devices of one
    process or of several. Without a distribution the processes would make the same
    chain, or chains that nobody told apart.
    """
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


def independent_processes():
    """Do nothing: processes that were started alone share nothing."""
    return contextlib.nullcontext()


def shares_chains():
    """Return True: all devices move one chain."""
    return True


def count_processes():
    """Return 1: all processes have the whole batch."""
    return 1


def check_processes(gradients, variables, seeds):
    """Do nothing: all processes run the same program on the same arrays."""


def over_replicas(gradients, loss, changes):
    """Return both as they are: XLA has summed over the devices."""
    return gradients, loss


def on_each_replica(update, weights):
    """Return `update(gradient, loss, rate)` as it is."""
    return update
