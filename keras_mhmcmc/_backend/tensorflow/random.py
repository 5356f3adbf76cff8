"""TensorFlow: standard normals and uniforms from (seed, step count).

What is small is drawn at once, by Philox. That makes the bits of all numbers before
their normals, three times the size of the weights. A large tensor's normals are a
function of the place of a number instead, which XLA makes where it adds them, in one
pass over the weights and without any memory.
"""

import functools
import math

import tensorflow as tf

from keras_mhmcmc._backend.threefry import threefry

__all__ = ["SEED_DTYPE", "NoiseStream", "draw", "draw_from"]

SEED_DTYPE = "int64"

# Numbers of a tensor from which on it is drawn alone: each is a program of its own.
_LARGE = 2**16


class NoiseStream:
    """Draws that depend on (seed, step count) alone; `state` holds these two."""

    def __init__(self, state):
        self._state = state

    def draw(self, tensors, uniforms):
        """Standard normals shaped like `tensors`, and a vector of `uniforms`."""
        state = tf.convert_to_tensor(self._state.value)
        self._state.assign(state + tf.constant([0, 1], state.dtype))
        return draw_from(state, tensors, uniforms)


def draw(seed, step, shapes, uniforms):
    """Normals of these shapes, and uniforms, that depend on (seed, step) alone."""
    state = tf.stack([tf.cast(seed, "int64"), tf.cast(step, "int64")])
    like = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    normals, flat = draw_from(state, like, math.prod(uniforms))
    return normals, tf.reshape(flat, uniforms)


def draw_from(state, tensors, uniforms):
    """Standard normals shaped like `tensors`, and a vector of `uniforms`."""
    small = [tensor for tensor in tensors if not _is_large(tensor)]
    parts, uniform = _at_once(state, small, uniforms)
    parts = iter(parts)
    normals = [
        _placed(state, tf.constant(number), tuple(tensor.shape))
        if _is_large(tensor)
        else next(parts)
        for number, tensor in enumerate(tensors)
    ]
    return [
        tf.cast(tf.reshape(normal, tensor.shape), tensor.dtype)
        for normal, tensor in zip(normals, tensors, strict=True)
    ], uniform


def _is_large(tensor):
    is_double = tensor.dtype == tf.float64
    return _LARGE <= math.prod(tensor.shape) < 2**31 and not is_double


def _at_once(state, tensors, uniforms):
    """Normals as vectors, and uniforms."""
    sizes = [math.prod(tensor.shape) for tensor in tensors]
    is_double = any(tensor.dtype == tf.float64 for tensor in tensors)
    integers = tf.int64 if is_double else tf.int32
    count = uniforms + sum(sizes)
    # Padded, since XLA takes twice as long for an odd number of Philox' blocks of four.
    shape = (count + (-count % 64 if count >= 64 else 0),)
    # Integers, since TensorFlow makes other fractions of them than XLA does.
    flat = tf.random.stateless_uniform(
        shape, state, minval=None, maxval=None, dtype=integers, alg="philox"
    )
    uniform = _leading_bits(flat[:uniforms], 24) / 2.0**24 + 0.5
    normals = _normals(flat[uniforms:count], 53 if is_double else 24)
    return tf.split(normals, sizes) if sizes else [], uniform


def _leading_bits(integers, bits):
    """The first bits of signed integers, as floats with that many of them."""
    kept = tf.bitwise.right_shift(integers, 8 * integers.dtype.size - bits)
    return tf.cast(kept, tf.float32 if bits <= 24 else tf.float64)


def _normals(integers, bits):
    """Standard normals from signed integers, of as many bits as a fraction has."""
    # Half a step makes it symmetric. The inverse error function is, under XLA on a CPU,
    # twice as fast as `stateless_normal`.
    centred = (_leading_bits(integers, bits) + 0.5) / 2.0 ** (bits - 1)
    # Outside XLA it is computed from 1 + x, which is exact below 0 alone: above, the
    # largest number gives infinity, and its neighbours lose digits.
    below = tf.math.erfinv(-tf.abs(centred))
    return -math.sqrt(2.0) * tf.sign(centred) * below


@tf.function(jit_compile=True, autograph=False)
def _placed(state, number, shape):
    """Normals of this shape, for the tensor of this number, float32."""
    seed, step = tf.unstack(tf.cast(state, tf.uint32))
    counter = tf.cast(number, tf.uint32), _word(0)
    key = _threefry((seed, step), counter)
    # A place is a row and a column, since XLA keeps a `range` as a constant.
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


_threefry = functools.partial(threefry, word=_word, rotate_left=_rotate_left)
