"""TensorFlow: everything the package needs that differs between frameworks."""

import math

import tensorflow as tf

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

# Weights of a model from which on XLA makes up on a CPU for the time it compiles.
_COMPILED_WEIGHTS = 2**16


class LossObserver:
    """Hands the training loss from `scale_loss` to `apply`: one graph, so as it is."""

    def __init__(self):
        self._loss = None

    def observe(self, loss):
        """Returns `loss` unchanged, and keeps its value for `take`."""
        self._loss = tf.stop_gradient(loss)
        return loss

    def keep(self, loss):
        """Keeps a value of the loss that is not part of a differentiated function."""
        self._loss = loss

    def take(self):
        """The loss of this step, or None; a loss is handed out once."""
        loss, self._loss = self._loss, None
        return loss


def refuse_replicas():
    """Every replica would move the one shared chain with its own noise."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            "A sampler moves one chain, and under `tf.distribute` each replica would "
            "move it with its own noise. Train on one device, or on the JAX backend "
            "with `keras.distribution.DataParallel`. "
            f"Received: a strategy with {replicas} replicas."
        )


def refuse_export(format):
    """Nothing to refuse: Keras exports everything."""


def hold_values(variables):
    """Whether the variables can be read: TensorFlow's always can."""
    return True


def read(variables):
    """The values of Keras variables."""
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def write(variables, values):
    """Assigns values made in this step."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def write_copies(variables, sources):
    """Assigns copies: TensorFlow's assignment never shares a buffer that is written."""
    write(variables, read(sources))


def donated(variables, values):
    """`values`, for a kernel to overwrite; nothing is overwritten here."""
    return list(values)


def dense(gradients, variables):
    """Gradients as ordinary tensors (an Embedding's are sparse)."""
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def uncompiled(function):
    """Return `function` as it is: the whole step is compiled."""
    return function


def cond(condition, if_true, if_false):
    """`if_true()` where the scalar `condition` holds, else `if_false()`."""
    return tf.cond(condition, if_true, if_false)


def steps_if(condition, step, variables):
    """Runs `step()`, which assigns `variables`, where `condition` holds.

    Returns False where it does not branch, and has done nothing: XLA makes copies for
    a branch, which cost a sixth of a step, and a selection costs nothing.
    """
    if not tf.executing_eagerly():
        return False
    if condition:
        step()
    return True


def compiled_update(update, variables):
    """`update(gradient, loss, rate)`, which assigns `variables`, compiled if it pays.

    Keras leaves a CPU without XLA, with which the update of half a million weights
    takes half the time; but XLA compiles for seconds, and for longer the more tensors.
    """
    weights = sum(math.prod(variable.shape) for variable in variables)
    pays = weights >= max(_COMPILED_WEIGHTS, _COMPILED_WEIGHTS // 8 * len(variables))
    if not pays or tf.executing_eagerly() or accelerated():
        return update
    return tf.function(update, jit_compile=True, autograph=False)


def compile_function(function):
    """`function` of tensors, compiled."""
    return tf.function(function)


def value_and_gradient(function):
    """(value, gradient) of a scalar function with respect to its first argument."""

    def evaluate(x, *arguments):
        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x, *arguments)
        return value, tape.gradient(value, x)

    return evaluate


def gradient_and_more(function):
    """(gradient, more) of a function of (scalar, more), in its first argument."""

    def evaluate(x, *arguments):
        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value, more = function(x, *arguments)
        return tape.gradient(value, x), more

    return evaluate


def map_members(function, stacked, chunk):
    """`function(member)` for each slice of `stacked`, `chunk` at a time, stacked."""
    if chunk == 1:
        # The first member's graph is built for its output's shapes, and then pruned.
        first = function([tensor[0] for tensor in stacked])
        specs = tf.nest.map_structure(lambda y: tf.TensorSpec(y.shape, y.dtype), first)
        return tf.map_fn(function, stacked, fn_output_signature=specs)
    parts = [
        tf.vectorized_map(function, [tensor[i : i + chunk] for tensor in stacked])
        for i in range(0, stacked[0].shape[0], chunk)
    ]
    return tf.nest.map_structure(lambda *ys: tf.concat(ys, axis=0), *parts)


def accelerated():
    """Whether the computation runs on something faster than a CPU."""
    return bool(tf.config.list_logical_devices("GPU"))


def default_chunk(count):
    """How many members to evaluate side by side: on a CPU one after the other."""
    return count if accelerated() else 1
