"""JAX: draws without variables, functions along a chain axis, and the compiled loop."""

import math

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["compile_chains", "gather", "map_chains", "when", "with_arrays"]

# Values that are drawn at once for several steps: small draws cost little more than
# one, and many chains fill a block by themselves.
_BLOCK_VALUES = 2**17
_BLOCK_STEPS = 256


def gather(arrays, index):
    """Rows of each array; the index is known to be inside."""
    return [array.at[index].get(mode="promise_in_bounds") for array in arrays]


def when(condition, function, values):
    """`function(values)` where the scalar `condition` holds, else `values`."""
    return jax.lax.cond(condition, function, lambda values: values, values)


def with_arrays(function):
    """A user's function of tensors, which may have numpy's arrays for constants."""
    return function


def map_chains(function, constants, differentiate, auxiliary=False):
    """`function(position, extra, constants)` for each chain, with its gradient.

    Returns a function of lists of tensors with a chain axis, which gives the values,
    shape (K,), and the gradients with respect to the position, or an empty list. With
    `auxiliary`, `function` gives a value and a list of other numbers, and a third
    result is the list of these, each of shape (K,).
    """

    def evaluate(position, extra):
        gradient = []
        if differentiate:
            call = jax.value_and_grad(function, has_aux=auxiliary)
            value, gradient = call(position, extra, constants)
        else:
            value = function(position, extra, constants)
        return (value[0], gradient, value[1]) if auxiliary else (value, gradient)

    return jax.vmap(evaluate)


def compile_chains(step, noise, records, capacity, fuse=True):
    """A loop of many steps, compiled once, that keeps what is due.

    Args:
        step: function of (state, constants, draws, number of the step), which gives
            the next state, a list of tensors to record and a list of counts.
        noise: function of (seed, number of the step), the step's draws.
        records: function of a state and constants, abstractly: the shapes of what
            `step` records and counts.
        capacity: how many records one call can keep.
        fuse: whether TensorFlow compiles with XLA; the others do not read it.

    Returns:
        A function of (state, constants, seed, start, steps, first, every), integers of
        which only the values change from call to call. It runs `steps` steps, the
        first of which has the number `start`; records the step that comes after
        `first` others, and then each `every`-th; and gives the state, the records with
        a first axis, and the sums of the counts over all steps.
    """

    def run(state, constants, seed, start, steps, first, every):
        like, counts_like = jax.eval_shape(records, state, constants)
        buffers = [jnp.zeros((capacity + 1, *x.shape), x.dtype) for x in like]
        counts = [jnp.zeros(x.shape, x.dtype) for x in counts_like]
        values = jax.eval_shape(noise, seed, start)
        size = sum(math.prod(x.shape) for x in jax.tree.leaves(values))
        block = int(np.clip(_BLOCK_VALUES // max(size, 1), 1, _BLOCK_STEPS))

        def one_step(number, draws, carry):
            state, buffers, counts = carry
            state, record, new_counts = step(state, constants, draws, start + number)
            since = number - first
            # Not `%` and `//`, whose care for signs XLA computes by themselves.
            due = (since >= 0) & (jax.lax.rem(since, every) == 0)
            # What is not due is written to a slot that nobody reads.
            slot = jnp.where(due, jax.lax.div(since, every), capacity)
            buffers = [
                jax.lax.dynamic_update_index_in_dim(buffer, x, slot, 0)
                for buffer, x in zip(buffers, record, strict=True)
            ]
            counts = [total + x for total, x in zip(counts, new_counts, strict=True)]
            return state, buffers, counts

        def one_block(index, carry):
            begin = index * block
            numbers = start + begin + jnp.arange(block)
            draws = jax.vmap(noise, (None, 0))(seed, numbers)

            def body(i, carry):
                return one_step(begin + i, jax.tree.map(lambda x: x[i], draws), carry)

            return jax.lax.fori_loop(0, jnp.minimum(block, steps - begin), body, carry)

        blocks = (steps + block - 1) // block
        carry = jax.lax.fori_loop(0, blocks, one_block, (state, buffers, counts))
        return carry

    return jax.jit(run)
