"""Mini-batches from a Poisson process: a random number of examples, drawn by weight.

Sources: Zhang and De Sa (2019), "Poisson-minibatching for Gibbs sampling with
convergence rate guarantees", section 2, for the use; Walker (1977) and Vose (1991) for
the alias method.

Example i occurs s_i times in a batch, with s_i ~ Poisson(r w_i / W) independently. So
the batch is a Poisson process of rate r, and each of its arrivals is an example, drawn
with probability w_i / W. A chain draws arrivals in blocks until the time 1 has passed:

    t <- t + log(1/u_0) / r        while t < 1
    j uniform on 0, ..., a b - 1 from u_1 and u_2; j >= N is no arrival (thinning)
    i = j if u_3 < p_j, else the alias of j

The grid a x b has at least N places, and the rate is raised by a b / N. A float32
uniform has 24 bits. Two of them choose among millions of examples without bias.

| symbol | name            | shape  | unit     |
|--------|-----------------|--------|----------|
| r      | `rate`          | (K,)   | examples |
| w_i    | `weights`       | (N,)   | any      |
| p_j    | `share`         | (N,)   | 1        |
| B      | `block_size`    | int    | examples |
| t r    | `remaining`, what is left of r | (K,) | examples |
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Density
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

# What sees a block of arrivals. Arguments: what it has gathered so far, the examples
# int32 (K, B), whether each has arrived, bool (K, B), and a uniform for each (K, B).
Visit = Callable[[Any, Tensor, Tensor, Tensor], Any]


class AliasTable(NamedTuple):
    """A table that draws i with probability w_i / W in constant time."""

    share: Array  # float32, (N,)
    alias: Array  # int32, (N,)


def alias_table(weights: Array) -> AliasTable:
    """Return the table of weights, float64 (N,), at least one of them positive."""
    size = len(weights)
    scaled = weights * (size / weights.sum())
    share, alias = np.ones(size), np.arange(size)
    small = list(np.flatnonzero(scaled < 1.0))
    large = list(np.flatnonzero(scaled >= 1.0))
    while small and large:
        low, high = small.pop(), large[-1]
        share[low], alias[low] = scaled[low], high
        scaled[high] -= 1.0 - scaled[low]
        if scaled[high] < 1.0:
            small.append(large.pop())
    return AliasTable(share.astype("float32"), alias.astype("int32"))


def visit_arrivals(
    density: Density,
    rate: Tensor,
    table: AliasTable,
    block_size: int,
    visit: Visit,
    gathered: Any,
    first_block: int = 1,
) -> Any:
    """Return what `visit` has gathered from all arrivals of a batch.

    Args:
        density: gives the noise, of the parts `first_block`, ... of the step.
        rate: expected size of the batch, finite, (K,).
        table: of the weights, as tensors.
        block_size: arrivals that are drawn and evaluated at once.
        visit: function that takes a block of arrivals.
        gathered: what `visit` starts from.
        first_block: part of the first block. A second visit that begins with the same
            part finds the same arrivals.
    """
    size = density.train_size
    rows, columns = batches.grid(size)
    remaining = rate * (rows * columns / size)

    def goes_on(block: Tensor, remaining: Tensor, gathered: Any) -> Tensor:
        return ops.any(remaining > 0.0)

    def one_block(block: Tensor, remaining: Tensor, gathered: Any) -> Any:
        uniforms = ops.unstack(density.uniforms(5, block_size, block), 5)
        times = ops.cumsum(-ops.log1p(-uniforms[0]), axis=1)
        row = ops.cast(ops.floor(uniforms[1] * rows), "int32")
        column = ops.cast(ops.floor(uniforms[2] * columns), "int32")
        place = row * columns + column
        arrived = (times < ops.expand_dims(remaining, 1)) & (place < size)
        place = ops.minimum(place, size - 1)
        share, alias = tensors.gather(list(table), place)
        index = ops.where(uniforms[3] < share, place, alias)
        gathered = visit(gathered, index, arrived, uniforms[4])
        return block + 1, remaining - times[:, -1], gathered

    state = tensors.loop_while(goes_on, one_block, (first_block, remaining, gathered))
    return state[-1]
