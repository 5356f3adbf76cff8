"""PyTorch: the functions of `keras.ops` that a step calls, without their wrappers.

Nothing is compiled here, and on scalars, of which a step has dozens, a wrapper of Keras
costs ten times the arithmetic. The functions take what their namesakes take, with axes
by keyword; those that no step calls, but an epoch's end, are the namesakes themselves.
"""

import torch
from keras import Variable
from keras import ops

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
    "take_along_axis",
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
    """`x` as a tensor; Python numbers as Keras converts them."""
    if isinstance(x, Variable):
        x = x.value
    elif not torch.is_tensor(x):
        return ops.convert_to_tensor(x, dtype)
    return x if dtype is None else cast(x, dtype)


def cast(x, dtype):
    """`x` in another dtype."""
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    return convert_to_tensor(x).to(dtype)


def all(x):
    """Whether all of a tensor holds."""
    return x.all()


def any(x):
    """Whether any of a tensor holds."""
    return x.any()


def broadcast_to(x, shape):
    """`x` repeated along new axes."""
    return torch.broadcast_to(convert_to_tensor(x), shape)


def ceil(x):
    """The next integer above."""
    return torch.ceil(convert_to_tensor(x))


def clip(x, low, high):
    """`x` within `low` and `high`, numbers or tensors both."""
    return torch.clamp(convert_to_tensor(x), low, high)


def cos(x):
    """The cosine."""
    return torch.cos(convert_to_tensor(x))


def exp(x):
    """e to the power of `x`."""
    return torch.exp(convert_to_tensor(x))


def expand_dims(x, axis):
    """`x` with a new axis."""
    return convert_to_tensor(x).unsqueeze(axis)


def isfinite(x):
    """Whether neither NaN nor infinite."""
    return torch.isfinite(convert_to_tensor(x))


def isnan(x):
    """Whether NaN."""
    return torch.isnan(convert_to_tensor(x))


def log(x):
    """The natural logarithm."""
    return torch.log(convert_to_tensor(x))


def log1p(x):
    """log(1 + x)."""
    return torch.log1p(convert_to_tensor(x))


def log_sigmoid(x):
    """log(1 / (1 + exp(-x)))."""
    return torch.nn.functional.logsigmoid(convert_to_tensor(x))


def logaddexp(x, y):
    """log(exp(x) + exp(y))."""
    return torch.logaddexp(convert_to_tensor(x), convert_to_tensor(y))


def logsumexp(x, axis):
    """The logarithm of the sum of exponentials along an axis."""
    return torch.logsumexp(x, dim=axis)


def maximum(x, y):
    """The larger one; either may be a number."""
    if isinstance(y, int | float) and torch.is_tensor(x):
        return torch.clamp_min(x, y)
    return torch.maximum(convert_to_tensor(x), convert_to_tensor(y))


def minimum(x, y):
    """The smaller one; either may be a number."""
    if isinstance(y, int | float) and torch.is_tensor(x):
        return torch.clamp_max(x, y)
    return torch.minimum(convert_to_tensor(x), convert_to_tensor(y))


def ones_like(x):
    """Ones shaped like `x`."""
    return torch.ones_like(x)


def power(x, y):
    """x^y; either may be a number."""
    return torch.pow(x if torch.is_tensor(y) else convert_to_tensor(x), y)


def reshape(x, shape):
    """The numbers of `x` in another shape."""
    return convert_to_tensor(x).reshape(shape)


def sqrt(x):
    """The square root."""
    return torch.sqrt(convert_to_tensor(x))


def square(x):
    """x^2."""
    return torch.square(convert_to_tensor(x))


def stack(xs, axis=0):
    """Tensors along a new axis."""
    return torch.stack([convert_to_tensor(x) for x in xs], dim=axis)


def sum(x, axis=None, keepdims=False):
    """The sum along an axis, or of all."""
    return x.sum() if axis is None else x.sum(dim=axis, keepdim=keepdims)


def take_along_axis(x, indices, axis):
    """The values of `x` at `indices`, which are not negative, along an axis."""
    return torch.take_along_dim(x, indices.long(), dim=axis)


def unstack(x, num, axis=0):
    """The tensors of which `x` is the stack."""
    return list(convert_to_tensor(x).unbind(axis))


def where(condition, x, y):
    """`x` where the condition holds, else `y`; one of both may be a number."""
    return torch.where(convert_to_tensor(condition), _operand(x), _operand(y))


def zeros_like(x):
    """Zeros shaped like `x`."""
    return torch.zeros_like(x)


def _operand(x):
    return x if isinstance(x, float) else convert_to_tensor(x)
