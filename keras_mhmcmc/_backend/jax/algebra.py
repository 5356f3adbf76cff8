"""JAX: the arithmetic of a step, on lists of tensors, with sums in float32."""

import jax
import jax.numpy as jnp

from keras_mhmcmc._backend.arithmetic import Difference
from keras_mhmcmc._backend.arithmetic import add_product
from keras_mhmcmc._backend.arithmetic import affine
from keras_mhmcmc._backend.arithmetic import between
from keras_mhmcmc._backend.arithmetic import lazy_difference
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
    "wrapped_product",
]


def add_scaled(xs, a, ys):
    """Return x + a y for lists of tensors and a scalar a."""
    return [x + jnp.asarray(a).astype(x.dtype) * y for x, y in zip(xs, ys, strict=True)]


def add_terms(xs, *terms):
    """Return x + a y + b z + ... for lists of tensors and terms (a, ys), (b, zs)."""
    for a, ys in terms:
        xs = add_scaled(xs, a, ys)
    return xs


def constant(values, dtype, like):
    """Return a tuple of numbers, or a range, as a tensor."""
    return jnp.array(list(values), dtype)


def select(condition, xs, ys):
    """Return xs if the scalar `condition` holds, else ys."""
    return [jnp.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]


def pick(values, index):
    """Return values[..., index], with an index for each row of the last axis."""
    return jnp.take_along_axis(values, index[..., None], axis=-1)[..., 0]


def sum_products(function, *lists):
    """Return sums of products over lists of tensors, float32 scalars.

    `function` takes a tensor of each list, in float32 at least, and returns pairs of
    tensors. The products of each pair are summed.
    """
    rows = []
    for arrays in zip(*lists, strict=True):
        pairs = function(*_made(arrays, 0))
        if any(isinstance(x, Difference) for x in arrays):
            # Each sum computes the differences again, which takes no memory.
            pairs = [function(*_made(arrays, i))[i] for i in range(len(pairs))]
        rows.append([jnp.sum(x * y) for x, y in pairs])
    return _total(rows)


def _made(arrays, index):
    """Return arrays in float32 at least, with differences for the sum `index`."""
    made = []
    for x in arrays:
        if isinstance(x, Difference):
            # XLA would compute one difference for all sums, and keep it in memory. This
            # zero prevents that: XLA does not know its value, and each sum has its own.
            zero = jnp.where(jnp.isnan(x.y.ravel()[0]), index, 0)
            x = x.x - (x.y + zero.astype(x.y.dtype))
        made.append(_at_least_float32(x))
    return made


def all_finite(xs):
    """Return whether all numbers are finite."""
    # The sum of squares is four times as fast. It cannot decide for numbers above 1e19,
    # whose squares are infinite.
    squares = sum_products(lambda x: [(x, x)], xs)[0]
    return cond(
        jnp.isfinite(squares),
        lambda: jnp.array(True),
        lambda: jnp.stack([jnp.isfinite(x).all() for x in xs]).all(),
    )


def _total(rows):
    """Return the sums over rows of scalars, float32.

    If there are many rows, a loop adds them up. Without it, XLA would repeat the
    additions in everything that uses their sum. A step of a network of 65 tensors then
    compiled for a minute.
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
    """Return elementwise results of `function(*arrays)`, and sums of products.

    `function` returns a list of results and a list of pairs of tensors. The products of
    each pair are summed. In a pair None stands for 1. XLA does all of this in
    one pass.
    """
    results, pairs = function(*arrays)
    return results, [jnp.sum(x if y is None else x * y) for x, y in pairs]


def sigmoid_of_affine(x, slope, constant):
    """Return sigmoid(slope x + constant)."""
    return jax.nn.sigmoid(slope * x + constant)


def wrapped_product(x, factor, constant=None):
    """Return factor x + constant of int32 tensors, modulo 2^32."""
    return x * factor if constant is None else x * factor + constant
