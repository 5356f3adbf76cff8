"""JAX: the arithmetic of a step, on lists of tensors, with sums in float32."""

import jax.numpy as jnp

from keras_mhmcmc._backend.plain import Difference
from keras_mhmcmc._backend.xla import total

__all__ = ["map_and_sum", "sum_products"]


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
    return total(rows)


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


def _at_least_float32(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def map_and_sum(function, *arrays):
    """Return elementwise results of `function(*arrays)`, and sums of products.

    `function` returns a list of results and a list of pairs of tensors. The products of
    each pair are summed. In a pair None stands for 1. XLA needs one pass.
    """
    results, pairs = function(*arrays)
    return results, [jnp.sum(x if y is None else x * y) for x, y in pairs]
