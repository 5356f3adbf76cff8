"""PyTorch: draws without variables, functions along a chain axis, and the loop."""

import torch

from keras_mhmcmc._backend.torch.operands import WithArrays

__all__ = ["compile_chains", "gather", "map_chains", "when", "with_arrays"]


def gather(arrays, index):
    """Rows of each array."""
    return [array[index] for array in arrays]


def when(condition, function, values):
    """`function(values)` where the scalar `condition` holds, else `values`."""
    return function(values) if condition else values


def with_arrays(function):
    """A user's function of tensors, which may have numpy's arrays for constants."""
    return WithArrays(function)


def map_chains(function, constants, differentiate, auxiliary=False):
    """`function(position, extra, constants)` for each chain, with its gradient.

    Returns a function of lists of tensors with a chain axis, which gives the values,
    shape (K,), and the gradients with respect to the position, or an empty list. With
    `auxiliary`, `function` gives a value and a list of other numbers, and a third
    result is the list of these, each of shape (K,).
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
    """A loop of many steps that keeps what is due; PyTorch runs it as it stands.

    Args:
        step: function of (state, constants, draws, number of the step), which gives
            the next state, a list of tensors to record and a list of counts.
        noise: function of (seed, number of the step), the step's draws.
        records: not needed here.
        capacity: how many records one call can keep.
        fuse: whether TensorFlow compiles with XLA; the others do not read it.

    Returns:
        A function of (state, constants, seed, start, steps, first, every). It runs
        `steps` steps, the first of which has the number `start`; records the step that
        comes after `first` others, and then each `every`-th; and gives the state, the
        records with a first axis, and the sums of the counts over all steps.
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
