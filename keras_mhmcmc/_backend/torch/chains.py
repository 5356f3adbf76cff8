"""PyTorch: many chains of one model, functions of chains, and the loop of steps."""

import functools

import torch
from keras import tree

from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.keras_internals import any_memory_format
from keras_mhmcmc._backend.keras_internals import stored_value
from keras_mhmcmc._backend.torch.compiled import CompiledStep
from keras_mhmcmc._backend.torch.compiled import CompiledTraining
from keras_mhmcmc._backend.torch.compiled import can_compile
from keras_mhmcmc._backend.torch.core import is_tracing
from keras_mhmcmc._backend.torch.core import read
from keras_mhmcmc._backend.torch.core import write
from keras_mhmcmc._backend.torch.operands import WithArrays as with_arrays
from keras_mhmcmc._backend.torch.random import SeedsOnHost
from keras_mhmcmc._backend.torch.random import rows_of
from keras_mhmcmc._backend.torch.random import shaped

__all__ = [
    "ChainTrainer",
    "ChainsNoise",
    "can_compile",
    "chain_gradients",
    "chain_outputs",
    "compile_chains",
    "compiles",
    "gather",
    "loop_while",
    "map_chains",
    "over_chains",
    "when",
    "with_arrays",
]


class ChainsNoise:
    def __init__(self, state):
        self._state, self._seeds = state, SeedsOnHost()

    def draw(self, tensors, uniforms):
        seeds = self._seeds.of_step(stored_value(self._state), self._state.value)
        size = sum(tensor[0].numel() for tensor in tensors)
        normals, uniform = rows_of(seeds, size, uniforms, tensors[0])
        return shaped(normals, tensors, has_chains=True), uniform


def over_chains(step, chains, shared, data, chunk):
    """Run `step` for `chunk` chains at a time, and return the new values.

    Those of `chains` are written in place, and stay in the processor's cache.
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
    if len(tree.flatten(values)[0]) > 1:
        return vectorized(function, "different")(values)
    outputs = function(tree.map_structure(lambda x: x[0], values))
    return tree.map_structure(lambda x: x[None], outputs)


class ChainTrainer(TrainerHooks):
    _compiled_steps = None  # of the training, if asked for

    def compile_steps(self, is_wanted):
        """Trace and compile the training steps, in place of `torch.compile`."""
        self._compiled_steps = None
        if is_wanted:
            step = functools.partial(self._run_step, training=True)
            self.jit_compile, self._compiled_steps = False, CompiledTraining(step)

    def _step(self, data, training):
        variables = self._step_variables(training)
        if training and self._compiled_steps is not None:
            logs, values = self._compiled_steps(read(variables), data)
        else:
            logs, values = self._run_step(read(variables), data, training)
        write(variables, values)
        return logs


def vectorized(function, randomness="error"):
    """Return `torch.func.vmap(function)`, in which Keras' convolutions work."""
    mapped = torch.func.vmap(function, randomness=randomness)

    def run(*values):
        with any_memory_format():
            return mapped(*values)

    return run


def gather(arrays, index):
    return [array[index] for array in arrays]


def when(condition, function, values, at_first=False):
    if is_tracing() and torch.is_tensor(condition):
        if at_first:
            return values
        return tree.map_structure(
            lambda new, old: torch.where(condition, new, old), function(values), values
        )
    return function(values) if condition else values


def loop_while(condition, body, values, at_most=None):
    if is_tracing() and at_most is not None:
        for _ in range(at_most):
            values = body(*values)
        return values
    while condition(*values):
        values = body(*values)
    return values


def map_chains(function, constants, differentiate, auxiliary=False):
    def value(position, extra):
        return function(position, extra, constants)

    def one(position, extra):
        if differentiate:
            return torch.func.grad_and_value(value, has_aux=auxiliary)(position, extra)
        with torch.no_grad():
            return [], value(position, extra)

    mapped = vectorized(one)

    def evaluate(position, extra):
        gradient, values = mapped(position, extra)
        return (values[0], gradient, values[1]) if auxiliary else (values, gradient)

    return evaluate


def compiles(jit_compile, is_faster):
    """Return whether to compile the step, which takes seconds and a C++ compiler."""
    return jit_compile is True


def compile_chains(step, noise, records, capacity, fuse=False):
    """Return a loop of many steps in Python, which keeps the records that are due."""
    compiled = CompiledStep(step)

    @torch.no_grad()
    def run(state, constants, seed, start, steps, first, every):
        kept, counts, one = [], None, step
        for number in range(steps):
            draws = noise(seed, start + number)
            # What happens at the first step of chains alone is not compiled.
            if fuse and one is step and start + number > 0:
                one, state = compiled, compiled.flat(state)
            state, record, new = one(state, constants, draws, start + number)
            counts = new if counts is None else list(map(torch.add, counts, new))
            if number >= first and (number - first) % every == 0:
                kept.append(record)
        buffers = [torch.stack(values).cpu() for values in zip(*kept, strict=True)]
        return compiled.packed(state) if one is compiled else state, buffers, counts

    return run
