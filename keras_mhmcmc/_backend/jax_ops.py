"""JAX: the functions of `keras.ops` that a step calls, as they are.

A step is compiled, so that what they cost besides the arithmetic is paid once.
"""

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

all = ops.all
any = ops.any
argmax = ops.argmax
broadcast_to = ops.broadcast_to
cast = ops.cast
ceil = ops.ceil
clip = ops.clip
convert_to_numpy = ops.convert_to_numpy
convert_to_tensor = ops.convert_to_tensor
cos = ops.cos
cumprod = ops.cumprod
exp = ops.exp
expand_dims = ops.expand_dims
isfinite = ops.isfinite
isnan = ops.isnan
log = ops.log
log1p = ops.log1p
log_sigmoid = ops.log_sigmoid
logaddexp = ops.logaddexp
logsumexp = ops.logsumexp
max = ops.max
maximum = ops.maximum
minimum = ops.minimum
ones_like = ops.ones_like
power = ops.power
reshape = ops.reshape
sqrt = ops.sqrt
square = ops.square
stack = ops.stack
std = ops.std
sum = ops.sum
take = ops.take
take_along_axis = ops.take_along_axis
unstack = ops.unstack
where = ops.where
zeros = ops.zeros
zeros_like = ops.zeros_like
