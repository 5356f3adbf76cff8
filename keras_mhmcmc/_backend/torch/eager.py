"""PyTorch: the functions of `keras.ops` that a step calls, without their wrappers.

Nothing is compiled here, and on single numbers, of which a step has dozens, a tensor
costs ten times what a number of numpy's does, and a wrapper of Keras ten times that. So
a single number that is on the host anyway, not on a GPU, is a numpy scalar (`number`),
and the functions take both. They take what their namesakes take, with axes by keyword;
those that no step calls, but an epoch's end, are the namesakes themselves.
"""

import numpy as np
import torch
from keras import Variable
from keras import ops

from keras_mhmcmc._backend.torch.host import OF_PYTHON
from keras_mhmcmc._backend.torch.host import ON_DEVICE
from keras_mhmcmc._backend.torch.host import ON_HOST
from keras_mhmcmc._backend.torch.host import is_number
from keras_mhmcmc._backend.torch.host import number
from keras_mhmcmc._backend.torch.host import values_of

__all__ = [
    "all",
    "any",
    "argmax",
    "broadcast_to",
    "cast",
    "ceil",
    "clip",
    "convert_to_numpy",
    "convert_to_tensor",
    "cos",
    "cumprod",
    "exp",
    "expand_dims",
    "isfinite",
    "isnan",
    "log",
    "log1p",
    "log_sigmoid",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logsumexp",
    "max",
    "maximum",
    "minimum",
    "ones_like",
    "power",
    "reshape",
    "sqrt",
    "square",
    "stack",
    "std",
    "sum",
    "take",
    "unstack",
    "where",
    "zeros",
    "zeros_like",
]

# Where it is not a step that calls them.
argmax = ops.argmax
convert_to_numpy = ops.convert_to_numpy
cumprod = ops.cumprod
max = ops.max
std = ops.std
take = ops.take
zeros = ops.zeros


def convert_to_tensor(x, dtype=None):
    """`x` as a tensor, or a single number; Python numbers as Keras converts them."""
    if isinstance(x, Variable):
        x = number(values_of([x])[0])
    elif type(x) in OF_PYTHON:
        x = OF_PYTHON[type(x)](x)
    elif not (torch.is_tensor(x) or is_number(x)):
        return ops.convert_to_tensor(x, dtype)
    return x if dtype is None else cast(x, dtype)


def cast(x, dtype):
    """`x` in another dtype."""
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    x = convert_to_tensor(x)
    if is_number(x):
        return ON_HOST[dtype](x) if dtype in ON_HOST else _tensor(x).to(dtype)
    return x.to(dtype)


def _tensor(x, like=None):
    """A tensor even of a single number, where `like` is."""
    x = convert_to_tensor(x)
    if is_number(x):
        device = None if like is None else like.device
        return torch.tensor(x.item(), dtype=ON_DEVICE[type(x)], device=device)
    return x


def _plain(x):
    """A single number as Python's own, which PyTorch's functions take."""
    return x.item() if is_number(x) else x


def _elementwise(of_number, of_tensor, summary):
    def function(x):
        x = convert_to_tensor(x)
        return of_number(x) if is_number(x) else of_tensor(x)

    function.__doc__ = summary
    return function


ceil = _elementwise(np.ceil, torch.ceil, "The next integer above.")
cos = _elementwise(np.cos, torch.cos, "The cosine.")
exp = _elementwise(np.exp, torch.exp, "e to the power of `x`.")
isfinite = _elementwise(np.isfinite, torch.isfinite, "Whether neither NaN nor inf.")
isnan = _elementwise(np.isnan, torch.isnan, "Whether NaN.")
log = _elementwise(np.log, torch.log, "The natural logarithm.")
log1p = _elementwise(np.log1p, torch.log1p, "log(1 + x).")
log_sigmoid = _elementwise(
    lambda x: -np.logaddexp(np.zeros_like(x), -x),
    torch.nn.functional.logsigmoid,
    "log(1 / (1 + exp(-x))).",
)
sqrt = _elementwise(np.sqrt, torch.sqrt, "The square root.")
square = _elementwise(np.square, torch.square, "x^2.")
ones_like = _elementwise(lambda x: type(x)(1), torch.ones_like, "Ones shaped like `x`.")
zeros_like = _elementwise(
    lambda x: type(x)(0), torch.zeros_like, "Zeros shaped like `x`."
)


def all(x):
    """Whether all of a tensor holds."""
    return x.all()


def any(x):
    """Whether any of a tensor holds."""
    return x.any()


def broadcast_to(x, shape):
    """`x` repeated along new axes."""
    return torch.broadcast_to(_tensor(x), shape)


def clip(x, low, high):
    """`x` within `low` and `high`, numbers or tensors both."""
    x = convert_to_tensor(x)
    if is_number(x):
        return minimum(maximum(x, low), high)
    return torch.clamp(x, _plain(low), _plain(high))


def expand_dims(x, axis):
    """`x` with a new axis; a single number, which fits any shape, as it is."""
    x = convert_to_tensor(x)
    return x if is_number(x) else x.unsqueeze(axis)


def logaddexp(x, y):
    """log(exp(x) + exp(y))."""
    if is_number(x) and is_number(y):
        return np.logaddexp(x, y)
    return torch.logaddexp(_tensor(x), _tensor(y))


def logical_and(x, y):
    """Whether both hold."""
    if is_number(x) and is_number(y):
        return x & y
    return torch.logical_and(_tensor(x), _tensor(y))


def logical_or(x, y):
    """Whether one of them holds."""
    if is_number(x) and is_number(y):
        return x | y
    return torch.logical_or(_tensor(x), _tensor(y))


def logsumexp(x, axis):
    """The logarithm of the sum of exponentials along an axis."""
    return torch.logsumexp(x, dim=axis)


def maximum(x, y):
    """The larger one; either may be a number."""
    if torch.is_tensor(x) and not torch.is_tensor(y):
        return torch.clamp_min(x, _plain(convert_to_tensor(y)))
    if is_number(x) and not torch.is_tensor(y):
        return np.maximum(x, _plain(convert_to_tensor(y)))
    return torch.maximum(_tensor(x), _tensor(y))


def minimum(x, y):
    """The smaller one; either may be a number."""
    if torch.is_tensor(x) and not torch.is_tensor(y):
        return torch.clamp_max(x, _plain(convert_to_tensor(y)))
    if is_number(x) and not torch.is_tensor(y):
        return np.minimum(x, _plain(convert_to_tensor(y)))
    return torch.minimum(_tensor(x), _tensor(y))


def power(x, y):
    """x^y; either may be a number."""
    x, y = (z if isinstance(z, float) else convert_to_tensor(z) for z in (x, y))
    if torch.is_tensor(x) or torch.is_tensor(y):
        return torch.pow(_plain(x), _plain(y))
    return np.power(x, y)


def reshape(x, shape):
    """The numbers of `x` in another shape."""
    return _tensor(x).reshape(shape)


def stack(xs, axis=0):
    """Tensors along a new axis."""
    xs = [convert_to_tensor(x) for x in xs]
    like = next(filter(torch.is_tensor, xs), None)
    if like is None:
        return torch.tensor([x.item() for x in xs], dtype=ON_DEVICE[type(xs[0])])
    return torch.stack([_tensor(x, like) for x in xs], dim=axis)


def sum(x, axis=None, keepdims=False):
    """The sum along an axis, or of all."""
    return x.sum() if axis is None else x.sum(dim=axis, keepdim=keepdims)


def unstack(x, num, axis=0):
    """The tensors, or single numbers, of which `x` is the stack."""
    x = convert_to_tensor(x)
    if x.ndim == 1 and x.device.type == "cpu" and x.dtype in ON_HOST:
        return list(x.numpy(force=True))
    return list(x.unbind(axis))


def where(condition, x, y):
    """`x` where the condition holds, else `y`; one of both may be a number."""
    condition = convert_to_tensor(condition)
    if is_number(condition):
        chosen, other = (x, y) if condition else (y, x)
        return _like(convert_to_tensor(chosen), convert_to_tensor(other))
    return torch.where(condition, _operand(x), _operand(y))


def _like(x, other):
    """`x` in the shape that it has together with `other`."""
    if type(x) is type(other) and not torch.is_tensor(x):
        return x
    if not torch.is_tensor(other):
        return x if torch.is_tensor(x) else np.result_type(x, other).type(x)
    if not torch.is_tensor(x):
        return torch.full_like(other, x.item())
    return x if x.shape == other.shape else torch.broadcast_tensors(x, other)[0]


def _operand(x):
    return _plain(x) if isinstance(x, float | np.generic) else convert_to_tensor(x)
