"""JAX: functions along a chain axis, and the compiled loop of many steps."""

import math

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "compile_chains",
    "compiles",
    "gather",
    "loop_while",
    "map_chains",
    "when",
]

# Noise is drawn at once for a block of steps: about `_BLOCK_VALUES` numbers, and at
# most `_BLOCK_STEPS` steps. Small draws for many steps together cost little more than
# one of them. With many chains, the noise of one step fills the block.
_BLOCK_VALUES = 2**17
_BLOCK_STEPS = 256


def gather(arrays, index):
    """Return rows of each array.

    Nothing checks the bounds: every index is known to be inside.
    """
    return [array.at[index].get(mode="promise_in_bounds") for array in arrays]


def when(condition, function, values, at_first=False):
    """Return `function(values)` if the scalar `condition` holds, else `values`.

    Args:
        condition: boolean scalar.
        function: of `values`.
        values: what it may change.
        at_first: whether the condition can hold at the first step of chains alone.
            PyTorch traces a later step, and leaves the function out.
    """
    return jax.lax.cond(condition, function, lambda values: values, values)


def loop_while(condition, body, values, at_most=None):
    """Return `values` after `values = body(*values)`, as long as `condition(*values)`.

    Args:
        condition: function that returns a boolean scalar.
        body: function that returns a tuple like `values`.
        values: a tuple of integers, tensors, and structures of them. On PyTorch the
            integers stay integers.
        at_most: after this many repeats the condition holds no more. Then `body` must
            return its values as they are: a compiled step on PyTorch repeats it
            `at_most` times. None: not known.
    """
    return jax.lax.while_loop(
        lambda values: condition(*values), lambda values: tuple(body(*values)), values
    )


def map_chains(function, constants, differentiate, auxiliary=False):
    """Return a function that evaluates all chains, with gradients.

    `function(position, extra, constants)` evaluates one chain. The new function takes
    `position` and `extra`, lists of tensors with a chain axis. It returns the values,
    shape (K,), and the gradients with respect to the position. The list of gradients is
    empty unless `differentiate` is set. With `auxiliary`, `function` returns a value
    and a list of other numbers. The new function then also returns the list of these
    numbers, each of shape (K,).
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


def compiles(jit_compile, is_faster):
    """Return whether to compile the loop with more than the backend always does.

    Args:
        jit_compile: of the user, "auto", True or False.
        is_faster: whether XLA makes the loop faster on TensorFlow.
    """
    if jit_compile is False:
        raise ValueError(
            'Argument `jit_compile` must be "auto" or True on JAX, which always '
            "compiles. Received: jit_compile=False"
        )
    return True


def compile_chains(step, noise, records, capacity, fuse=True):
    """Return a loop of many steps, compiled once, which keeps the records that are due.

    Args:
        step: function of (state, constants, noise, number of the step). It returns the
            next state, a list of tensors to record, and a list of counts.
        noise: function of (seed, number of the step). It returns the noise of the step.
        records: function of a state and constants. It returns what `step` records and
            counts. It is only traced, for the shapes of the results.
        capacity: how many records one call can keep.
        fuse: whether TensorFlow compiles with XLA, and PyTorch compiles at all: the
            result of `compiles`. JAX ignores it.

    Returns:
        A function of (state, constants, seed, start, steps, first, every). The last
        five are integers, and may have other values in each call. The function runs
        `steps` steps, from the step number `start` on. It records the step that comes
        after `first` others, and then each `every`-th step. It returns the state, the
        records with a new first axis, and the sums of the counts over all steps.
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
            # Not `%` and `//`: they handle signs, which XLA would compute separately.
            due = (since >= 0) & (jax.lax.rem(since, every) == 0)
            # A record that is not due goes to a slot that nobody reads.
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
