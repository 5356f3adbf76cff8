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
    "on_each_replica",
    "over_replicas",
    "read",
    "refuse_replicas",
    "refuse_strategy",
    "sum_products",
    "with_examples",
]


# From this number of weights on, XLA saves more time on a CPU than it takes to compile.
_COMPILED_WEIGHTS = 2**16
# Up to this number of members, each has a graph of its own under a gradient.
_MOST_GRAPHS = 32
_is_differentiated = contextvars.ContextVar("is_differentiated", default=False)


class LossObserver(plain.LossObserver):
    """A carrier of the training loss from `scale_loss` to `apply`, in one graph.

    Replicas take turns, also between the two.
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
    """Return the number of examples in a mini-batch, None if it cannot be 0."""
    # At the end of data of unknown length, Keras makes a step with an empty mini-batch.
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


# One chain that all replicas of a `tf.distribute` strategy move.


def refuse_replicas(name):
    strategy = tf.distribute.get_strategy()
    if _are_several(strategy):
        raise ValueError(
            f"`{name}` must be made outside of `strategy.scope()`: it runs on one "
            "device. For chains on several devices, start a process for each, with a "
            "seed and a `directory` of its own for `mh.PosteriorSamples`. Received: "
            f"{_described(strategy)}."
        )


def refuse_strategy(variables):
    """Raise a `ValueError` for a strategy of several devices that is not mirrored."""
    strategy = tf.distribute.get_strategy()
    made = [strategy.extended.variable_created_in_scope(v.value) for v in variables]
    if not all(made):
        path = variables[made.index(False)].path
        raise ValueError(
            "A sampler and its model must be made, and the model compiled, inside of "
            f"`with strategy.scope():`. Received: the variable {path}, made without "
            f"{_described(strategy)}."
        )
    is_mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    if is_mirrored or not _are_several(strategy):
        return
    raise ValueError(
        "A sampler runs on several devices of TensorFlow with "
        "`tf.distribute.MirroredStrategy` alone. For independent chains, start several "
        "processes without a strategy, each with a seed and a `directory` of its own "
        f"for `mh.PosteriorSamples`. Received: {_described(strategy)}."
    )


def _are_several(strategy):
    is_asynchronous = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    return is_asynchronous or strategy.num_replicas_in_sync > 1


def _described(strategy):
    replicas = strategy.num_replicas_in_sync
    return f"{type(strategy).__name__} with {replicas} replicas"


def over_replicas(gradients, loss, changes):
    # Keras divides the loss of each replica by their number: both are sums.
    context = _context_of_several()
    if context is None:
        return gradients, loss
    losses = [] if loss is None else [loss]
    total = tf.distribute.ReduceOp.SUM
    sums = context.all_reduce(total, [*gradients, *losses])
    count = len(gradients)
    return sums[:count], None if loss is None else sums[count]


def on_each_replica(update, weights):
    """Return `update(gradient, loss, rate)`, which updates the copies of all replicas.

    It runs as the update of the first of `weights`. There, TensorFlow reads and writes
    the copies of one replica, whatever the variable.
    """
    context = _context_of_several()
    if context is None:
        return update

    def update_all(strategy, *arguments):
        def update_one(_, *arguments):
            update(*arguments)

        first = weights[0].value
        strategy.extended.update(first, update_one, args=arguments, group=False)

    return lambda *arguments: context.merge_call(update_all, args=arguments)


def _context_of_several():
    """Return the context of this replica, or None if there are no other replicas."""
    context = tf.distribute.get_replica_context()
    is_alone = context is None or context.num_replicas_in_sync == 1
    return None if is_alone else context
