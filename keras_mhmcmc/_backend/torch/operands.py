"""PyTorch: functions of a user whose constants are numpy arrays.

PyTorch leaves `tensor - array` to numpy, which needs the memory of the tensor. Under
`torch.func.vmap` a tensor stands for many chains and has no memory of its own. `array @
tensor` fails for any tensor.
"""

import numpy as np
import torch
from keras import tree

from keras_mhmcmc._backend.torch.core import is_tracing

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


class Operand(torch.Tensor):
    """A tensor whose operators convert arrays to its dtype, as those of JAX do."""

    __array_ufunc__ = None  # numpy leaves `array - operand` to it

    def __array__(self, *arguments, **options):
        raise _refusal("an array of numpy's")

    def __array_function__(self, function, types, arguments, options):
        raise _refusal(f"numpy's `{function.__name__}`")

    def __getitem__(self, index):
        return super().__getitem__(tree.map_structure(_index, index))


def _refusal(what):
    return TypeError(
        f"{what} cannot be made of a position: take the function of the same name in "
        "`keras.ops`, which is differentiated and runs for all chains at once"
    )


def _index(index):
    return _tensor(index) if isinstance(index, np.ndarray) else index


def _tensor(array):
    return torch.from_numpy(np.array(array, order="C"))  # no negative strides


def _with_arrays(name):
    method = getattr(torch.Tensor, name)

    def operator(self, other):
        if isinstance(other, np.ndarray):
            other = _tensor(other).to(self.device)
            if other.dtype != torch.bool and self.is_floating_point():
                other = other.to(self.dtype)
        return method(self, other)

    return operator


for _name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), *_COMPARISONS):
    setattr(Operand, f"__{_name}__", _with_arrays(f"__{_name}__"))


_REMEDY = (
    "PyTorch cannot run this function for all chains at once. With gradients of "
    "mini-batches, `ops.one_hot` is such a function: put one-hot labels into `data`, "
    "or pick a label's value with `ops.take_along_axis`."
)


class WithArrays:
    """A function of tensors that may have arrays among its constants.

    Operands make a small density take half as long again. So the function first gets
    tensors. If it fails with them, it gets operands, also in all later calls.
    """

    def __init__(self, function):
        self._function = function
        self._needs_operands = False

    def __call__(self, *arguments):
        """Return the value of the function. A tensor is returned as a plain tensor."""
        if not self._needs_operands:
            try:
                return self._function(*arguments)
            except (RuntimeError, TypeError) as error:
                value = self._of_operands(arguments, error)
            self._needs_operands = True
            return value
        return self._of_operands(arguments, None)

    def _of_operands(self, arguments, cause):
        if is_tracing():
            raise TypeError(
                "numpy arrays cannot be constants of a compiled function on PyTorch: "
                "convert them with `keras.ops.convert_to_tensor`"
            ) from cause
        operands = tree.map_structure(lambda x: x.as_subclass(Operand), arguments)
        try:
            value = self._function(*operands)
        except (RuntimeError, TypeError) as error:
            if "vmap" in str(error):
                error.add_note(_REMEDY)
            raise error from cause
        return value.as_subclass(torch.Tensor) if torch.is_tensor(value) else value
