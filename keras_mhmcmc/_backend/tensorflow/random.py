"""TensorFlow: standard normals and uniforms from (seed, step count).

Philox draws the noise of small tensors, Threefry that of large ones.
"""

import functools
import math

import tensorflow as tf

from keras_mhmcmc._backend import xla

__all__ = ["NoiseStream", "draw"]


def draw(seed, step, shapes, uniforms):
    state = tf.stack([tf.cast(seed, "int64"), tf.cast(step, "int64")])
    like = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    normals, flat = draw_from(state, like, math.prod(uniforms))
    return normals, tf.reshape(flat, uniforms)


def draw_from(state, tensors, uniforms):
    """Return normals shaped like `tensors`, and uniforms; `state` is (seed, step)."""
    return xla.normals_like(
        tensors,
        lambda small: _at_once(state, small, uniforms),
        lambda number, x: _placed(state, tf.constant(number), tuple(x.shape)),
    )


NoiseStream = functools.partial(xla.NoiseStream, draw_from)


def _at_once(state, tensors, uniforms):
    sizes = [math.prod(tensor.shape) for tensor in tensors]
    is_double = any(tensor.dtype == tf.float64 for tensor in tensors)
    integers = tf.int64 if is_double else tf.int32
    count = uniforms + sum(sizes)
    # The count is padded. Philox makes blocks of four numbers, and XLA takes twice as
    # long for an odd number of blocks.
    shape = (count + (-count % 64 if count >= 64 else 0),)
    # Draw integers: TensorFlow makes other fractions of them than XLA does.
    flat = tf.random.stateless_uniform(
        shape, state, minval=None, maxval=None, dtype=integers, alg="philox"
    )
    uniform = _leading_bits(flat[:uniforms], 24) / 2.0**24 + 0.5
    normals = _normals(flat[uniforms:count], 53 if is_double else 24)
    return tf.split(normals, sizes) if sizes else [], uniform


def _leading_bits(integers, bits):
    """Return the first `bits` bits of signed integers, as floats that hold them all."""
    kept = tf.bitwise.right_shift(integers, 8 * integers.dtype.size - bits)
    return tf.cast(kept, tf.float32 if bits <= 24 else tf.float64)


def _normals(integers, bits):
    """Return normals from integers, for floats with so many bits in their fraction."""
    # Half a step makes the numbers symmetric about 0. Under XLA on a CPU, the inverse
    # error function is twice as fast as `stateless_normal`.
    centred = (_leading_bits(integers, bits) + 0.5) / 2.0 ** (bits - 1)
    # Outside XLA, `erfinv(x)` is computed from 1 + x, which is exact for x < 0 only. At
    # x > 0, the largest number gives infinity, and its neighbours lose digits.
    below = tf.math.erfinv(-tf.abs(centred))
    return -math.sqrt(2.0) * tf.sign(centred) * below


@tf.function(jit_compile=True, autograph=False)
def _placed(state, number, shape):
    seed, step = tf.unstack(tf.cast(state, tf.uint32))
    counter = tf.cast(number, tf.uint32), _word(0)
    key = _threefry((seed, step), counter)
    # A place is a row and a column. XLA keeps a `range` as a constant, and a range of
    # all places would be as large as the tensor.
    size = math.prod(shape)
    columns = next(i for i in range(2**12, 0, -1) if size % i == 0)
    rows = tf.bitcast(tf.range(size // columns), tf.uint32)
    columns = tf.bitcast(tf.range(columns), tf.uint32)
    bits, _ = _threefry(key, (rows[:, None], columns[None, :]))
    return tf.reshape(_normals(tf.bitcast(bits, tf.int32), 24), shape)


def _word(x):
    return tf.constant(x, tf.uint32)


def _rotate_left(x, bits):
    left = tf.bitwise.left_shift(x, _word(bits))
    return left | tf.bitwise.right_shift(x, _word(32 - bits))


_threefry = functools.partial(xla.threefry, word=_word, rotate_left=_rotate_left)
