"""JAX: many chains of one model. Their leading axis is sharded over the devices."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from keras_mhmcmc._backend.jax.core import cond
from keras_mhmcmc._backend.jax.random import draw_from
from keras_mhmcmc._backend.keras_internals import TrainerHooks

__all__ = [
    "ChainTrainer",
    "ChainsNoise",
    "chain_gradients",
    "chain_outputs",
    "devices_of_chains",
    "loop_above",
    "over_chains",
    "place_chains",
    "writable_optimizer",
]

_AXIS = "chains"


class ChainsNoise:
    """The noise of several chains. `state` has a row (seed, step count) for each."""

    def __init__(self, state):
        self._state = state

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (chains, uniforms)."""
        state = self._state.value
        self._state.assign(state + jnp.array([0, 1], state.dtype))
        return _each(
            lambda row, single: draw_from(row, single, uniforms), state, tensors
        )


def loop_above():
    """Return the number of weights above which "auto" loops over chains on a CPU.

    Measured: the loop was slower at 42,000 weights and faster at 79,000.
    """
    return 40_000


def devices_of_chains(num_chains):
    """Return the number of devices that the chains are spread over."""
    count = jax.device_count()
    return count if num_chains % count == 0 else 1


def place_chains(variables, num_chains):
    """Spread the leading axis of variables over the devices."""
    if devices_of_chains(num_chains) > 1:
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
    count = chains[0].shape[0]
    if devices_of_chains(count) == 1:
        return _over_local_chains(step, chains, shared, data, chunk)

    def local(chains, shared, data):
        return _over_local_chains(step, chains, shared, data, chunk)

    split, whole = PartitionSpec(_AXIS), PartitionSpec()
    return jax.shard_map(
        local,
        mesh=_mesh(),
        in_specs=(split, whole, whole),
        out_specs=(split, whole),
        check_vma=False,
    )(chains, shared, data)


def _over_local_chains(step, chains, shared, data, chunk):
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

    def single(trainable, rest):
        evaluate = jax.value_and_grad(function, has_aux=True)
        (loss, auxiliary), gradient = evaluate(trainable, rest)
        return loss, gradient, auxiliary

    return _each(single, list(trainable), rest)


def chain_outputs(function, values):
    """Return `function(values)` of each chain."""
    return _each(function, values)


def _each(function, *values):
    """Return `function` of each chain, by vmap.

    A single chain is evaluated without vmap.
    """
    if jax.tree.leaves(values)[0].shape[0] > 1:
        return jax.vmap(function)(*values)
    outputs = function(*jax.tree.map(lambda x: x[0], values))
    return jax.tree.map(lambda x: jnp.expand_dims(x, 0), outputs)


def writable_optimizer(optimizer):
    """Return a scope in which `optimizer` obeys `keras.StatelessScope`.

    On this backend an optimizer always obeys it.
    """
    return contextlib.nullcontext()


class ChainTrainer(TrainerHooks):
    """The step functions that Keras' trainer calls, around `_run_step`."""

    def train_step(self, state, data):
        """Train all chains by one step."""
        logs, values = self._run_step([x for part in state for x in part], data, True)
        return logs, _like(values, state)

    def test_step(self, state, data):
        """Evaluate all chains on one batch."""
        logs, values = self._run_step([x for part in state for x in part], data, False)
        return logs, _like(values, state)


def _like(values, state):
    values = iter(values)
    return tuple([next(values) for _ in part] for part in state)
