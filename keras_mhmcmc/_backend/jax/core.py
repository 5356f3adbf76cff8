"""JAX: variables, functions, and arithmetic on lists of tensors."""

import jax
import jax.numpy as jnp
import jaxlib
import keras

from keras_mhmcmc._backend import plain
from keras_mhmcmc._backend.keras_internals import BuiltBeforeSteps
from keras_mhmcmc._backend.keras_internals import stored_value
from keras_mhmcmc._backend.xla import total
from keras_mhmcmc._warn import warn

__all__ = [
    "DataTrainer",
    "LossObserver",
    "StepTrainer",
    "accelerated",
    "compile_function",
    "cond",
    "gradient_and_more",
    "hold_values",
    "map_and_sum",
    "map_members",
    "read",
    "sum_products",
]


class LossObserver(plain.LossObserver):
    """A carrier of the training loss from `scale_loss` to `apply`.

    Keras differentiates a function that calls `optimizer.scale_loss(loss)`. A loss kept
    there would be a tracer of this function, which is dead when `apply` runs. So an
    identity with a custom derivative keeps the loss as its residual. The backward rule
    receives it in the outer trace, in which `apply` runs next.
    """

    def observe(self, loss):
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

    def take(self, gradients):
        loss = super().take(gradients)
        traced = [isinstance(x, jax.core.Tracer) for x in (loss, *gradients)]
        # Only the gradient was compiled, without the optimizer's step.
        is_of_another_trace = traced[0] and not any(traced[1:])
        return None if is_of_another_trace else loss


def hold_values(variables):
    """Return whether the variables can be read. A step that failed empties them."""
    values = [stored_value(variable) for variable in variables]
    return all(value is not None and not value.is_deleted() for value in values)


def read(variables):
    """Return the values of Keras variables."""
    return [variable.value for variable in variables]


def cond(condition, if_true, if_false):
    """Return `if_true()` if the scalar `condition` holds, else `if_false()`."""
    if not isinstance(condition, jax.core.Tracer):
        # Outside a trace `lax.cond` would compile both functions at each call.
        return if_true() if condition else if_false()
    return jax.lax.cond(condition, if_true, if_false)


compile_function = jax.jit


def gradient_and_more(function):
    """Return a function with a gradient, by its first argument, in place of a scalar.

    `function` returns (scalar, more), and the new function (gradient, more).
    """
    return jax.grad(function, has_aux=True)


def map_members(function, stacked, chunk):
    """Return `function(member)` of `chunk` slices of `stacked` at a time, stacked."""
    return jax.lax.map(function, stacked, batch_size=None if chunk == 1 else chunk)


def accelerated():
    """Return whether the computation runs on something faster than a CPU."""
    return jax.default_backend() != "cpu"


class DataTrainer(BuiltBeforeSteps):
    def train_step(self, state, data):
        """Train on changed data, and keep the states of the generators it drew from."""
        trainable, others, optimizer, metrics = state
        variables = [
            *self.trainable_variables,
            *self.non_trainable_variables,
            *self.metrics_variables,
        ]
        values = [*trainable, *others, *metrics]
        with keras.StatelessScope(zip(variables, values, strict=True)) as scope:
            data = self.change_data(data)
        others = [scope.get_current_value(v) for v in self.non_trainable_variables]
        return super().train_step((trainable, others, optimizer, metrics), data)


class StepTrainer(BuiltBeforeSteps):
    def train_step(self, state, data):
        variables = [
            *self.trainable_variables,
            *self.non_trainable_variables,
            *self.optimizer.variables,
            *self.metrics_variables,
        ]
        values, structure = jax.tree.flatten(state)
        with keras.StatelessScope(zip(variables, values, strict=True)) as scope:
            logs = self.own_step(data)
        values = [scope.get_current_value(variable) for variable in variables]
        return logs, jax.tree.unflatten(structure, values)


def _warn_of_wrong_sums(version):
    """Warn of jaxlib 0.10.2, whose compiled sums are wrong on a CPU."""
    if version == "0.10.2":
        warn(
            "jaxlib 0.10.2 computes wrong sums on a CPU: in `mh.sample` with N "
            "examples, the energies of all chains after the first 32768/N were wrong "
            "(github.com/jax-ml/jax/issues/39103). Install another version of jax and "
            "jaxlib, such as 0.10.1."
        )


_warn_of_wrong_sums(jaxlib.__version__)


def sum_products(function, *lists):
    """Return sums of products over lists of tensors, float32 scalars.

    `function` takes a tensor of each list, in float32 at least, and returns pairs of
    tensors. The products of each pair are summed.
    """
    rows = []
    for arrays in zip(*lists, strict=True):
        pairs = function(*map(_at_least_float32, arrays))
        rows.append([jnp.sum(x * y) for x, y in pairs])
    return total(rows)


def _at_least_float32(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def map_and_sum(function, *arrays):
    """Return elementwise results of `function(*arrays)`, and sums of products.

    `function` returns a list of results and a list of pairs of tensors. The products of
    each pair are summed. In a pair None stands for 1. XLA needs one pass.
    """
    results, pairs = function(*arrays)
    return results, [jnp.sum(x if y is None else x * y) for x, y in pairs]
