"""TensorFlow: many chains of one model, functions of chains, and the compiled loop."""

import tensorflow as tf

from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.keras_internals import writable_optimizer
from keras_mhmcmc._backend.tensorflow.core import _examples_of
from keras_mhmcmc._backend.tensorflow.core import accelerated
from keras_mhmcmc._backend.tensorflow.random import draw_from
from keras_mhmcmc._backend.xla import count_cores
from keras_mhmcmc._backend.xla import counted

__all__ = [
    "ChainTrainer",
    "ChainsNoise",
    "can_compile",
    "chain_gradients",
    "chain_outputs",
    "compile_chains",
    "compiles",
    "count_loop_cores",
    "gather",
    "loop_while",
    "map_chains",
    "over_chains",
    "when",
    "with_arrays",
    "writable_optimizer",
]


class ChainsNoise:
    def __init__(self, state):
        self._state = state

    def draw(self, tensors, uniforms):
        state = counted(self._state)
        if state.shape[0] == 1:
            normals, uniform = draw_from(state[0], [x[0] for x in tensors], uniforms)
            return [normal[None] for normal in normals], uniform[None]
        specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in tensors]
        return tf.map_fn(
            lambda row: draw_from(row, specs, uniforms),
            state,
            fn_output_signature=(specs, tf.TensorSpec((uniforms,), tf.float32)),
        )


def over_chains(step, chains, shared, data, chunk):
    count = chains[0].shape[0]
    if chunk > 1 or count == 1:
        return step(chains, shared, data)

    def body(index, rows, _):
        single = [x[index][None] for x in chains]
        single, new_shared = step(single, shared, data)
        # Do not write to `chains`: while rows of a tensor are read, a write copies all
        # of the tensor.
        rows = [
            written.write(index, tf.cast(y[0], x.dtype))
            for written, x, y in zip(rows, chains, single, strict=True)
        ]
        return index + 1, rows, new_shared

    rows = [tf.TensorArray(x.dtype, count, element_shape=x.shape[1:]) for x in chains]
    _, rows, shared = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (tf.constant(0), rows, list(shared)),
        maximum_iterations=count,
    )
    return [written.stack() for written in rows], shared


def chain_gradients(function, trainable, rest):
    def single(values):
        trainable, rest = values
        with tf.GradientTape() as tape:
            tape.watch(trainable)
            loss, auxiliary = function(trainable, rest)
        gradient = tape.gradient(loss, trainable, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(g) for g in gradient], auxiliary

    return chain_outputs(single, (list(trainable), rest))


def chain_outputs(function, values):
    if tf.nest.flatten(values)[0].shape[0] == 1:
        outputs = function(tf.nest.map_structure(lambda x: x[0], values))
        return tf.nest.map_structure(lambda x: tf.expand_dims(x, 0), outputs)
    return tf.vectorized_map(function, values, fallback_to_while_loop=True)


class ChainTrainer(TrainerHooks):
    def fit(self, *args, **options):
        """Train all chains, or say that a step failed because it is vectorised."""
        try:
            return super().fit(*args, **options)
        except tf.errors.OpError as error:
            if "/pfor/" not in error.message:  # the name of what is vectorised
                raise
            raise ValueError(
                'Argument `strategy` must be "loop" for this model, which has a layer '
                "that cannot be vectorised. Received: "
                f'strategy="{self.strategy}", and the error '
                f"{error.message.strip().splitlines()[-1][:200]}"
            ) from error

    def _step(self, data, training):
        variables = self._step_variables(training)
        values = [tf.convert_to_tensor(variable.value) for variable in variables]
        logs, new = self._run_step(values, data, training)
        count = _examples_of(data)
        if count is not None:
            new = [tf.where(count > 0, *pair) for pair in zip(new, values, strict=True)]
        for variable, value in zip(variables, new, strict=True):
            variable.assign(value)
        return logs


def gather(arrays, index):
    return [tf.gather(array, index) for array in arrays]


def when(condition, function, values, at_first=False):
    condition = tf.convert_to_tensor(condition)
    return tf.cond(condition, lambda: function(values), lambda: values)


def loop_while(condition, body, values, at_most=None):
    return tf.while_loop(condition, body, values)


with_arrays = tf.autograph.experimental.do_not_convert


def map_chains(function, constants, differentiate, auxiliary=False):
    def one(elements):
        position, extra = elements
        if not differentiate:
            return function(position, extra, constants), []
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(position)
            values = function(position, extra, constants)
        value = values[0] if auxiliary else values
        zeros = tf.UnconnectedGradients.ZERO
        gradient = tape.gradient(value, position, unconnected_gradients=zeros)
        # A gradient of gathered rows may be sparse.
        return values, [tf.convert_to_tensor(part) for part in gradient]

    def evaluate(position, extra):
        # The gradient is taken inside the map. Outside, XLA needs the number of the
        # step at compile time, and compiles again in each call of the loop.
        values, gradient = tf.vectorized_map(one, (position, extra))
        if not auxiliary:
            return values, gradient
        value, others = values
        return value, gradient, others

    return evaluate


def compiles(jit_compile, is_faster):
    """Return whether XLA compiles the loop: by default where it makes it faster."""
    return is_faster if jit_compile == "auto" else jit_compile


def can_compile():
    return True


def count_loop_cores(fuse):
    return 1 if accelerated() or not fuse else count_cores()


def compile_chains(step, noise, records, capacity, fuse=True):
    shapes = []

    @tf.function(jit_compile=fuse, autograph=False)
    def run(state, constants, seed, start, steps, first, every):
        like, counts_like = shapes
        buffers = [tf.zeros((capacity + 1, *x.shape), x.dtype) for x in like]
        counts = [tf.zeros(x.shape, x.dtype) for x in counts_like]

        def body(number, state, buffers, counts):
            draws = noise(seed, start + number)
            state, record, new_counts = step(state, constants, draws, start + number)
            since = number - first
            due = (since >= 0) & (since % every == 0)
            # A record that is not due goes to a slot that nobody reads.
            slot = tf.where(due, since // every, capacity)
            buffers = [
                tf.tensor_scatter_nd_update(buffer, [[slot]], [x])
                for buffer, x in zip(buffers, record, strict=True)
            ]
            counts = [total + x for total, x in zip(counts, new_counts, strict=True)]
            return number + 1, state, buffers, counts

        _, state, buffers, counts = tf.while_loop(
            lambda number, *_: number < steps,
            body,
            (tf.constant(0), state, buffers, counts),
        )
        return state, buffers, counts

    def call(state, constants, seed, *integers):
        if not shapes:
            # Trace `records` outside `run`. Inside, XLA would take the state for a
            # constant, and compile again for every value of the state.
            graph = tf.function(records, autograph=False)
            traced = graph.get_concrete_function(state, constants)
            shapes.extend(traced.structured_outputs)
        integers = [tf.constant(integer, tf.int32) for integer in integers]
        return run(state, constants, tf.constant(seed, tf.int64), *integers)

    return call
