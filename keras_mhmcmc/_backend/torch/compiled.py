"""PyTorch: a step of chains that is traced once, and compiled.

`make_fx` runs the step once, and writes down every operation on tensors. TorchInductor
makes a program of this list. While a step is traced no scalar is known, and both sides
of a condition are computed. `torch.compile` itself stopped at the Python code of steps,
and checks its inputs at each call: a step of SGLD took 75 microseconds instead of 14.
"""

import functools

import torch
import torch._inductor
from keras import tree
from torch.fx.experimental.proxy_tensor import make_fx

from keras_mhmcmc._backend.torch.core import tracing
from keras_mhmcmc._warn import warn

_REMEDY = (
    'Argument `jit_compile` must be "auto" or False if a step reads the value of a '
    "tensor, as in `if x > 0` or `float(x)`, in a function or a schedule of yours, or "
    "if it computes with numpy. Use `keras.ops` alone, such as `keras.ops.where`, or "
    "leave `jit_compile` out. Received: jit_compile=True"
)


class CompiledStep:
    """A step of `compile_chains`, compiled when it is called first.

    From step to step the state is the list of its leaves: packing it takes as long as a
    small step.
    """

    def __init__(self, step):
        self._step = step
        self._program = None
        self._state = None  # the structure of a state
        self._ends = None  # of the state and the records, in the list of results

    def flat(self, state):
        self._state = tree.map_structure(lambda _: 0, state)
        return _leaves(state)

    def packed(self, leaves):
        return tree.pack_sequence_as(self._state, leaves)

    def compile(self, leaves, constants, draws=(), number=0):
        """Compile for tensors of these shapes, and return the tensors as one list."""
        number = torch.tensor(number, dtype=torch.int32, device=leaves[0].device)
        values = [*leaves, *_leaves(constants), number, *_leaves(draws)]
        if self._program is None:
            # Two leaves that are one tensor would be one in the trace for good.
            copies = [x.clone() if torch.is_tensor(x) else x for x in values]
            self._program = self._compiled(copies, len(leaves), draws)
        return values

    def __call__(self, leaves, constants, draws=(), number=0):
        values = self.compile(leaves, constants, draws, number)
        results = self._program(*values)
        end, last = self._ends
        return results[:end], results[end:last], results[last:]

    def _compiled(self, values, size, draws):
        """Return a function of `values`. The first `size` are the state's."""
        last = len(values) - len(_leaves(draws))
        if not all(map(torch.is_tensor, values[last:])):
            raise ValueError(
                'Argument `jit_compile` must be "auto" or False on PyTorch with this '
                "kernel, which draws its noise within a step. Received: "
                "jit_compile=True"
            )

        def flat(*values):
            state, records, counts = self._step(
                self.packed(list(values[:size])),
                list(values[size : last - 1]),
                tree.pack_sequence_as(draws, list(values[last:])),
                values[last - 1],
            )
            leaves = _leaves(state)
            self._ends = len(leaves), len(leaves) + len(records)
            return [*leaves, *records, *counts]

        traced = _traced(flat, values)
        reversed_draws = (x.flatten().flip(0).view(x.shape) for x in values[last:])
        leaves = [leaf.clone() for leaf in traced(*values)[:size]]
        others = [*leaves, *values[size : last - 1]]
        others += [values[last - 1] + 1, *reversed_draws]
        other = _traced(flat, others)
        if not _are_same(traced, other):
            # The first trace may have made constants that are kept for the others.
            traced = _traced(flat, values)
        if not _are_same(traced, other):
            raise ValueError(f"{_REMEDY}, and a step that depends on the state")
        try:
            return torch._inductor.compile(traced, values)
        except Exception as error:
            raise RuntimeError(
                'Argument `jit_compile` must be "auto" or False if PyTorch cannot '
                "compile, as here. Install what its error names, such as g++ on a CPU "
                "or Triton on a GPU, or leave `jit_compile` out. Received: "
                f"jit_compile=True, and this error: {error}"
            ) from error


class CompiledTraining:
    """Training steps, compiled for the shapes of the first mini-batch.

    `step(values, data)` returns logs and new values. Mini-batches of other shapes run
    as they are. So do all if the step cannot be compiled, with a warning.
    """

    def __init__(self, step):
        self._step = step
        self._program = None
        self._shapes = None  # of the mini-batches that the program takes
        self._names = []  # of the logs

    def __call__(self, values, data):
        arrays = [x for x in tree.flatten(data) if x is not None]
        shapes = [x.shape for x in arrays]
        if self._shapes is None:
            self._shapes = shapes
            self._program = CompiledStep(functools.partial(self._flat, data))
            try:
                self._program.compile(self._program.flat(values), arrays)
            except Exception as error:
                self._program = None
                warn(
                    "The training steps could not be compiled, and run slower. To "
                    f"compile, mend this: {type(error).__name__}: {str(error)[:200]}"
                )
        if self._program is None or shapes != self._shapes:
            return self._step(values, data)
        values, logs, _ = self._program(self._program.flat(values), arrays)
        return dict(zip(self._names, logs, strict=True)), values

    def _flat(self, first, values, arrays, draws, number):
        rest = iter(arrays)
        parts = [x if x is None else next(rest) for x in tree.flatten(first)]
        logs, values = self._step(values, tree.pack_sequence_as(first, parts))
        self._names = list(logs)
        return values, list(logs.values()), []


@functools.cache
def can_compile():
    """Return whether PyTorch finds a compiler, by a first small program."""
    values = [torch.zeros(8)]
    try:
        torch._inductor.compile(make_fx(lambda x: [x + 1.0])(*values), values)
    except Exception:  # of any kind: there is none, or it does not work
        return False
    return True


def _traced(function, values):
    """Return the operations of a function of tensors, as a module."""
    try:
        with tracing():
            return make_fx(function)(*values)
    except Exception as error:
        raise ValueError(f"{_REMEDY}, and this error: {error}") from error


def _are_same(traced, other):
    """Return whether traces of a step at two states are the same.

    `make_fx` takes a tensor that it cannot follow for a constant, for good.
    """
    pairs = zip(_constants(traced), _constants(other), strict=False)
    return traced.code == other.code and all(
        x.shape == y.shape and torch.equal(x.nan_to_num(), y.nan_to_num())
        for x, y in pairs
    )


def _constants(traced):
    """Return the tensors that a trace takes from outside."""
    nodes = (node for node in traced.graph.nodes if node.op == "get_attr")
    return [getattr(traced, node.target).detach() for node in nodes]


def _leaves(state):
    """Return the leaves of nested lists and tuples, faster than `keras.tree`."""
    if not isinstance(state, list | tuple):
        return [state.contiguous() if torch.is_tensor(state) else state]
    return [leaf for part in state for leaf in _leaves(part)]
