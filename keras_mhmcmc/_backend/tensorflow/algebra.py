"""TensorFlow: the arithmetic of a step, on lists of tensors, with sums in float32."""

import math

import tensorflow as tf

from keras_mhmcmc._backend.plain import Difference
from keras_mhmcmc._backend.tensorflow.core import accelerated
from keras_mhmcmc._backend.xla import total

__all__ = ["all_finite", "map_and_sum", "sum_products"]

# How many numbers are added up at a time.
_PIECE = 2**13


def sum_products(function, *lists):
    """Return sums of products over lists of tensors, float32 scalars."""
    rows = []
    for arrays in zip(*lists, strict=True):
        sums = _sums_in_pieces if _are_large(arrays) else _sums
        rows.append(sums(function, arrays))
    return total(rows)


def _are_large(arrays):
    """Return whether tensors are summed in pieces: large ones in a graph, on a CPU."""
    size = math.prod(tf.nest.flatten(arrays)[0].shape)
    return size >= 8 * _PIECE and not tf.executing_eagerly() and not accelerated()


def _factors(function, arrays):
    made = [x.x - x.y if isinstance(x, Difference) else x for x in arrays]
    return function(*map(_at_least_float32, made))


def _sums(function, arrays):
    """Return the sums of products for one tensor of each list."""
    return [tf.reduce_sum(x * y) for x, y in _factors(function, arrays)]


def _sums_in_pieces(function, arrays):
    """Return what `_sums` returns, summed in pieces.

    On a CPU this takes a third of the time, and no memory for the factors. From whole
    tensors, XLA would make all products before it adds up the first.
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


def all_finite(xs):
    """Return whether all numbers are finite."""
    # 0 times a number is 0, and NaN if the number is not finite. So one sum decides, as
    # fast as other sums. This zero is not a constant: with a constant, the graph's
    # optimizer turns the product into 0 * (x * x), which is NaN if the square is too
    # large.
    first = tf.reshape(xs[0], [-1])[0]
    zero = tf.cast(tf.minimum(tf.abs(first), tf.zeros_like(first)), tf.float32)
    total = sum_products(lambda x: [(x, tf.cast(zero, x.dtype) * x)], xs)[0]
    return tf.math.is_finite(total)


def _at_least_float32(x):
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def map_and_sum(function, *arrays):
    """Return elementwise results of `function(*arrays)`, and sums of products."""
    results, pairs = function(*arrays)
    if not pairs or not _are_large(arrays):
        return results, [tf.reduce_sum(x if y is None else x * y) for x, y in pairs]

    def factors(*parts):
        pairs = function(*parts)[1]
        return [(x, tf.ones_like(x) if y is None else y) for x, y in pairs]

    return results, _sums_in_pieces(factors, arrays)
