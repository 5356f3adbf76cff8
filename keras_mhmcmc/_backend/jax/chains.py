"""JAX: many chains of one model, functions along a chain axis, and the compiled loop.

The leading axis of the chains of a model is sharded over the devices.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from keras_mhmcmc._backend.jax.core import accelerated
from keras_mhmcmc._backend.jax.core import cond
from keras_mhmcmc._backend.jax.random import draw_from
from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.xla import count_cores
from keras_mhmcmc._backend.xla import counted

__all__ = [
    "ChainTrainer",
    "ChainsNoise",
    "LOOP_ABOVE",
    "chain_gradients",
    "chain_outputs",
    "compile_chains",
    "compiles",
    "count_loop_cores",
    "gather",
    "loop_while",
    "map_chains",
    "over_chains",
    "place_chains",
    "when",
]


# The number of weights above which "auto" loops over chains on a CPU: the loop was
# slower at 42,000 weights and faster at 79,000.
LOOP_ABOVE = 40_000
_AXIS = "chains"


class ChainsNoise:
    """The noise of several chains. `state` has a row (seed, step count) for each."""

    def __init__(self, state):
        self._state = state

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (chains, uniforms)."""
        rows = counted(self._state), tensors
        return chain_outputs(lambda row: draw_from(*row, uniforms), rows)


def _devices(num_chains):
    """Return the number of devices that the chains are spread over."""
    count = jax.device_count()
    return count if num_chains % count == 0 else 1


def place_chains(variables, num_chains):
    if _devices(num_chains) > 1:
        sharding = NamedSharding(_mesh(), PartitionSpec(_AXIS))
        for variable in variables:
            variable.assign(jax.device_put(variable.value, sharding))


def _mesh():
    return jax.sharding.Mesh(np.array(jax.devices()), (_AXIS,))


def over_chains(step, chains, shared, data, chunk):
    """Return `step(chains, shared, data)`, new values, of `chunk` chains at a time.

    Tensors of `chains` have a leading chain axis. Those of `shared` belong to all.
    """
    run = functools.partial(_over_local_chains, step, chunk)
    if _devices(chains[0].shape[0]) == 1:
        return run(chains, shared, data)
    split, whole = PartitionSpec(_AXIS), PartitionSpec()
    return jax.shard_map(
        run,
        mesh=_mesh(),
        in_specs=(split, whole, whole),
        out_specs=(split, whole),
        check_vma=False,
    )(chains, shared, data)


def _over_local_chains(step, chunk, chains, shared, data):
    count = chains[0].shape[0]
    if chunk > 1 or count == 1:
        return step(chains, shared, data)

    def body(carry, index):
        chains, _ = carry
        single = [jax.lax.dynamic_slice_in_dim(x, index, 1) for x in chains]

        def run():
            new, new_shared = step(single, shared, data)
            return _typed_as(new, single), _typed_as(new_shared, shared)

        # Write in place, so that the weights of one chain stay in the processor's cache
        # for the whole of its step. The condition always holds. It keeps XLA from
        # merging reads of the stacked arrays with their writes, for which XLA would
        # have to copy all arrays in each round.
        always = index < count
        new, new_shared = cond(always, run, lambda: (single, list(shared)))
        chains = [
            jax.lax.dynamic_update_slice_in_dim(x, y, index, 0)
            for x, y in zip(chains, new, strict=True)
        ]
        return (chains, new_shared), None

    carry, indices = (list(chains), list(shared)), jnp.arange(count)
    if isinstance(chains[0], jax.core.Tracer):
        return jax.lax.scan(body, carry, indices)[0]
    # Outside a trace `lax.scan` would compile at each call.
    for index in indices:
        carry, _ = body(carry, index)
    return carry


def _typed_as(values, others):
    return [x.astype(y.dtype) for x, y in zip(values, others, strict=True)]


def chain_gradients(function, trainable, rest):
    """Return the losses, gradients and auxiliary outputs of all chains.

    `function(trainable, rest)` returns the loss and the auxiliary outputs of one chain.
    """

    def single(values):
        evaluate = jax.value_and_grad(function, has_aux=True)
        (loss, auxiliary), gradient = evaluate(*values)
        return loss, gradient, auxiliary

    return chain_outputs(single, (list(trainable), rest))


def chain_outputs(function, values):
    """Return `function(values)` of each chain, by vmap if there are several."""
    if jax.tree.leaves(values)[0].shape[0] > 1:
        return jax.vmap(function)(values)
    outputs = function(jax.tree.map(lambda x: x[0], values))
    return jax.tree.map(lambda x: jnp.expand_dims(x, 0), outputs)


class ChainTrainer(TrainerHooks):
    """The step functions that Keras' trainer calls, around `_run_step`."""

    def _step(self, state, data, training):
        values, structure = jax.tree.flatten(state)
        logs, values = self._run_step(values, data, training)
        return logs, jax.tree.unflatten(structure, values)


# Noise is drawn at once for a block of steps: about `_BLOCK_VALUES` numbers, and at
# most `_BLOCK_STEPS` steps. Small draws for many steps together cost little more than
# one of them. With many chains, the noise of one step fills the block.
_BLOCK_VALUES = 2**17
_BLOCK_STEPS = 256


def gather(arrays, index):
    """Return rows of each array. Every index is known to be inside."""
    return [array.at[index].get(mode="promise_in_bounds") for array in arrays]


def when(condition, function, values, at_first=False):
    """Return `function(values)` if the scalar `condition` holds, else `values`.

    `at_first`: the condition can hold at the first step of chains alone. PyTorch traces
    a later step, and leaves the function out.
    """
    return jax.lax.cond(condition, function, lambda values: values, values)


def loop_while(condition, body, values, at_most=None):
    """Return `values` after `values = body(*values)`, as long as `condition(*values)`.

    After `at_most` repeats the condition holds no more, and `body` must return its
    values as they are: a compiled step on PyTorch repeats it so many times. On PyTorch
    integers stay integers.
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

    `is_faster` tells whether XLA makes the loop faster on TensorFlow.
    """
    if jit_compile is False:
        raise ValueError(
            'Argument `jit_compile` must be "auto" or True on JAX, which always '
            "compiles. Received: jit_compile=False"
        )
    return True


def count_loop_cores(fuse):
    return 1 if accelerated() else count_cores()


def compile_chains(step, noise, records, capacity, fuse=True):
    """Return a loop of many steps, compiled once, which keeps the records that are due.

    `step(state, constants, noise, number)` returns the next state, a list of tensors to
    record, and a list of counts. `noise(seed, number)` makes the noise of a step.
    `records(state, constants)` has the shapes of what a step records and counts. One
    call can keep `capacity` records. `fuse` is the result of `compiles`.

    The loop is a function of (state, constants, seed, start, steps, first, every). It
    runs `steps` steps, from the step number `start` on. It records the step that comes
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
