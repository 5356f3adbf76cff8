"""JAX: everything the package needs that differs between frameworks."""

import jax
import jax.numpy as jnp
import keras

from keras_mhmcmc._backend.keras_internals import stored_value

__all__ = [
    "LossObserver",
    "accelerated",
    "compile_function",
    "compiled_update",
    "cond",
    "default_chunk",
    "dense",
    "donated",
    "gradient_and_more",
    "hold_values",
    "map_members",
    "read",
    "refuse_export",
    "refuse_replicas",
    "steps_if",
    "uncompiled",
    "value_and_gradient",
    "write",
    "write_copies",
]


class LossObserver:
    """Hands the training loss from `scale_loss` to `apply`, two different traces.

    Keras differentiates a function that calls `optimizer.scale_loss(loss)`, so a loss
    kept there would be a tracer of the differentiated function, dead by the time
    `apply` runs. An identity with a custom derivative keeps the loss as its residual;
    the backward rule receives that residual while `value_and_grad` pulls back, which
    happens in the outer trace, the one in which `apply` runs next.
    """

    def __init__(self):
        self._loss = None

    def observe(self, loss):
        """Returns `loss` unchanged, and keeps its value for `take`."""

        @jax.custom_vjp
        def identity(value):
            return value

        def forward(value):
            return value, value

        def backward(value, cotangent):
            self._loss = value
            return (cotangent,)

        identity.defvjp(forward, backward)
        return identity(loss)

    def keep(self, loss):
        """Keeps a value of the loss that is not part of a differentiated function."""
        self._loss = loss

    def take(self):
        """The loss of this step, or None; a loss is handed out once."""
        loss, self._loss = self._loss, None
        return loss


def refuse_replicas():
    """Raises where JAX has several processes, for which no sampler is made yet.

    In one process `keras.distribution` keeps one logical copy of everything.
    """
    count = jax.process_count()
    if count > 1:
        raise ValueError(
            "Samplers and `mh.ParallelChains` run in one process of JAX, on any "
            "number of devices, and not over several hosts. For independent chains "
            "start the processes without `keras.distribution.initialize`, each with a "
            "seed and a `directory` of its own for `mh.PosteriorSamples`. "
            f"Received: JAX with {count} processes."
        )


def refuse_export(format):
    """Nothing to refuse: Keras exports by way of TensorFlow."""


def hold_values(variables):
    """Whether the variables can be read: a step that failed leaves them empty."""
    values = [stored_value(variable) for variable in variables]
    return all(value is not None and not value.is_deleted() for value in values)


def read(variables):
    """The values of Keras variables."""
    return [variable.value for variable in variables]


def write(variables, values):
    """Assigns values made in this step."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def write_copies(variables, sources):
    """Assigns copies: a shared buffer would be donated twice in the next step."""
    for variable, source in zip(variables, sources, strict=True):
        variable.assign(jnp.copy(source.value))


def donated(variables, values):
    """`values`, for a kernel to overwrite; here XLA decides."""
    return list(values)


def dense(gradients, variables):
    """Gradients as ordinary tensors."""
    return list(gradients)


def uncompiled(function):
    """Return `function` as it is: the whole step is compiled."""
    return function


def cond(condition, if_true, if_false):
    """`if_true()` where the scalar `condition` holds, else `if_false()`."""
    if not isinstance(condition, jax.core.Tracer):
        # Outside a trace `lax.cond` would compile both functions at each call.
        return if_true() if condition else if_false()
    return jax.lax.cond(condition, if_true, if_false)


def steps_if(condition, step, variables):
    """Runs `step()`, which assigns `variables`, where `condition` holds.

    Returns False where it cannot branch, and has done nothing.
    """
    if not isinstance(condition, jax.core.Tracer):
        if condition:
            step()
        return True
    # A branch that returns what it was given would copy it, so only what is assigned
    # is returned. `cond` traces the first branch first; otherwise it would say that
    # the branches do not match.
    old = read(variables)
    assigned = []

    def run():
        with keras.StatelessScope(zip(variables, old, strict=True)) as scope:
            step()
        values = [scope.get_current_value(variable) for variable in variables]
        assigned[:] = [i for i, v in enumerate(values) if v is not old[i]]
        return [values[i] for i in assigned]

    values = jax.lax.cond(condition, run, lambda: [old[i] for i in assigned])
    write([variables[i] for i in assigned], values)
    return True


def compiled_update(update, variables):
    """`update(gradient, loss, rate)` as it is: the whole of Keras' step is compiled."""
    return update


def compile_function(function):
    """`function` of tensors, compiled."""
    return jax.jit(function)


def value_and_gradient(function):
    """(value, gradient) of a scalar function with respect to its first argument."""
    return jax.value_and_grad(function)


def gradient_and_more(function):
    """(gradient, more) of a function of (scalar, more), in its first argument."""
    return lambda *arguments: jax.grad(function, has_aux=True)(*arguments)


def map_members(function, stacked, chunk):
    """`function(member)` for each slice of `stacked`, `chunk` at a time, stacked."""
    if chunk == 1:
        return jax.lax.map(function, stacked)
    return jax.lax.map(function, stacked, batch_size=chunk)


def accelerated():
    """Whether the computation runs on something faster than a CPU."""
    return jax.default_backend() != "cpu"


def default_chunk(count):
    """How many members to evaluate side by side: on a CPU one after the other."""
    return count if accelerated() else 1
