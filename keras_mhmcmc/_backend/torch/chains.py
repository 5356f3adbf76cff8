"""PyTorch: many chains of one model on one device."""

import functools

import torch
from keras import tree

from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.keras_internals import stored_value
from keras_mhmcmc._backend.torch.compiled import CompiledTraining
from keras_mhmcmc._backend.torch.core import read
from keras_mhmcmc._backend.torch.core import write
from keras_mhmcmc._backend.torch.generator import SeedsOnHost
from keras_mhmcmc._backend.torch.generator import rows_of
from keras_mhmcmc._backend.torch.generator import shaped
from keras_mhmcmc._backend.torch.loop import vectorized

__all__ = [
    "ChainTrainer",
    "ChainsNoise",
    "chain_gradients",
    "chain_outputs",
    "over_chains",
]


class ChainsNoise:
    """The noise of several chains. `state` has a row (seed, step count) for each."""

    def __init__(self, state):
        self._state, self._seeds = state, SeedsOnHost()

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (chains, uniforms)."""
        seeds = self._seeds.of_step(stored_value(self._state), self._state.value)
        size = sum(tensor[0].numel() for tensor in tensors)
        normals, uniform = rows_of(seeds, size, uniforms, tensors[0])
        return shaped(normals, tensors, has_chains=True), uniform


def over_chains(step, chains, shared, data, chunk):
    """Run `step` for `chunk` chains at a time, one or all, and return the new values.

    Those of `chains` are written in place, so that the weights of one chain stay in the
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
    """Return the losses, gradients and auxiliary outputs of all chains."""
    if len(trainable[0]) > 1:
        evaluate = torch.func.grad_and_value(function, has_aux=True)
        run = vectorized(evaluate, "different")
        gradients, (losses, auxiliary) = run(trainable, rest)
        return losses, gradients, auxiliary
    single = [x[0].detach().requires_grad_(True) for x in trainable]
    loss, auxiliary = function(single, tree.map_structure(lambda x: x[0], rest))
    gradient = torch.autograd.grad(loss, single, materialize_grads=True)
    outputs = (loss.detach(), list(gradient), auxiliary)
    return tree.map_structure(lambda x: x.detach()[None], outputs)


def chain_outputs(function, values):
    """Return `function(values)` of each chain."""
    if len(tree.flatten(values)[0]) > 1:
        return vectorized(function, "different")(values)
    outputs = function(tree.map_structure(lambda x: x[0], values))
    return tree.map_structure(lambda x: x[None], outputs)


class ChainTrainer(TrainerHooks):
    """The step functions that Keras' trainer calls, around `_run_step`."""

    _compiled_steps = None  # of the training, if asked for

    def compile_steps(self, is_wanted):
        """Trace and compile the training steps, in place of `torch.compile`."""
        self._compiled_steps = None
        if is_wanted:
            step = functools.partial(self._run_step, training=True)
            self.jit_compile, self._compiled_steps = False, CompiledTraining(step)

    def train_step(self, data):
        """Train all chains by one step."""
        return self._step(data, True)

    def test_step(self, data):
        """Evaluate all chains on one batch."""
        return self._step(data, False)

    def _step(self, data, training):
        variables = self._step_variables(training)
        if training and self._compiled_steps is not None:
            logs, values = self._compiled_steps(read(variables), data)
        else:
            logs, values = self._run_step(read(variables), data, training)
        write(variables, values)
        return logs
