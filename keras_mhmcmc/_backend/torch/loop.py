"""PyTorch: functions along a chain axis, and the loop of many steps."""

import torch
from keras import tree

from keras_mhmcmc._backend.keras_internals import any_memory_format
from keras_mhmcmc._backend.torch.compiled import CompiledStep
from keras_mhmcmc._backend.torch.compiled import can_compile
from keras_mhmcmc._backend.torch.host import is_tracing
from keras_mhmcmc._backend.torch.operands import WithArrays as with_arrays

__all__ = [
    "can_compile",
    "compile_chains",
    "compiles",
    "gather",
    "loop_while",
    "map_chains",
    "when",
    "with_arrays",
]


def vectorized(function, randomness="error"):
    """Return `torch.func.vmap(function)`, in which Keras' convolutions work.

    It fails on Keras' dropout with a seed, which asks for Python numbers.
    """
    mapped = torch.func.vmap(function, randomness=randomness)

    def run(*values):
        with any_memory_format():
            return mapped(*values)

    return run


def gather(arrays, index):
    """Return rows of each array."""
    return [array[index] for array in arrays]


def when(condition, function, values, at_first=False):
    """Return `function(values)` if the scalar `condition` holds, else `values`."""
    if is_tracing() and torch.is_tensor(condition):
        if at_first:
            return values
        return tree.map_structure(
            lambda new, old: torch.where(condition, new, old), function(values), values
        )
    return function(values) if condition else values


def loop_while(condition, body, values, at_most=None):
    """Return `values` after `body(*values)`, as long as `condition(*values)`."""
    if is_tracing() and at_most is not None:
        for _ in range(at_most):
            values = body(*values)
        return values
    while condition(*values):
        values = body(*values)
    return values


def map_chains(function, constants, differentiate, auxiliary=False):
    """Return a function that evaluates all chains, with gradients."""

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
        buffers = [torch.stack(values) for values in zip(*kept, strict=True)]
        return compiled.packed(state) if one is compiled else state, buffers, counts

    return run
