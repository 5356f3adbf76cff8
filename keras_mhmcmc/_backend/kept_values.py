"""Values that a model keeps when `predict` or `evaluate` fails."""

import contextlib
from collections.abc import Iterator

import keras

__all__ = ["values_kept"]


@contextlib.contextmanager
def values_kept(model: keras.Model) -> Iterator[None]:
    """Give the variables of `model` their values again after an error on JAX.

    There `predict` and `evaluate` of Keras take the values out of the variables, and
    put them back at their end. After an error, such as a wrong shape of the inputs, the
    variables stay empty. Training gives its buffers away, and cannot be helped.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    variables = [*model.variables, *model.metrics_variables]
    values = [variable._value for variable in variables]
    try:
        yield
    except BaseException:
        model.jax_state_sync()  # the values after the batches before
        for variable, value in zip(variables, values, strict=True):
            if variable._value is None:
                variable._value = value
        raise
