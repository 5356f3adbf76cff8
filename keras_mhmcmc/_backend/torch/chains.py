"""PyTorch: many chains of one model on one device."""

import contextlib

import torch
from keras import tree

from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.keras_internals import stored_value
from keras_mhmcmc._backend.torch.generator import rows_of
from keras_mhmcmc._backend.torch.generator import seed_of
from keras_mhmcmc._backend.torch.generator import shaped
from keras_mhmcmc._backend.torch.vmap import vectorized

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


class ChainsNoise:
    """The noise of several chains. `state` has a row (seed, step count) for each.

    As in `NoiseStream`, a copy of the state is kept on the host. A step sees either the
    whole state, or the row of one chain in the memory of the whole state.
    """

    def __init__(self, state):
        self._state = state
        self._host = None
        self._version = None

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (chains, uniforms)."""
        whole, rows = stored_value(self._state), self._state.value
        if self._host is None or self._version != (whole.data_ptr(), whole._version):
            self._host = whole.tolist()
        first = (rows.data_ptr() - whole.data_ptr()) // (2 * rows.element_size())
        states = self._host[first : first + len(rows)]
        seeds = [seed_of(*state) for state in states]
        for state in states:
            state[1] += 1
        with torch.no_grad():
            rows[:, 1].add_(1)
        self._version = (whole.data_ptr(), whole._version)
        size = sum(tensor[0].numel() for tensor in tensors)
        normals, uniform = rows_of(seeds, size, uniforms, tensors[0])
        return shaped(normals, tensors, has_chains=True), uniform


def loop_above():
    """Return the number of weights above which "auto" loops over chains on a CPU.

    This is a guess: one pass over all chains was still faster at 79,000 weights.
    """
    return 100_000


def devices_of_chains(num_chains):
    """Return the number of devices that the chains are spread over."""
    return 1


def place_chains(variables, num_chains):
    """Do nothing: all chains are on one device."""


def over_chains(step, chains, shared, data, chunk):
    """Run `step` for `chunk` chains at a time, one or all, and return the new values.

    `step(chains, shared, data)` returns the new values of two lists of tensors. Those
    of `chains` have a leading chain axis. Those of `shared` belong to all chains. The
    new values of `chains` are written in place, so that the weights of one chain stay
    in the processor's cache for the whole of its step.
    """
    count = len(chains[0])
    for first in range(0, count, chunk):
        part = [x.detach()[first : first + chunk] for x in chains]
        new_part, new_shared = step(part, [x.clone() for x in shared], data)
        with torch.no_grad():
            for old, new in zip(part, new_part, strict=True):
                if new.data_ptr() != old.data_ptr():
                    old.copy_(new)
    return chains, new_shared


def chain_gradients(function, trainable, rest):
    """Return the losses, gradients and auxiliary outputs of all chains.

    `function(trainable, rest)` returns the loss and the auxiliary outputs of one chain.
    """
    if len(trainable[0]) > 1:
        evaluate = torch.func.grad_and_value(function, has_aux=True)
        gradients, (losses, auxiliary) = _vectorized(evaluate, trainable, rest)
        return losses, gradients, auxiliary
    single = [x[0].detach().requires_grad_(True) for x in trainable]
    loss, auxiliary = function(single, tree.map_structure(lambda x: x[0], rest))
    gradient = torch.autograd.grad(loss, single, materialize_grads=True)
    outputs = (loss.detach(), list(gradient), auxiliary)
    return tree.map_structure(lambda x: x.detach()[None], outputs)


def chain_outputs(function, values):
    """Return `function(values)` of each chain."""
    if len(tree.flatten(values)[0]) > 1:
        return _vectorized(function, values)
    outputs = function(tree.map_structure(lambda x: x[0], values))
    return tree.map_structure(lambda x: x[None], outputs)


def _vectorized(function, *values):
    # It fails on Keras' dropout with a seed, which asks for Python numbers.
    return vectorized(function, randomness="different")(*values)


def writable_optimizer(optimizer):
    """Return a scope in which `optimizer` obeys `keras.StatelessScope`.

    On this backend an optimizer always obeys it.
    """
    return contextlib.nullcontext()


class ChainTrainer(TrainerHooks):
    """The step functions that Keras' trainer calls, around `_run_step`."""

    def train_step(self, data):
        """Train all chains by one step."""
        return self._step(data, True)

    def test_step(self, data):
        """Evaluate all chains on one batch."""
        return self._step(data, False)

    def _step(self, data, training):
        variables = self._step_variables(training)
        values = [variable.value.detach() for variable in variables]
        logs, new_values = self._run_step(values, data, training)
        with torch.no_grad():
            for value, new in zip(values, new_values, strict=True):
                if new.data_ptr() != value.data_ptr():
                    value.copy_(new)
        return logs
