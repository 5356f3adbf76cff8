"""Stacked variables, and values of some of the chains in their place."""

import contextlib

import keras
from keras import ops


def stacked_variable(variable, value, trainable):
    """A variable with a leading chain axis and the path of `variable`."""
    *scopes, name = variable.path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(
            value, dtype=variable.dtype, trainable=trainable, autocast=False, name=name
        )


@contextlib.contextmanager
def any_number_of_rows(variables):
    """Lets stacked variables take the values of some of the chains, in a scope."""
    shapes = [variable._shape for variable in variables]
    for variable, shape in zip(variables, shapes, strict=True):
        variable._shape = (None, *shape[1:])
    try:
        yield
    finally:
        for variable, shape in zip(variables, shapes, strict=True):
            variable._shape = shape


def split(values, counts):
    """Lists of so many values each, and one of the rest."""
    parts = []
    for count in counts:
        parts.append(list(values[:count]))
        values = values[count:]
    return [*parts, list(values)]


def where_accepted(accepted, new, old):
    """The new floating-point values of the chains that accepted; all other new ones."""
    return [
        ops.where(ops.reshape(accepted, (-1, *[1] * (len(x.shape) - 1))), x, y)
        if keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
        else x
        for x, y in zip(new, old, strict=True)
    ]
