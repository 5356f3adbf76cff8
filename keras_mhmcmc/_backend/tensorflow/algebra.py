"""TensorFlow: the arithmetic of a step, on lists of tensors, with sums in float32."""

import math

import tensorflow as tf

from keras_mhmcmc._backend.arithmetic import Difference
from keras_mhmcmc._backend.arithmetic import add_product
from keras_mhmcmc._backend.arithmetic import affine
from keras_mhmcmc._backend.arithmetic import between
from keras_mhmcmc._backend.arithmetic import lazy_difference
from keras_mhmcmc._backend.tensorflow.core import accelerated

__all__ = [
    "add_product",
    "add_scaled",
    "add_terms",
    "affine",
    "all_finite",
    "between",
    "constant",
    "lazy_difference",
    "map_and_sum",
    "pick",
    "sum_products",
    "select",
    "sigmoid_of_affine",
    "wrapped_product",
]


# How many numbers are added up at a time.
_PIECE = 2**13


def add_scaled(xs, a, ys):
    """Return x + a y for lists of tensors and a scalar a."""
    return [x + tf.cast(a, x.dtype) * y for x, y in zip(xs, ys, strict=True)]


def add_terms(xs, *terms):
    """Return x + a y + b z + ... for lists of tensors and terms (a, ys), (b, zs)."""
    for a, ys in terms:
        xs = add_scaled(xs, a, ys)
    return xs


def constant(values, dtype, like):
    """Return a tuple of numbers, or a range, as a tensor."""
    return tf.constant(list(values), dtype)


def select(condition, xs, ys):
    """Return xs if the scalar `condition` holds, else ys."""
    return [tf.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]


def pick(values, index):
    """Return values[..., index], with an index for each row of the last axis."""
    return tf.gather(values, index, batch_dims=index.shape.rank)


def sum_products(function, *lists):
    """Return sums of products over lists of tensors, float32 scalars.

    `function` takes a tensor of each list, in float32 at least, and returns pairs of
    tensors. The products of each pair are summed.
    """
    rows = []
    for arrays in zip(*lists, strict=True):
        sums = _sums_in_pieces if _are_large(arrays) else _sums
        rows.append(sums(function, arrays))
    return _total(rows)


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


def _total(rows):
    """Return the sums over rows of scalars, float32.

    If there are many rows, a loop adds them up. Without it, XLA would repeat the
    additions in everything that uses their sum. A step of a network of 65 tensors then
    compiled for a minute.
    """
    if len(rows) <= 8:
        sums = [tf.add_n(column) for column in zip(*rows, strict=True)]
        return [tf.cast(total, tf.float32) for total in sums]
    stacked = tf.stack([tf.stack(row) for row in rows])
    _, total = tf.while_loop(
        lambda i, _: i < len(rows),
        lambda i, total: (i + 1, total + stacked[i]),
        (tf.constant(1), stacked[0]),
    )
    return tf.unstack(tf.cast(total, tf.float32), num=len(rows[0]))


def _at_least_float32(x):
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def map_and_sum(function, *arrays):
    """Return elementwise results of `function(*arrays)`, and sums of products.

    `function` returns a list of results and a list of pairs of tensors. The products of
    each pair are summed. In a pair None stands for 1.
    """
    results, pairs = function(*arrays)
    if not pairs or not _are_large(arrays):
        return results, [tf.reduce_sum(x if y is None else x * y) for x, y in pairs]

    def factors(*parts):
        pairs = function(*parts)[1]
        return [(x, tf.ones_like(x) if y is None else y) for x, y in pairs]

    return results, _sums_in_pieces(factors, arrays)


def sigmoid_of_affine(x, slope, constant):
    """Return sigmoid(slope x + constant)."""
    return tf.sigmoid(slope * x + constant)


def wrapped_product(x, factor, constant=None):
    """Return factor x + constant of int32 tensors, modulo 2^32."""
    return x * factor if constant is None else x * factor + constant
