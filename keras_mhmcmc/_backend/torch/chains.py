"""PyTorch: many chains of one model on one device."""

import contextlib

import torch
from keras import tree

from keras_mhmcmc._backend.errors import NotVectorizable
from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.keras_internals import stored_value
from keras_mhmcmc._backend.torch.generator import rows_of
from keras_mhmcmc._backend.torch.generator import seed_of
from keras_mhmcmc._backend.torch.generator import shaped

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
    """`NoiseStream` for chains: `state` has a row (seed, step count) for each.

    As there, a copy of the state is kept on the host. The tensor that a step sees is
    the whole state, or the row of one chain in the same memory.
    """

    def __init__(self, state):
        self._state = state
        self._host = None
        self._version = None

    def draw(self, tensors, uniforms):
        """Normals shaped like `tensors`, and `uniforms` numbers for each chain."""
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
    """Weights of a chain above which "auto" loops over chains, on a CPU.

    A guess: at 79,000 one pass over all chains was measured to be faster still.
    """
    return 100_000


def devices_of_chains(num_chains):
    """The number of devices that the chains are spread over."""
    return 1


def place_chains(variables, num_chains):
    """Nothing to place: all chains are on one device."""


def over_chains(step, chains, shared, data, chunk):
    """`step` for `chunk` chains at a time, 1 or all of them.

    `step(chains, shared, data)` gives the new values of both lists of tensors: those
    of `chains` have a leading chain axis, those of `shared` belong to all chains. The
    former are written in place, so that the weights of one chain stay in the
    processor's cache for the whole of its step.
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
    """Losses, gradients and auxiliary outputs of `function(trainable, rest)`."""
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
    """`function(values)` for each chain."""
    if len(tree.flatten(values)[0]) > 1:
        return _vectorized(function, values)
    outputs = function(tree.map_structure(lambda x: x[0], values))
    return tree.map_structure(lambda x: x[None], outputs)


def _vectorized(function, *values):
    try:
        return torch.func.vmap(function, randomness="different")(*values)
    except RuntimeError as error:
        # Keras' convolutions ask for memory formats, its dropout for Python numbers.
        if "vmap" in str(error) or "functorch" in str(error):
            raise NotVectorizable(str(error)) from error
        raise


def writable_optimizer(optimizer):
    """A scope in which `optimizer` obeys `keras.StatelessScope`: any, here."""
    return contextlib.nullcontext()


class ChainTrainer(TrainerHooks):
    """The step functions that Keras' trainer calls, around `_run_step`."""

    def train_step(self, data):
        """One step of all chains."""
        return self._step(data, True)

    def test_step(self, data):
        """The evaluation of one batch by all chains."""
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
