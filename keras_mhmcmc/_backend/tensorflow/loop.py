"""TensorFlow: draws without variables, functions of chains, and the compiled loop."""

import tensorflow as tf

__all__ = ["compile_chains", "gather", "map_chains", "when", "with_arrays"]


def gather(arrays, index):
    """Rows of each array."""
    return [tf.gather(array, index) for array in arrays]


def when(condition, function, values):
    """`function(values)` where the scalar `condition` holds, else `values`."""
    condition = tf.convert_to_tensor(condition)
    return tf.cond(condition, lambda: function(values), lambda: values)


def with_arrays(function):
    """A user's function of tensors, which may have numpy's arrays for constants."""
    return tf.autograph.experimental.do_not_convert(function)


def map_chains(function, constants, differentiate, auxiliary=False):
    """`function(position, extra, constants)` for each chain, with its gradient.

    Returns a function of lists of tensors with a chain axis, which gives the values,
    shape (K,), and the gradients with respect to the position, or an empty list. With
    `auxiliary`, `function` gives a value and a list of other numbers, and a third
    result is the list of these, each of shape (K,).
    """

    def one(elements):
        return function(*elements, constants)

    def evaluate(position, extra):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(position if differentiate else [])
            values = tf.vectorized_map(one, (position, extra))
        values, others = values if auxiliary else (values, None)
        gradient = []
        if differentiate:
            zeros = tf.UnconnectedGradients.ZERO
            gradient = tape.gradient(values, position, unconnected_gradients=zeros)
            # A gradient of gathered rows may be sparse, and forgets its shape.
            gradient = [
                tf.reshape(tf.convert_to_tensor(part), x.shape)
                for part, x in zip(gradient, position, strict=True)
            ]
        return (values, gradient, others) if auxiliary else (values, gradient)

    return evaluate


def compile_chains(step, noise, records, capacity, fuse=True):
    """A loop of many steps, compiled once, that keeps what is due.

    Args:
        step: function of (state, constants, draws, number of the step), which gives
            the next state, a list of tensors to record and a list of counts.
        noise: function of (seed, number of the step), the step's draws.
        records: function of a state and constants, abstractly: the shapes of what
            `step` records and counts.
        capacity: how many records one call can keep.
        fuse: whether TensorFlow compiles with XLA; the others do not read it.

    Returns:
        A function of (state, constants, seed, start, steps, first, every), integers of
        which only the values change from call to call. It runs `steps` steps, the
        first of which has the number `start`; records the step that comes after
        `first` others, and then each `every`-th; and gives the state, the records with
        a first axis, and the sums of the counts over all steps.
    """

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
            # What is not due is written to a slot that nobody reads.
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
            # A trace of its own: inside `run`, XLA would take the state for a constant
            # and compile anew for every value of it.
            graph = tf.function(records, autograph=False)
            traced = graph.get_concrete_function(state, constants)
            shapes.extend(traced.structured_outputs)
        integers = [tf.constant(integer, tf.int32) for integer in integers]
        return run(state, constants, tf.constant(seed, tf.int64), *integers)

    return call
