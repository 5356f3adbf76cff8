"""JAX: arithmetic of a step, on lists of tensors, sums in float32."""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from keras_mhmcmc._backend.jax.core import cond

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


def add_scaled(xs, a, ys):
    """x + a y for lists of tensors and a scalar a."""
    return [x + jnp.asarray(a).astype(x.dtype) * y for x, y in zip(xs, ys, strict=True)]


def add_terms(xs, *terms):
    """x + a y + b z + ... for lists of tensors, and terms (scalar, tensors)."""
    for a, ys in terms:
        xs = add_scaled(xs, a, ys)
    return xs


def constant(values, dtype, like):
    """A tuple of numbers, or a range, as a tensor."""
    return jnp.array(list(values), dtype)


def select(condition, xs, ys):
    """xs where the scalar `condition` holds, else ys."""
    return [jnp.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]


class _Difference(NamedTuple):
    """x - y, that is not made yet."""

    x: Any
    y: Any


def lazy_difference(xs, ys):
    """x - y for lists of tensors, for `sum_products` alone."""
    return [_Difference(x, y) for x, y in zip(xs, ys, strict=True)]


def pick(values, index):
    """values[..., index], with an index for each row of the last axis."""
    return jnp.take_along_axis(values, index[..., None], axis=-1)[..., 0]


def sum_products(function, *lists):
    """Sums of products over lists of tensors, float32 scalars.

    `function` takes a tensor of each list, in float32 at least, and returns pairs.
    """
    rows = []
    for arrays in zip(*lists, strict=True):
        pairs = function(*_made(arrays, 0))
        if any(isinstance(x, _Difference) for x in arrays):
            # Each sum makes the differences anew, which takes no memory.
            pairs = [function(*_made(arrays, i))[i] for i in range(len(pairs))]
        rows.append([jnp.sum(x * y) for x, y in pairs])
    return _total(rows)


def _made(arrays, index):
    """Arrays in float32 at least, with differences for the sum of this index."""
    made = []
    for x in arrays:
        if isinstance(x, _Difference):
            # XLA would make one difference for all sums, and keep it. This zero, of
            # which it knows no value, is another one in each sum.
            zero = jnp.where(jnp.isnan(x.y.ravel()[0]), index, 0)
            x = x.x - (x.y + zero.astype(x.y.dtype))
        made.append(_at_least_float32(x))
    return made


def all_finite(xs):
    """Whether all numbers are finite."""
    # A sum of squares is four times as fast, and tells nothing of numbers above 1e19.
    squares = sum_products(lambda x: [(x, x)], xs)[0]
    return cond(
        jnp.isfinite(squares),
        lambda: jnp.array(True),
        lambda: jnp.stack([jnp.isfinite(x).all() for x in xs]).all(),
    )


def _total(rows):
    """The sums over rows of scalars, float32.

    Where there are many, by a loop: XLA would repeat additions in everything that uses
    their sum, which made a step of a network of 65 tensors compile for a minute.
    """
    if len(rows) <= 8:
        return [sum(column).astype(jnp.float32) for column in zip(*rows, strict=True)]
    stacked = jnp.stack([jnp.stack(row) for row in rows])
    total = jax.lax.fori_loop(
        1, len(rows), lambda i, total: total + stacked[i], stacked[0]
    )
    return list(total.astype(jnp.float32))


def _at_least_float32(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def map_and_sum(function, *arrays):
    """Elementwise results of `function(*arrays)`, and sums of products of two.

    `function` returns a list of results and one of pairs, in which None stands for 1;
    XLA makes one pass of it.
    """
    results, pairs = function(*arrays)
    return results, [jnp.sum(x if y is None else x * y) for x, y in pairs]


def affine(x, slope, constant):
    """slope x + constant."""
    return slope * x + constant


def sigmoid_of_affine(x, slope, constant):
    """sigmoid(slope x + constant)."""
    return jax.nn.sigmoid(slope * x + constant)


def add_product(x, y, z):
    """x + y z."""
    return x + y * z


def between(x, y, share):
    """x + share (y - x)."""
    return x + share * (y - x)
