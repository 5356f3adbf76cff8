"""PyTorch: variables, functions, and arithmetic on lists of tensors."""

import contextlib
import contextvars
import functools
import importlib.util

import torch
import torch.distributed as group
from keras import tree

from keras_mhmcmc._backend import plain
from keras_mhmcmc._backend.torch.random import Normals

__all__ = [
    "LossObserver",
    "StepTrainer",
    "accelerated",
    "add_product",
    "add_terms",
    "affine",
    "between",
    "check_processes",
    "cond",
    "constant",
    "count_processes",
    "dense",
    "donated",
    "gradient_and_more",
    "independent_processes",
    "map_and_sum",
    "map_members",
    "over_replicas",
    "read",
    "refuse_export",
    "refuse_replicas",
    "select",
    "shares_chains",
    "steps_if",
    "sum_products",
    "uncompiled",
    "wrapped_product",
    "write",
]


# Scalars that can be read, and memory that may be overwritten.

_TRACING = contextvars.ContextVar("tracing", default=False)
# Whether a step is traced, whose values a compiled program changes.
is_tracing = _TRACING.get


@contextlib.contextmanager
def tracing():
    token = _TRACING.set(True)
    try:
        yield
    finally:
        _TRACING.reset(token)


def is_known(condition):
    """Return whether a scalar is on the host, where reading it stops no queue."""
    return condition.device.type == "cpu" and not is_tracing()


class Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""


class LossObserver(plain.LossObserver):
    """The two run eagerly."""

    observe = torch.compiler.disable(plain.LossObserver.observe)


class StepTrainer(plain.StepTrainer):
    """The step makes no graph of gradients."""

    train_step = torch.no_grad()(plain.StepTrainer.train_step)


def refuse_export(format):
    """Raise a `ValueError` for a SavedModel of TensorFlow, unless Keras can make it."""
    if format == "tf_saved_model" and importlib.util.find_spec("torch_xla") is None:
        raise ValueError(
            'Argument `format` must be "torch", for a `.pt2` file: on PyTorch Keras '
            "makes no SavedModel of TensorFlow without the package `torch_xla`. Or "
            'save the ensemble with `ensemble.save("ensemble.keras")`, and in a '
            "process with KERAS_BACKEND=tensorflow load it and call `export`. "
            f"Received: format={format!r}"
        )


def read(variables):
    return [variable.value.detach() for variable in variables]


def write(variables, values):
    with torch.no_grad():
        for variable, x in zip(variables, values, strict=True):
            if not x.is_set_to(variable.value):
                variable.value.copy_(x)


# With the sampler's step compiled as well, `compile(..., jit_compile=True)` took 43 to
# 67 seconds on the perceptron 784-600-10, not 11 to 16. Steps of RSGLD then took 24%
# longer, since a compiled program computes both sides of each condition.
uncompiled = torch.compiler.disable


def donated(variables, values):
    """Return `values` in the memory of `variables`, which a kernel may overwrite.

    Without this the peak memory of SGLD grows by the size of the weights.
    """
    write(variables, values)
    return Donated(read(variables))


def dense(gradients, variables):
    """Return gradients, and remove them from `variables`.

    Keras lists parameters by path. Two weights of nested models may share one: its
    `zero_grad` clears one of the two, and the next step would add to the other.
    """
    gradients = list(gradients)
    for variable in variables:
        variable.value.grad = None
    return gradients


def cond(condition, if_true, if_false):
    if is_known(condition):
        return if_true() if condition else if_false()
    return torch.where(condition, if_true(), if_false())


def steps_if(condition, step):
    """Run `step()` if `condition` holds, unless a branch would wait for a GPU."""
    if not is_known(condition):
        return False
    if condition:
        step()
    return True


def gradient_and_more(function):
    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value, more = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return gradient, tree.map_structure(lambda y: y.detach(), more)

    return evaluate


def map_members(function, stacked, chunk):
    # One at a time, whatever `chunk` is: `torch.func.vmap` is slower on a CPU.
    outputs = [
        function([tensor[i] for tensor in stacked]) for i in range(len(stacked[0]))
    ]
    return tree.map_structure(lambda *ys: torch.stack(ys), *outputs)


accelerated = torch.cuda.is_available


def add_terms(xs, *terms):
    sums = xs if isinstance(xs, Donated) else None
    for a, ys in terms:
        a = _number(a)
        if torch.is_tensor(a):
            ys, a = torch._foreach_mul(ys, a), 1.0
        if isinstance(ys, Normals):
            sums = torch._foreach_add(xs, 0.0) if sums is None else sums
            ys.add_to_(sums, a)
        elif sums is None:
            sums = torch._foreach_add(xs, ys, alpha=a)
        else:
            torch._foreach_add_(sums, ys, alpha=a)
    return list(sums)


def constant(values, dtype, like):
    """Return a tensor that is made once, since a copy to a GPU stops its queue."""
    device = like.device if torch.is_tensor(like) else None
    return _constant(values, dtype, device)


@functools.lru_cache(maxsize=64)
def _constant(values, dtype, device):
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=getattr(torch, dtype), device=device)


def select(condition, xs, ys):
    if is_known(condition):
        return list(xs) if condition else list(ys)
    return [torch.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]


def sum_products(function, *lists):
    rows = []
    for arrays in zip(*lists, strict=True):
        for piece in zip(*map(_cut, arrays), strict=True):
            pairs = function(*map(_at_least_float32, piece))
            rows.append([_dot(x, y) for x, y in pairs])
    return [_total(column) for column in zip(*rows, strict=True)]


def _at_least_float32(x):
    return x if x.dtype == torch.float64 else x.float()


def map_and_sum(function, *arrays):
    cuts = [_cut(x) for x in arrays]
    if len(cuts[0]) == 1:
        results, pairs = function(*arrays)
        return results, [_total([_dot(x, y)]) for x, y in pairs]
    # Compute in pieces: fresh memory for intermediate tensors of the whole size may
    # cost more than the arithmetic.
    results, sums = None, []
    for i, piece in enumerate(zip(*cuts, strict=True)):
        made, pairs = function(*piece)
        if results is None:
            results = [torch.empty(arrays[0].shape, dtype=x.dtype) for x in made]
            into = [_cut(x) for x in results]
        for whole, x in zip(into, made, strict=True):
            whole[i].copy_(x)
        sums.append([_dot(x, y) for x, y in pairs])
    return results, [_total(column) for column in zip(*sums, strict=True)]


def _cut(x):
    """Return a flat tensor in pieces of `_PIECE` numbers; on a GPU it stays whole."""
    x = x.reshape(-1)
    return [x] if x.is_cuda or len(x) <= _PIECE else x.split(_PIECE)


# On a CPU, `torch.dot` and `vector_norm` add up one number after the other. The sum of
# ten million numbers loses four digits. Sums of this many numbers lose no digits that
# matter.
_PIECE = 2**17


def _dot(x, y):
    """Return the sum of the products x y. None stands for 1."""
    # On the host a Python number: small tensors between large ones leave holes in the
    # memory, which then grew by the size of the weights.
    total = x.sum() if y is None else torch.dot(x.reshape(-1), y.reshape(-1))
    return total.item() if is_known(total) else total


def _total(values):
    """Return the sum of results of `_dot`, float32."""
    total = sum(values)
    if torch.is_tensor(total):
        return total.float()
    return torch.tensor(total, dtype=torch.float32)


def affine(x, slope, constant):
    slope = _number(slope)
    if torch.is_tensor(slope):
        return torch.addcmul(torch.as_tensor(constant), x, slope)
    return torch.add(torch.as_tensor(constant, dtype=x.dtype), x, alpha=slope)


add_product = torch.addcmul


def between(x, y, share):
    return torch.lerp(x, y, _number(share))


def wrapped_product(x, factor, constant=0):
    # In a compiled step, a program in C++, int32 must not overflow.
    return (x.long() * factor + constant).to(torch.int32)


def _number(scalar):
    """Return a scalar on the host as a Python number, which makes operations faster."""
    if torch.is_tensor(scalar) and scalar.ndim == 0 and is_known(scalar):
        return scalar.item()
    return scalar


# One chain that all processes of a group move: each makes the whole update, with the
# same noise. `DistributedDataParallel` averages the gradients, but not the loss.


_INDEPENDENT = contextvars.ContextVar("independent_processes", default=False)
_REMEDY = (
    "or, for a chain of its own in each process, make the sampler in "
    "`with mh.independent_processes():`."
)


def refuse_replicas(name):
    """Raise a `ValueError` if there are several processes, unless independent."""
    count = count_processes()
    if count > 1 and shares_chains():
        raise ValueError(
            f"`{name}` runs in one process. For chains of their own in each "
            "process, make and compile it in `with mh.independent_processes():`, with "
            "another seed in each process. "
            f"Received: a process group of {count} processes."
        )


@contextlib.contextmanager
def independent_processes():
    token = _INDEPENDENT.set(True)
    try:
        yield
    finally:
        _INDEPENDENT.reset(token)


def shares_chains():
    return not _INDEPENDENT.get()


def count_processes():
    if not group.is_available() or not group.is_initialized():
        return 1
    return group.get_world_size()


def check_processes(gradients, variables, seeds):
    count = count_processes()
    if count == 1:
        return
    if seeds is not None:
        first = seeds.value.detach().clone()
        group.broadcast(first, src=0)
        seeds.assign(first)
    if any(_differ(gradients)):
        raise ValueError(
            "The processes of a group must have the same gradients, those of the whole "
            "batch. Call the model by way of "
            "`torch.nn.parallel.DistributedDataParallel(model)` in a custom training "
            f"loop, {_REMEDY} Received: gradients that differ between {count} "
            "processes."
        )
    differ = _differ([variable.value for variable in variables])
    others = [v.path for v, is_other in zip(variables, differ, strict=True) if is_other]
    if others:
        raise ValueError(
            "The processes of a group must start with the same weights, and with a "
            "sampler of the same seed and state. Give all of them the same `seed`, or "
            f"load the same file in all, {_REMEDY} Received: values that differ "
            f"between {count} processes, in {', '.join(others)}."
        )


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _differ(tensors):
    """Return whether the bits of each tensor differ between the processes."""
    with torch.no_grad():
        bits = [x.detach().view(_INTEGERS[x.element_size()]) for x in tensors]
        sums = torch.stack([x.sum(dtype=torch.int64) for x in bits])
        extremes = torch.stack([sums, -sums])
        group.all_reduce(extremes, op=group.ReduceOp.MAX)
        return (extremes[0] != -extremes[1]).tolist()


def over_replicas(gradients, loss, changes):
    """Return the gradients, averaged already, and the loss of all processes."""
    count = count_processes()
    if count == 1 or loss is None:
        return gradients, loss
    with torch.no_grad():
        dtype = torch.promote_types(loss.dtype, torch.float32)
        numbers = torch.full_like(loss, changes, dtype=dtype)
        sums = torch.stack([loss.to(dtype), numbers])
        group.all_reduce(sums)
    # A process without changes does not wait for the device.
    if changes and int(sums[1]) != count * changes:
        raise ValueError(
            "`settle`, `propose` and `mh.PosteriorSamples` change the state of a "
            "sampler: use them in all processes of a group, at the same step. "
            f"Received: {changes} such calls since the last step in this process, and "
            f"{int(sums[1])} in all {count} processes."
        )
    return gradients, sums[0] / count
