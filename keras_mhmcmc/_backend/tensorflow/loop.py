"""TensorFlow: functions along a chain axis, and the compiled loop of many steps."""

import tensorflow as tf

__all__ = [
    "can_compile",
    "compile_chains",
    "compiles",
    "gather",
    "loop_while",
    "map_chains",
    "when",
    "with_arrays",
]


def gather(arrays, index):
    """Return rows of each array."""
    return [tf.gather(array, index) for array in arrays]


def when(condition, function, values, at_first=False):
    """Return `function(values)` if the scalar `condition` holds, else `values`."""
    condition = tf.convert_to_tensor(condition)
    return tf.cond(condition, lambda: function(values), lambda: values)


def loop_while(condition, body, values, at_most=None):
    """Return `values` after `body(*values)`, as long as `condition(*values)`."""
    return tf.while_loop(condition, body, values)


with_arrays = tf.autograph.experimental.do_not_convert


def map_chains(function, constants, differentiate, auxiliary=False):
    """Return a function that evaluates all chains, with gradients."""

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
    """Return True: XLA is part of TensorFlow."""
    return True


def compile_chains(step, noise, records, capacity, fuse=True):
    """Return a compiled loop of many steps, which keeps the records that are due."""
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
