"""PyTorch: everything the package needs that differs between frameworks."""

import functools
from typing import NamedTuple

import numpy as np
import torch
from keras import tree
from keras.src.backend.common.stateless_scope import in_stateless_scope

from keras_mhmcmc._backend import eager_torch as ops
from keras_mhmcmc._backend.draws_torch import rows_of
from keras_mhmcmc._backend.draws_torch import seed_of
from keras_mhmcmc._backend.draws_torch import shaped
from keras_mhmcmc._backend.eager_torch import is_number
from keras_mhmcmc._backend.eager_torch import number

__all__ = [
    "SEED_DTYPE",
    "LossObserver",
    "NoiseStream",
    "accelerated",
    "add_product",
    "add_scaled",
    "add_terms",
    "affine",
    "all_finite",
    "between",
    "compile_function",
    "cond",
    "constant",
    "default_chunk",
    "dense",
    "difference",
    "donated",
    "draw_from",
    "fused",
    "gradient_and_more",
    "hold_values",
    "map_members",
    "pick",
    "products",
    "read",
    "refuse_replicas",
    "scalar",
    "select",
    "sigmoid_of_affine",
    "steps_if",
    "unwarned",
    "value_and_gradient",
    "write",
    "write_copies",
]

SEED_DTYPE = "int64"


class LossObserver:
    """Hands the training loss from `scale_loss` to `apply`: eager, so as it is."""

    def __init__(self):
        self._loss = None

    def observe(self, loss):
        """Returns `loss` unchanged, and keeps its value for `take`."""
        self._loss = loss.detach()
        return loss

    def keep(self, loss):
        """Keeps a value of the loss that is not part of a differentiated function."""
        self._loss = loss

    def take(self):
        """The loss of this step, or None; a loss is handed out once."""
        loss, self._loss = self._loss, None
        return loss


class NoiseStream:
    """Draws that depend on (seed, step count) alone; `state` holds these two.

    The generator needs both as Python numbers, and reading them from the device would
    stop the queue at each step. So a copy is kept on the host, and read anew when the
    version counter of the variable's tensor says that somebody else wrote it.
    """

    def __init__(self, state):
        self._state = state
        self._host = None
        self._version = None

    def draw(self, tensors, uniforms):
        """Standard normals shaped like `tensors`, and a vector of `uniforms`."""
        value = self._state.value
        if self._host is None or self._version != (value.data_ptr(), value._version):
            self._host = value.tolist()
        seed, count = self._host
        self._host[1] += 1
        with torch.no_grad():
            value[1].add_(1)
        self._version = (value.data_ptr(), value._version)
        return draw_from((seed, count), tensors, uniforms)


def draw_from(state, tensors, uniforms):
    """Standard normals shaped like `tensors`, and uniforms, from (seed, step count)."""
    size = sum(tensor.numel() for tensor in tensors)
    rows, uniform = rows_of([seed_of(*state)], size, uniforms, tensors[0])
    return shaped(rows, tensors, has_chains=False), uniform[0]


def refuse_replicas():
    """Nothing to refuse: one process, one copy."""


def hold_values(variables):
    """Whether the variables can be read: torch's always can."""
    return True


def read(variables):
    """The values of Keras variables."""
    return [value.detach() for value in _values(variables)]


def _values(variables):
    """The tensors of Keras variables, without the layers of `Variable.value`."""
    if in_stateless_scope():
        return [variable.value for variable in variables]
    return [variable._value for variable in variables]


def write(variables, values):
    """Assigns values made in this step."""
    pairs = []
    with torch.no_grad():
        for old, x in zip(_values(variables), values, strict=True):
            if is_number(x):
                old.fill_(x.item())
            elif not x.is_set_to(old):
                pairs.append((old, x))
        if pairs:
            torch._foreach_copy_(*zip(*pairs, strict=True))


def unwarned(function):
    """`function`, in which single numbers become infinite or NaN without a warning."""
    return np.errstate(all="ignore")(function)


def scalar(x):
    """A tensor of rank 0 as what arithmetic is fastest with."""
    return number(x)


class _Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""


def donated(variables, values):
    """`values`, for a kernel to overwrite in the memory of `variables`.

    Fresh memory for a result costs more than the arithmetic, on a CPU.
    """
    write(variables, values)
    return _Donated(read(variables))


def write_copies(variables, sources):
    """Assigns copies."""
    write(variables, read(sources))


def dense(gradients):
    """Gradients as ordinary tensors."""
    return list(gradients)


def add_scaled(xs, a, ys):
    """x + a y for lists of tensors and a scalar a."""
    return add_terms(xs, (a, ys))


def add_terms(xs, *terms):
    """x + a y + b z + ... for lists of tensors, and terms (scalar, tensors)."""
    sums = xs if isinstance(xs, _Donated) else None
    for a, ys in terms:
        a = _number(a)
        if torch.is_tensor(a):
            ys, a = torch._foreach_mul(ys, a), 1.0
        if sums is None:
            sums = torch._foreach_add(xs, ys, alpha=a)
        else:
            torch._foreach_add_(sums, ys, alpha=a)
    return list(sums)


def constant(values, dtype, like):
    """A tuple of numbers, or a range, as a tensor on the device of `like`.

    Made once, since a copy to a GPU stops its queue; nobody may write to it.
    """
    device = like.device if torch.is_tensor(like) else None
    return _constant(values, dtype, device)


@functools.lru_cache(maxsize=64)
def _constant(values, dtype, device):
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=getattr(torch, dtype), device=device)


def pick(values, index):
    """values[..., index], with an index for each row of the last axis."""
    if is_number(index):
        return number(values[int(index)])
    return values.take_along_dim(index[..., None].long(), dim=-1)[..., 0]


def select(condition, xs, ys):
    """xs where the scalar `condition` holds, else ys."""
    if _is_known(condition):
        return list(xs) if condition else list(ys)
    return [torch.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]


class _Difference(NamedTuple):
    """x - y, which `products` makes piece by piece, in no memory of its own."""

    x: torch.Tensor
    y: torch.Tensor


def difference(xs, ys):
    """x - y for lists of tensors, for `products` alone."""
    return list(map(_Difference, xs, ys))


def products(function, *lists):
    """Sums of products over lists of tensors, float32 scalars.

    `function` takes a tensor of each list, in float32 at least, and returns pairs.
    """
    rows = []
    for arrays in zip(*lists, strict=True):
        for piece in zip(*map(_pieces, arrays), strict=True):
            rows.append([torch.dot(x, y) for x, y in function(*piece)])
    sums = torch.stack([x for row in rows for x in row]).reshape(len(rows), -1).sum(0)
    return ops.unstack(sums.float(), sums.shape[0])


def _pieces(x):
    """A tensor, or a difference of two, in pieces: see `_PIECE`."""
    if isinstance(x, _Difference):
        pairs = zip(_pieces(x.x), _pieces(x.y), strict=True)
        return (x - y for x, y in pairs)
    x = x.reshape(-1)
    pieces = [x] if x.is_cuda or len(x) <= _PIECE else x.split(_PIECE)
    return map(_at_least_float32, pieces)


def all_finite(xs):
    """Whether all numbers are finite and below 1e19."""
    xs = [_at_least_float32(x.reshape(-1)) for x in xs]
    return ops.isfinite(number(torch.stack([torch.dot(x, x) for x in xs]).sum()))


def _at_least_float32(x):
    return x if x.dtype == torch.float64 else x.float()


def fused(function, *arrays):
    """Elementwise results of `function(*arrays)`, and sums of products of two.

    `function` returns a list of results and one of pairs, in which None stands for 1.
    """
    results, pairs = function(*arrays)
    return results, [number(_dot(x, y)) for x, y in pairs]


# On a CPU `torch.dot` and `vector_norm` add up one number after the other, and lose
# four digits of ten million; in pieces of this length they lose none that count.
_PIECE = 2**17


def _dot(x, y):
    if y is None:
        return x.sum()
    x, y = x.reshape(-1), y.reshape(-1)
    if x.is_cuda or len(x) <= _PIECE:
        return torch.dot(x, y)
    pieces = zip(x.split(_PIECE), y.split(_PIECE), strict=True)
    return torch.stack([torch.dot(a, b) for a, b in pieces]).sum()


def affine(x, slope, constant):
    """slope x + constant."""
    slope = _number(slope)
    if torch.is_tensor(slope):
        return torch.addcmul(torch.as_tensor(constant), x, slope)
    return torch.add(torch.as_tensor(constant, dtype=x.dtype), x, alpha=slope)


def sigmoid_of_affine(x, slope, constant):
    """sigmoid(slope x + constant)."""
    return affine(x, slope, constant).sigmoid_()


def add_product(x, y, z):
    """x + y z."""
    return torch.addcmul(x, y, z)


def between(x, y, share):
    """x + share (y - x)."""
    return torch.lerp(x, y, _number(share))


def _number(scalar):
    """A scalar on the host as a Python number, with which operations are faster."""
    scalar = number(scalar)
    return scalar.item() if is_number(scalar) else scalar


def cond(condition, if_true, if_false):
    """`if_true()` where the scalar `condition` holds, else `if_false()`."""
    if _is_known(condition):
        return if_true() if condition else if_false()
    return torch.where(condition, if_true(), if_false())


def steps_if(condition, step, variables):
    """Runs `step()`, which assigns `variables`, where `condition` holds.

    Returns False where it cannot branch, and has done nothing: on a GPU it would have
    to wait for the condition.
    """
    if not _is_known(condition):
        return False
    if condition:
        step()
    return True


def _is_known(condition):
    """Whether a scalar is on the host, where reading it stops no queue."""
    return is_number(condition) or condition.device.type == "cpu"


def compile_function(function):
    """`function` of tensors; PyTorch runs it as it stands."""
    return function


def value_and_gradient(function):
    """(value, gradient) of a scalar function with respect to its first argument."""

    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return value.detach(), gradient

    return evaluate


def gradient_and_more(function):
    """(gradient, more) of a function of (scalar, more), in its first argument."""

    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value, more = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return gradient, tree.map_structure(lambda y: y.detach(), more)

    return evaluate


def map_members(function, stacked, chunk):
    """`function(member)` for each slice of `stacked`, stacked.

    A loop: `torch.func.vmap` fails on Keras' convolutions, and on a CPU it is slower.
    """
    outputs = [
        function([tensor[i] for tensor in stacked]) for i in range(len(stacked[0]))
    ]
    return tree.map_structure(lambda *ys: torch.stack(ys), *outputs)


def accelerated():
    """Whether the computation runs on something faster than a CPU."""
    return torch.cuda.is_available()


def default_chunk(count):
    """How many members to evaluate side by side; the loop takes them one by one."""
    return 1
