"""JAX: one chain that several devices move.

In one process, `keras.distribution` keeps one logical copy of everything.
"""

import contextlib

import jax

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


def refuse_replicas():
    """Raise a `ValueError` if there are several processes.

    No sampler is made for several processes of JAX yet.
    """
    count = jax.process_count()
    if count > 1:
        raise ValueError(
            "Samplers and `mh.ParallelChains` run in one process of JAX, on any "
            "number of devices, and not over several hosts. For independent chains "
            "start the processes without `keras.distribution.initialize`, each with a "
            "seed and a `directory` of its own for `mh.PosteriorSamples`. "
            f"Received: JAX with {count} processes."
        )


def refuse_strategy(variables):
    """Raise a `ValueError` if there are several processes."""
    refuse_replicas()


def independent_processes():
    """Do nothing: a sampler runs in one process of JAX."""
    return contextlib.nullcontext()


def shares_chains():
    """Return True: all devices move one chain."""
    return True


def count_processes():
    """Return 1: a sampler runs in one process of JAX."""
    return 1


def check_processes(gradients, variables, seeds):
    """Do nothing: one process moves the chain."""


def over_replicas(gradients, loss, changes):
    """Return both as they are: XLA has summed over the devices."""
    return gradients, loss


def on_each_replica(update, weights):
    """Return `update(gradient, loss, rate)` as it is."""
    return update
