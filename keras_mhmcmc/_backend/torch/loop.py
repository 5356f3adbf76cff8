"""PyTorch: functions along a chain axis, and the loop of many steps."""

import torch

from keras_mhmcmc._backend.torch.operands import WithArrays

__all__ = [
    "compile_chains",
    "gather",
    "loop_while",
    "map_chains",
    "when",
    "with_arrays",
]


def gather(arrays, index):
    """Return rows of each array."""
    return [array[index] for array in arrays]


def when(condition, function, values):
    """Return `function(values)` if the scalar `condition` holds, else `values`."""
    return function(values) if condition else values


def loop_while(condition, body, values):
    """Return `values` after `values = body(*values)`, as long as `condition(*values)`.

    `jax/loop.py` describes the arguments.
    """
    while condition(*values):
        values = body(*values)
    return values


def with_arrays(function):
    """Return a user's `function` such that its constants may be numpy arrays."""
    return WithArrays(function)


def map_chains(function, constants, differentiate, auxiliary=False):
    """Return a function that evaluates all chains, with gradients.

    `jax/loop.py` describes the arguments and the result.
    """

    def value(position, extra):
        return function(position, extra, constants)

    if not differentiate:
        mapped = torch.func.vmap(value)

        def evaluate(position, extra):
            with torch.no_grad():
                values = mapped(position, extra)
            return (values[0], [], values[1]) if auxiliary else (values, [])

        return evaluate

    gradient_of = torch.func.grad_and_value(value, has_aux=auxiliary)
    mapped = torch.func.vmap(gradient_of)

    def evaluate(position, extra):
        gradient, values = mapped(position, extra)
        return (values[0], gradient, values[1]) if auxiliary else (values, gradient)

    return evaluate


def compile_chains(step, noise, records, capacity, fuse=True):
    """Return a loop of many steps, which keeps the records that are due.

    PyTorch runs the loop without compiling it. `jax/loop.py` describes the
    arguments and the result.
    """

    @torch.no_grad()
    def run(state, constants, seed, start, steps, first, every):
        kept, counts = [], None
        for number in range(steps):
            draws = noise(seed, start + number)
            state, record, new = step(state, constants, draws, start + number)
            counts = new if counts is None else list(map(torch.add, counts, new))
            if number >= first and (number - first) % every == 0:
                kept.append(record)
        buffers = [torch.stack(values) for values in zip(*kept, strict=True)]
        return state, buffers, counts

    return run
