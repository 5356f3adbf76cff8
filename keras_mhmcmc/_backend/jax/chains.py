"""JAX: many chains of one model. Their leading axis is sharded over the devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from keras_mhmcmc._backend.jax.core import cond
from keras_mhmcmc._backend.jax.random import draw_from
from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.xla import counted

__all__ = [
    "LOOP_ABOVE",
    "ChainTrainer",
    "ChainsNoise",
    "chain_gradients",
    "chain_outputs",
    "over_chains",
    "place_chains",
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
    """Spread the leading axis of variables over the devices."""
    if _devices(num_chains) > 1:
        sharding = NamedSharding(_mesh(), PartitionSpec(_AXIS))
        for variable in variables:
            variable.assign(jax.device_put(variable.value, sharding))


def _mesh():
    return jax.sharding.Mesh(np.array(jax.devices()), (_AXIS,))


def over_chains(step, chains, shared, data, chunk):
    """Run `step` for `chunk` chains at a time, one or all, and return the new values.

    `step(chains, shared, data)` returns the new values of two lists of tensors. Those
    of `chains` have a leading chain axis. Those of `shared` belong to all chains.
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

    def train_step(self, state, data):
        """Train all chains by one step."""
        return self._step(state, data, True)

    def test_step(self, state, data):
        """Evaluate all chains on one batch."""
        return self._step(state, data, False)

    def _step(self, state, data, training):
        values, structure = jax.tree.flatten(state)
        logs, values = self._run_step(values, data, training)
        return logs, jax.tree.unflatten(structure, values)
