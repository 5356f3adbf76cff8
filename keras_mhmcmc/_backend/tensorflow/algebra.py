"""TensorFlow: arithmetic of a step, on lists of tensors, sums in float32."""

import math
from typing import Any
from typing import NamedTuple

import tensorflow as tf

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
]


# Numbers that are added up at a time.
_PIECE = 2**13


def add_scaled(xs, a, ys):
    """x + a y for lists of tensors and a scalar a."""
    return [x + tf.cast(a, x.dtype) * y for x, y in zip(xs, ys, strict=True)]


def add_terms(xs, *terms):
    """x + a y + b z + ... for lists of tensors, and terms (scalar, tensors)."""
    for a, ys in terms:
        xs = add_scaled(xs, a, ys)
    return xs


def constant(values, dtype, like):
    """A tuple of numbers, or a range, as a tensor."""
    return tf.constant(list(values), dtype)


def select(condition, xs, ys):
    """xs where the scalar `condition` holds, else ys."""
    return [tf.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]


def lazy_difference(xs, ys):
    """x - y for lists of tensors, for `sum_products` alone."""
    return [_Difference(x, y) for x, y in zip(xs, ys, strict=True)]


class _Difference(NamedTuple):
    """x - y, that is not made yet."""

    x: Any
    y: Any


def pick(values, index):
    """values[..., index], with an index for each row of the last axis."""
    return tf.gather(values, index, batch_dims=index.shape.rank)


def sum_products(function, *lists):
    """Sums of products over lists of tensors, float32 scalars.

    `function` takes a tensor of each list, in float32 at least, and returns pairs.
    """
    rows = []
    for arrays in zip(*lists, strict=True):
        sums = _sums_in_pieces if _are_large(arrays) else _sums
        rows.append(sums(function, arrays))
    return _total(rows)


def _are_large(arrays):
    """Whether sums of these are made in pieces: of a graph, on a CPU."""
    size = math.prod(tf.nest.flatten(arrays)[0].shape)
    return size >= 8 * _PIECE and not tf.executing_eagerly() and not accelerated()


def _factors(function, arrays):
    made = [x.x - x.y if isinstance(x, _Difference) else x for x in arrays]
    return function(*map(_at_least_float32, made))


def _sums(function, arrays):
    """The sums of one tensor of each list."""
    return [tf.reduce_sum(x * y) for x, y in _factors(function, arrays)]


def _sums_in_pieces(function, arrays):
    """The same, in a third of the time on a CPU, and without memory for the factors.

    XLA makes products of whole tensors before it adds up the first.
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
    """Whether all numbers are finite."""
    # 0 times a number is 0, and NaN where it is not finite: a sum, as fast as others.
    # This zero is no constant, or the graph's optimizer makes 0 * (x * x) of the
    # product, which is NaN where the square is too large.
    first = tf.reshape(xs[0], [-1])[0]
    zero = tf.cast(tf.minimum(tf.abs(first), tf.zeros_like(first)), tf.float32)
    total = sum_products(lambda x: [(x, tf.cast(zero, x.dtype) * x)], xs)[0]
    return tf.math.is_finite(total)


def _total(rows):
    """The sums over rows of scalars, float32.

    Where there are many, by a loop: XLA would repeat additions in everything that uses
    their sum, which made a step of a network of 65 tensors compile for a minute.
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
    """Elementwise results of `function(*arrays)`, and sums of products of two.

    `function` returns a list of results and one of pairs, in which None stands for 1.
    """
    results, pairs = function(*arrays)
    if not pairs or not _are_large(arrays):
        return results, [tf.reduce_sum(x if y is None else x * y) for x, y in pairs]

    def factors(*parts):
        pairs = function(*parts)[1]
        return [(x, tf.ones_like(x) if y is None else y) for x, y in pairs]

    return results, _sums_in_pieces(factors, arrays)


def affine(x, slope, constant):
    """slope x + constant."""
    return slope * x + constant


def sigmoid_of_affine(x, slope, constant):
    """sigmoid(slope x + constant)."""
    return tf.sigmoid(slope * x + constant)


def add_product(x, y, z):
    """x + y z."""
    return x + y * z


def between(x, y, share):
    """x + share (y - x)."""
    return x + share * (y - x)
