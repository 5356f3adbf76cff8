"""TensorFlow: variables, functions, and arithmetic on lists of tensors."""

import contextvars
import functools
import math

import tensorflow as tf

from keras_mhmcmc._backend import plain
from keras_mhmcmc._backend.keras_internals import data_of_step
from keras_mhmcmc._backend.xla import total

__all__ = [
    "LossObserver",
    "accelerated",
    "compile_function",
    "compiled_update",
    "cond",
    "dense",
    "gradient_and_more",
    "is_eager",
    "map_and_sum",
    "map_members",
    "read",
    "sum_products",
    "with_examples",
]


# From this number of weights on, XLA saves more time on a CPU than it takes to compile.
_COMPILED_WEIGHTS = 2**16
# Up to this number of members, each has a graph of its own under a gradient.
_MOST_GRAPHS = 32
_is_differentiated = contextvars.ContextVar("is_differentiated", default=False)


class LossObserver(plain.LossObserver):
    """A carrier of the training loss from `scale_loss` to `apply`.

    The two run in one graph, so the loss is kept as it is. Replicas take turns, also
    between the two: synchronized batch normalisation waits for the others.
    """

    def __init__(self):
        super().__init__()
        self._of_replicas = {}

    def observe(self, loss):
        self._of_replicas[_replica()] = tf.stop_gradient(loss)
        return loss

    def take(self, gradients):
        loss = super().take(gradients)
        own = self._of_replicas.pop(_replica(), None)
        return loss if own is None else own


def _replica():
    """Return the number of the replica that runs now, or None between replicas."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return None
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def read(variables):
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def dense(gradients, variables):
    """Return gradients as ordinary tensors: that of an `Embedding` is sparse."""
    # In a graph, that of a `Conv1D` may not know its shape.
    tensors = [tf.convert_to_tensor(gradient) for gradient in gradients]
    for tensor, variable in zip(tensors, variables, strict=True):
        tensor.set_shape(variable.shape)
    return tensors


cond = tf.cond


def _examples_of(data):
    """Return the number of examples in a mini-batch, None if it cannot be 0.

    At the end of data of unknown length, Keras makes one more step of an epoch, with
    an empty mini-batch. It has no gradient, but a sampler would add noise.
    """
    leaves = [x for x in tf.nest.flatten(data) if tf.is_tensor(x)]
    is_open = leaves and leaves[0].shape.rank and leaves[0].shape[0] is None
    return tf.shape(leaves[0])[0] if is_open else None


def with_examples(step, has_chains):
    # Chains run in a `StatelessScope`, where no branch may assign: see `ChainTrainer`.
    count = None if has_chains else _examples_of(data_of_step())
    if count is None or tf.distribute.get_strategy().num_replicas_in_sync > 1:
        step()
    else:
        tf.cond(count > 0, lambda: step() is None, lambda: True)


def compiled_update(update, variables):
    """Return `update(gradient, loss, rate)`, compiled if this saves time.

    On a CPU, Keras does not use XLA, with which the update of half a million weights
    takes half the time. But XLA compiles for seconds, longer for more tensors, and not
    what replicas share.
    """
    weights = sum(math.prod(variable.shape) for variable in variables)
    pays = weights >= max(_COMPILED_WEIGHTS, _COMPILED_WEIGHTS // 8 * len(variables))
    pays = pays and tf.distribute.get_strategy().num_replicas_in_sync == 1
    if not pays or tf.executing_eagerly() or accelerated():
        return update
    return tf.function(update, jit_compile=True, autograph=False)


def compile_function(function):
    # TensorFlow counts tracings by the code, and warned when the functions of several
    # models were traced, each once. A `partial` has no code, and is counted by itself.
    return tf.function(functools.partial(function))


def gradient_and_more(function):
    def evaluate(x, *arguments):
        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            token = _is_differentiated.set(True)
            try:
                value, more = function(x, *arguments)
            finally:
                _is_differentiated.reset(token)
        return tape.gradient(value, x), more

    return evaluate


def map_members(function, stacked, chunk):
    count = stacked[0].shape[0]
    if chunk == 1 and count <= _MOST_GRAPHS and _is_differentiated.get():
        # TensorFlow drops the gradient of the weights from a graph, not from a loop.
        outputs = [function([tensor[i] for tensor in stacked]) for i in range(count)]
        return tf.nest.map_structure(lambda *ys: tf.stack(ys), *outputs)
    if chunk == 1:
        # This graph of the first member gives the shapes of the output. TensorFlow
        # prunes it.
        first = function([tensor[0] for tensor in stacked])
        specs = tf.nest.map_structure(lambda y: tf.TensorSpec(y.shape, y.dtype), first)
        return tf.map_fn(function, stacked, fn_output_signature=specs)
    parts = [
        tf.vectorized_map(function, [tensor[i : i + chunk] for tensor in stacked])
        for i in range(0, count, chunk)
    ]
    return tf.nest.map_structure(lambda *ys: tf.concat(ys, axis=0), *parts)


def is_eager():
    """Return whether no graph is traced."""
    return tf.executing_eagerly()


def accelerated():
    return bool(tf.config.list_logical_devices("GPU"))


# How many numbers are added up at a time.
_PIECE = 2**13


def sum_products(function, *lists):
    rows = []
    for arrays in zip(*lists, strict=True):
        sums = _sums_in_pieces if _are_large(arrays) else _sums
        rows.append(sums(function, arrays))
    return total(rows)


def _are_large(arrays):
    """Return whether tensors are summed in pieces: large ones in a graph, on a CPU."""
    size = math.prod(arrays[0].shape)
    return size >= 8 * _PIECE and not tf.executing_eagerly() and not accelerated()


def _factors(function, arrays):
    return function(*map(_at_least_float32, arrays))


def _sums(function, arrays):
    return [tf.reduce_sum(x * y) for x, y in _factors(function, arrays)]


def _sums_in_pieces(function, arrays):
    """Return what `_sums` returns, in a third of the time, without memory for factors.

    From whole tensors, XLA would make all products before it adds up the first.
    """

    def piece(arrays, start, stop):
        parts = tf.nest.map_structure(lambda x: x[start:stop], arrays)
        return [x * y for x, y in _factors(function, parts)]

    @tf.function(jit_compile=True, autograph=False)
    def compiled(*arrays):
        arrays = tf.nest.map_structure(lambda x: tf.reshape(x, (-1,)), arrays)
        size = tf.nest.flatten(arrays)[0].shape[0]
        whole = size - size % _PIECE

        def add_piece(start, *sums):
            parts = tf.nest.map_structure(
                lambda x: tf.slice(x, (start,), (_PIECE,)), arrays
            )
            added = [x * y for x, y in _factors(function, parts)]
            return start + _PIECE, *(x + y for x, y in zip(sums, added, strict=True))

        _, *sums = tf.while_loop(
            lambda start, *_: start < whole,
            add_piece,
            (tf.constant(_PIECE), *piece(arrays, 0, _PIECE)),
        )
        rest = piece(arrays, whole, size)
        return [
            tf.reduce_sum(x) + tf.reduce_sum(y) for x, y in zip(sums, rest, strict=True)
        ]

    return compiled(*arrays)


def _at_least_float32(x):
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def map_and_sum(function, *arrays):
    results, pairs = function(*arrays)
    if not pairs or not _are_large(arrays):
        return results, [tf.reduce_sum(x if y is None else x * y) for x, y in pairs]

    def factors(*parts):
        pairs = function(*parts)[1]
        return [(x, tf.ones_like(x) if y is None else y) for x, y in pairs]

    return results, _sums_in_pieces(factors, arrays)
