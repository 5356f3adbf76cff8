"""JAX: variables, functions, and arithmetic on lists of tensors."""

import jax
import jax.numpy as jnp
import jaxlib
import keras
import numpy as np
from jax.experimental import multihost_utils
from keras import ops

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
    "from_first_process",
    "gradient_and_more",
    "hold_values",
    "host_value",
    "is_first_process",
    "is_spread",
    "map_and_sum",
    "map_members",
    "of_processes",
    "read",
    "refuse_replicas",
    "refuse_strategy",
    "sum_products",
]


class LossObserver(plain.LossObserver):
    """A carrier of the training loss from `scale_loss` to `apply`.

    Keras differentiates the first, and its tracers are dead when `apply` runs. So an
    identity keeps the loss as its residual, which the backward rule gets in the trace
    of `apply`.
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


# One chain on several devices, of one process or of several, which make the same steps
# and call functions that wait for the others in the same order.


def refuse_replicas(name):
    """Raise a `ValueError` if there are several processes."""
    count = jax.process_count()
    if count > 1:
        raise ValueError(
            f"`{name}` runs in one process of JAX, on any number of devices, "
            "and not over several processes. Start the processes without "
            "`keras.distribution.initialize`, each with a seed and a `directory` of "
            "its own for `mh.PosteriorSamples`, and load all directories together: "
            f"`mh.PosteriorSamples.load([...])`. Received: JAX with {count} processes."
        )


def refuse_strategy(variables):
    """Raise a `ValueError` if each of several processes would train by itself."""
    count = jax.process_count()
    if count > 1 and not any(is_spread(variable) for variable in variables):
        raise ValueError(
            "The model's variables must be spread over all processes of JAX: call "
            "`keras.distribution.set_distribution(keras.distribution.DataParallel())` "
            "before you make the model. For independent chains start the processes "
            "without `keras.distribution.initialize`, each with a seed and a "
            "`directory` of its own for `mh.PosteriorSamples`. "
            f"Received: JAX with {count} processes, and no distribution."
        )


def is_spread(variable):
    value = stored_value(variable)
    return isinstance(value, jax.Array) and not value.is_fully_addressable


def is_first_process():
    return jax.process_index() == 0


def host_value(value):
    """Return a numpy array. If other processes hold parts of it, wait for them."""
    array = ops.convert_to_tensor(value)
    if not array.is_fully_addressable and not array.is_fully_replicated:
        array = multihost_utils.process_allgather(array, tiled=True)
    return ops.convert_to_numpy(array)


def of_processes(number):
    if jax.process_count() == 1:
        return [number]
    gathered = multihost_utils.process_allgather(np.array([number], "uint32"))
    return [int(each) for each in np.ravel(gathered)]


def from_first_process(text):
    if jax.process_count() == 1:
        return text
    data = np.frombuffer(text.encode(), "uint8")
    # The processes agree on the length first: all arrays need the same shape.
    length = of_processes(len(data))[0]
    sent = np.zeros(length, "uint8")
    if is_first_process():
        sent[:] = data
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(sent))).decode()
