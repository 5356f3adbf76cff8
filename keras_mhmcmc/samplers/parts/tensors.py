"""Algebra on positions: a position is a list of tensors, one for each weight.

A scalar of rank 0 acts on one chain. A scalar of rank 1, shape (K,), belongs to K
chains: then each tensor has a leading chain axis of length K. A sum takes a scalar of
the chains as `like`, whose rank says whether it is one sum or one for each chain.
"""

import itertools
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Tensor

Tensors = Sequence[Tensor]
# Factors of products that are summed.
Pairs = list[tuple[Tensor, Any]]

# `keras.ops`, without what its wrappers cost where nothing is compiled.
ops = _backend.ops

# Of single tensors.
affine = _backend.affine  # (x, slope, constant): slope x + constant
add_product = _backend.add_product  # (x, y, z): x + y z
between = _backend.between  # (x, y, share): x + share (y - x)
wrapped_product = _backend.wrapped_product  # factor x + constant, int32, modulo 2^32
constant = _backend.constant  # numbers on the device of `like`, made once
host_value = _backend.host_value  # a numpy array, from the parts of all processes
gather = _backend.gather  # rows of each array
# Of functions.
cond, when, loop_while = _backend.cond, _backend.when, _backend.loop_while


def add_scaled(xs: Tensors, a: Tensor, ys: Tensors) -> list[Tensor]:
    """Return x + a y for each tensor."""
    if isinstance(a, float) or math.prod(a.shape) == 1:
        return _backend.add_terms(xs, (_single(a), ys))
    return [
        x + ops.cast(along_chains(a, x), x.dtype) * y
        for x, y in zip(xs, ys, strict=True)
    ]


def scaled(a: Tensor, xs: Tensors) -> list[Tensor]:
    return [ops.cast(along_chains(a, x), x.dtype) * x for x in xs]


def add_terms(xs: Tensors, *terms: tuple[Tensor, Tensors]) -> list[Tensor]:
    """Return x + a y + b z + ... for each tensor, of terms (a, ys), (b, zs), ..."""
    if all(isinstance(a, float) or math.prod(a.shape) == 1 for a, _ in terms):
        return _backend.add_terms(xs, *((_single(a), ys) for a, ys in terms))
    total = list(xs)
    for a, ys in terms:
        total = add_scaled(total, a, ys)
    return total


def pick(values: Tensor, index: Tensor) -> Tensor:
    """Return values[..., index], with an index for each row of the last axis."""
    return ops.take_along_axis(values, ops.expand_dims(index, -1), axis=-1)[..., 0]


def subtract(xs: Tensors, ys: Tensors) -> list[Tensor]:
    return [x - y for x, y in zip(xs, ys, strict=True)]


def select(condition: Tensor, xs: Tensors, ys: Tensors) -> list[Tensor]:
    """Return x where `condition` holds, else y, for each tensor or each chain."""
    if math.prod(condition.shape) == 1:
        return _backend.select(_single(condition), xs, ys)
    return [
        ops.where(along_chains(condition, x), x, y) for x, y in zip(xs, ys, strict=True)
    ]


def sum_squares(xs: Tensors, like: Tensor) -> Tensor:
    """Return the sum of squares over all tensors, float32, () or (K,) as `like` is."""
    return dot(xs, xs, like)


def dot(xs: Tensors, ys: Tensors, like: Tensor) -> Tensor:
    """Return the sum of products over all tensors, float32, () or (K,) as `like` is."""
    (total,) = sum_products(lambda x, y: [(x, y)], xs, ys, like=like)
    return total


def all_finite(xs: Tensors, like: Tensor) -> Tensor:
    """Return whether all numbers are finite, however large: bool, () or (K,)."""
    if not has_chains(like):
        return _backend.all_finite(xs)
    if xs[0].shape[0] == 1:
        return ops.reshape(_backend.all_finite(xs), (1,))
    # 0 times a number is 0, and NaN if the number is not finite.
    (zeros,) = sum_products(lambda x: [(x, 0.0 * x)], xs, like=like)
    return ops.isfinite(zeros)


def sum_products(
    function: Callable[..., Pairs], *lists: Tensors, like: Tensor
) -> list[Tensor]:
    """Return sums of products over all tensors, in one pass, () or (K,) as `like` is.

    `function` takes a float32 tensor of each list and returns pairs of tensors.
    """
    if not has_chains(like):
        return _backend.sum_products(function, *lists)
    if lists[0] and lists[0][0].shape[0] == 1:
        sums = _backend.sum_products(function, *lists)
        return [ops.reshape(total, (1,)) for total in sums]
    if len(lists[0]) == 1:
        pairs = function(*(ops.cast(xs[0], "float32") for xs in lists))
        return [ops.sum(ops.reshape(x * y, (x.shape[0], -1)), axis=1) for x, y in pairs]
    sums = 0.0
    for arrays in zip(*lists, strict=True):
        pairs = function(*(ops.cast(x, "float32") for x in arrays))
        rows = [ops.reshape(x * y, (x.shape[0], -1)) for x, y in pairs]
        sums = sums + ops.stack([ops.sum(row, axis=1) for row in rows])
    return ops.unstack(sums, len(pairs))


def map_and_sum(
    function: Callable[..., tuple[list[Tensor], Pairs]], *arrays: Tensor, like: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return elementwise results of `function(*arrays)`, and sums of products.

    `function` returns a list of results and a list of pairs of tensors, whose products
    are summed, () or (K,) as `like` is. In a pair None stands for 1.
    """
    if not has_chains(like):
        return _backend.map_and_sum(function, *arrays)
    results, pairs = function(*arrays)
    terms = [x if y is None else x * y for x, y in pairs]
    rows = [ops.reshape(term, (term.shape[0], -1)) for term in terms]
    return results, [ops.sum(row, axis=1) for row in rows]


def has_chains(scalar: Tensor) -> bool:
    return not isinstance(scalar, float) and len(scalar.shape) > 0


def size(xs: Tensors, like: Tensor) -> int:
    first = 1 if has_chains(like) else 0
    return sum(math.prod(x.shape[first:]) for x in xs)


def flat(xs: Tensors) -> Tensor:
    """Return the weights of each chain as a row, (K, d)."""
    rows = [ops.reshape(x, (x.shape[0], -1)) for x in xs]
    return rows[0] if len(rows) == 1 else ops.concatenate(rows, axis=1)


def unflat(rows: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Return rows (K, d) as tensors of these shapes, the chain axis first."""
    ends = itertools.accumulate(math.prod(shape[1:]) for shape in shapes)
    return [
        ops.reshape(rows[:, end - math.prod(shape[1:]) : end], shape)
        for shape, end in zip(shapes, ends, strict=True)
    ]


def along_chains(scalar: Tensor, tensor: Tensor) -> Tensor:
    """Return a scalar, or (K,) of them, shaped to multiply `tensor`."""
    if len(scalar.shape) == 0:
        return scalar
    return ops.reshape(scalar, (-1,) + (1,) * (len(tensor.shape) - 1))


def _single(scalar: Tensor) -> Tensor:
    """Return the scalar of a single chain, with which the algebra is faster."""
    if isinstance(scalar, float) or len(scalar.shape) == 0:
        return scalar
    return ops.reshape(scalar, ())
