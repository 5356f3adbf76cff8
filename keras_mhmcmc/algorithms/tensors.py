"""Algebra on positions: a position is a list of tensors, one for each weight.

A scalar of rank 0 acts on one chain. A scalar of rank 1, shape (K,), belongs to K
chains: then each tensor has a leading chain axis of length K, and `sum_squares` with
`chains=True` gives one sum for each chain.
"""

import math

from keras_mhmcmc import _backend

# `keras.ops`, without what its wrappers cost where nothing is compiled.
ops = _backend.ops


def add_scaled(xs, a, ys):
    """x + a y for each tensor."""
    if isinstance(a, float) or math.prod(a.shape) == 1:
        return _backend.add_scaled(xs, _single(a), ys)
    return [
        x + ops.cast(along_chains(a, x), x.dtype) * y
        for x, y in zip(xs, ys, strict=True)
    ]


def add_terms(xs, *terms):
    """x + a y + b z + ... for each tensor; `terms` are pairs (a, ys), (b, zs), ..."""
    if all(isinstance(a, float) or math.prod(a.shape) == 1 for a, _ in terms):
        return _backend.add_terms(xs, *((_single(a), ys) for a, ys in terms))
    for a, ys in terms:
        xs = add_scaled(xs, a, ys)
    return xs


def subtract(xs, ys):
    """x - y for each tensor."""
    return [x - y for x, y in zip(xs, ys, strict=True)]


def select(condition, xs, ys):
    """x where `condition` holds, else y, for each tensor (or each chain of it)."""
    if math.prod(condition.shape) == 1:
        return _backend.select(_single(condition), xs, ys)
    return [
        ops.where(along_chains(condition, x), x, y) for x, y in zip(xs, ys, strict=True)
    ]


def sum_squares(xs, chains=False):
    """Sum of squares over all tensors: a float32 scalar, or (K,) with `chains`."""
    return dot(xs, xs, chains)


def dot(xs, ys, chains=False):
    """Sum of products over all tensors: a float32 scalar, or (K,) with `chains`."""
    (total,) = sum_products(lambda x, y: [(x, y)], xs, ys, chains=chains)
    return total


def all_finite(xs, chains=False):
    """Whether all numbers are finite, however large: a bool, or (K,) with `chains`."""
    if not chains:
        return _backend.all_finite(xs)
    if xs[0].shape[0] == 1:
        return ops.reshape(_backend.all_finite(xs), (1,))
    # 0 times a number is 0, and NaN where it is not finite.
    (zeros,) = sum_products(lambda x: [(x, 0.0 * x)], xs, chains=True)
    return ops.isfinite(zeros)


def lazy_difference(xs, ys, chains=False):
    """x - y for each tensor, for `sum_products` alone, which then needs less memory."""
    return subtract(xs, ys) if chains else _backend.lazy_difference(xs, ys)


def sum_products(function, *lists, chains=False):
    """Sums of products over all tensors, in one pass: (), or (K,) with `chains`.

    `function` takes a float32 tensor of each list and returns pairs of tensors.
    """
    if not chains:
        return _backend.sum_products(function, *lists)
    if lists[0] and lists[0][0].shape[0] == 1:
        sums = _backend.sum_products(function, *lists)
        return [ops.reshape(total, (1,)) for total in sums]
    sums = 0.0
    for arrays in zip(*lists, strict=True):
        pairs = function(*(ops.cast(x, "float32") for x in arrays))
        rows = [ops.reshape(x * y, (x.shape[0], -1)) for x, y in pairs]
        sums = sums + ops.stack([ops.sum(row, axis=1) for row in rows])
    return ops.unstack(sums, len(pairs))


def map_and_sum(function, *arrays, chains=False):
    """Elementwise results of `function(*arrays)`, and sums of products of two.

    `function` returns a list of results and one of pairs of tensors, whose products are
    summed, with None for 1: a scalar each, or (K,) with `chains`.
    """
    if not chains:
        return _backend.map_and_sum(function, *arrays)
    results, pairs = function(*arrays)
    terms = [x if y is None else x * y for x, y in pairs]
    rows = [ops.reshape(term, (term.shape[0], -1)) for term in terms]
    return results, [ops.sum(row, axis=1) for row in rows]


def affine(x, slope, constant):
    """slope x + constant, of one tensor."""
    return _backend.affine(x, slope, constant)


def sigmoid_of_affine(x, slope, constant):
    """sigmoid(slope x + constant), of one tensor."""
    return _backend.sigmoid_of_affine(x, slope, constant)


def add_product(x, y, z):
    """x + y z, of single tensors."""
    return _backend.add_product(x, y, z)


def between(x, y, share):
    """x + share (y - x), of one tensor."""
    return _backend.between(x, y, share)


def constant(values, dtype, like):
    """A tuple of numbers, or a range, as a tensor where `like` is; made once."""
    return _backend.constant(values, dtype, like)


def pick(values, index):
    """values[..., index], with an index for each row of the last axis."""
    return _backend.pick(values, index)


def size(xs, chains=False):
    """Number of weights of one chain, a Python integer."""
    return sum(math.prod(x.shape[1:] if chains else x.shape) for x in xs)


def along_chains(scalar, tensor):
    """A scalar, or (K,) of them, shaped so that it multiplies `tensor`."""
    if len(scalar.shape) == 0:
        return scalar
    return ops.reshape(scalar, (-1,) + (1,) * (len(tensor.shape) - 1))


def _single(scalar):
    """The scalar of a single chain, with which the algebra is faster."""
    if isinstance(scalar, float) or len(scalar.shape) == 0:
        return scalar
    return ops.reshape(scalar, ())
