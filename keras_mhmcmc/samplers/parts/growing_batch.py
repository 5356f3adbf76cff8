"""Mini-batches that grow until a test can decide: what three kernels share.

A step proposes theta' = theta + epsilon Z. Its test estimates the mean of
l_i = log p(x_i|theta') - log p(x_i|theta) from a batch without replacement. The batch
grows by a block of B examples at a time, until the kernel's own rule says that it is
large enough, or until it is all of the data. With n of N examples,

    (1)  lbar = 1/n sum_i l_i
    (2)  s^2  = 1/(n-1) sum_i (l_i - lbar)^2
    (3)  v    = s^2/n (1 - n/N), an unbiased estimate of the variance of lbar

The sums run over l_i - c, with c the mean of the first block: float32 would lose the
variance of numbers with a large mean. All chains evaluate a block together. A chain
whose test has decided adds nothing more.

A proposal outside the prior's support, or with an example of likelihood 0 in the batch,
is rejected, and a position with such an example is left for any other proposal. An
example of likelihood 0 outside the batch is not seen, so the likelihoods should be
positive everywhere. A proposal whose prior or likelihood is NaN or +infinity is
rejected and counted.
"""

import abc
import math
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Self

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.bounded import Examples
from keras_mhmcmc.samplers.parts.tensors import ops

# Kinds of the settings that all final classes have, for `base.check`.
WALK: dict[str, Any] = dict(
    learning_rate=base.POSITIVE, temperature=base.POSITIVE, block_size=2
)


class Batch(NamedTuple):
    """What the examples of a growing batch have shown so far."""

    count: Tensor  # n, examples, float32, (K,)
    centre: Tensor  # c, nats, (K,)
    total: Tensor  # of l_i - c, n (lbar - c), nats, (K,)
    squares: Tensor  # sum of (l_i - c)^2, nats^2, (K,)
    extra: Any  # what the kernel adds up besides


class Move(NamedTuple):
    """A proposal, as the test sees it before it has seen an example."""

    prior: Tensor  # log p(theta') - log p(theta), nats, (K,)
    distance: Tensor  # |theta' - theta|, weights, (K,)
    uniforms: list[Tensor]  # the kernel's own, (K,) each


def mean(batch: Batch) -> Tensor:
    """Return lbar of (1), nats, (K,)."""
    return batch.centre + batch.total / ops.maximum(batch.count, 1.0)


def spread(batch: Batch) -> Tensor:
    """Return s^2 of (2), nats^2, (K,)."""
    count = ops.maximum(batch.count, 1.0)
    around = batch.squares - batch.total * batch.total / count
    return ops.maximum(around, 0.0) / ops.maximum(batch.count - 1.0, 1.0)


def variance(batch: Batch, train_size: int) -> Tensor:
    """Return v of (3), nats^2, (K,)."""
    left = ops.maximum(1.0 - batch.count / train_size, 0.0)
    return spread(batch) / ops.maximum(batch.count, 1.0) * left


class State(NamedTuple):
    """Where the chains are."""

    point: base.Position


class GrowingWalk(base.ExampleTest):
    """Abstract: a random walk whose test reads a batch that grows until it can decide.

    A final class is a frozen dataclass with the fields below. Its state is a named
    tuple with the field `point`.
    """

    num_uniforms: ClassVar[int] = 1  # that the test of a chain and step needs
    learning_rate: float
    temperature: float
    block_size: int  # B
    train_size: int | None

    @property
    def limits(self) -> list[Array]:
        """Bounds of the examples, (N,) each: the first of `arrays`."""
        return []

    def init(self, position: base.Position) -> Any:
        return State(position)

    def begin(self, state: Any, move: Move) -> Any:
        """Return `Batch.extra` before the first block."""
        return ()

    def add(self, batch: Batch, move: Move, examples: Examples) -> Any:
        """Return `Batch.extra` with a block that all other fields of `batch` have."""
        return batch.extra

    @abc.abstractmethod
    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        """Return whether the batch with this block, from 0, is large enough, (K,)."""

    @abc.abstractmethod
    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        """Return the decision on a batch that is large enough, bool, (K,)."""

    def next_state(self, point: base.Position, batch: Batch) -> Any:
        """Return the state after the decision."""
        return State(point)

    @property
    def num_blocks(self) -> int:
        """Number of blocks that make all of the data."""
        return -(-(self.train_size or 1) // self.block_size)

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        if batch_size is not None:
            raise ValueError(
                "Argument `batch_size` must be left out: the mini-batch of the kernel "
                "grows until its test can decide. Set `block_size` of the kernel, by "
                f"how many examples it grows. Received: batch_size={batch_size}"
            )
        size = train_size or 1
        return base.bound(self, train_size=size, block_size=min(self.block_size, size))

    def step(
        self, state: Any, density: base.Density
    ) -> tuple[Any, base.Position, dict[str, Tensor]]:
        """Propose, let the batch grow, and accept or reject."""
        own, rounds = self.num_uniforms, batches.num_rounds(density.train_size)
        uniforms = density.uniforms(own + rounds, 1, 0)[:, :, 0]
        noise = density.normals(0)
        proposal = tensors.add_scaled(state.point, self.learning_rate, noise)
        prior = density.log_prior(proposal) - density.log_prior(state.point)
        moved = tensors.subtract(proposal, state.point)
        distance = ops.sqrt(tensors.sum_squares(moved, like=prior))
        move = Move(prior, distance, ops.unstack(uniforms[:own], own))
        possible = ops.isfinite(prior)
        zero = ops.zeros_like(distance)
        batch = Batch(zero, zero, zero, zero, self.begin(state, move))
        positions = [state.point, proposal]
        batch = self._grown(batch, move, possible, positions, uniforms[own:], density)
        wins, is_odd = verdict(batch, prior, self.accepts(batch, move, density))
        proposed = ops.ones_like(distance)
        counts = dict(accepted=wins, proposed=proposed, examples=batch.count)
        counts = base.counted(**counts, nonfinite=is_odd)
        point = tensors.select(wins, proposal, state.point)
        return self.next_state(point, batch), list(point), counts

    def _grown(
        self,
        batch: Batch,
        move: Move,
        is_open: Tensor,
        positions: list[base.Position],
        keys: Tensor,
        density: base.Density,
    ) -> Batch:
        """Return the batch with as many blocks as each chain that `is_open` needs.

        `keys` are uniforms that draw the order of the examples, (rounds, K).
        """
        size, block_size = density.train_size, self.block_size

        def goes_on(block: Tensor, is_open: Tensor, batch: Batch) -> Tensor:
            return ops.any(is_open)

        def one_block(block: Tensor, is_open: Tensor, batch: Batch) -> Any:
            places = block * block_size + ops.arange(block_size, dtype="int32")
            order = batches.permuted(keys, size, ops.minimum(places, size - 1))
            arrived = ops.expand_dims(places < size, 0) & ops.expand_dims(is_open, 1)
            here, there = density.log_likelihoods(positions, order)
            rows = tensors.gather(density.arrays[: len(self.limits)], order)
            examples = Examples(here, there, rows, order, arrived)
            batch = with_block(batch, examples)
            batch = batch._replace(extra=self.add(batch, move, examples))
            is_open = is_open & ops.isfinite(batch.total)
            is_open = is_open & ~self.is_decided(batch, move, block, density)
            return block + 1, is_open & ((block + 1) * block_size < size), batch

        return tensors.loop_while(goes_on, one_block, (0, is_open, batch))[-1]


def verdict(batch: Batch, prior: Tensor, accepts: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether the proposal wins, and whether its density is NaN or +infinity.

    `accepts` is the decision of the kernel, which holds for finite numbers.
    """
    possible, likely = ops.isfinite(prior), ops.isfinite(batch.total)
    leaves = batch.total == math.inf  # a position of density 0
    wins = possible & (leaves | (likely & accepts))
    # At -infinity the target is 0: a plain rejection.
    is_zero = (prior == -math.inf) | (batch.total == -math.inf)
    return wins, ~(possible & (likely | leaves)) & ~is_zero


def with_block(batch: Batch, examples: Examples) -> Batch:
    """Return a batch with a block of examples in all fields but `extra`.

    The block of a single chain may have the shape (B,), and the batch the shape ().
    """
    arrived = examples.arrived
    difference = examples.there - examples.here
    # A likelihood of 0 here: the position is left, even if it is 0 there, too.
    difference = ops.where(examples.here == -math.inf, math.inf, difference)
    difference = ops.where(examples.there == math.inf, math.nan, difference)
    difference = ops.where(arrived, difference, 0.0)
    number = ops.sum(ops.cast(arrived, "float32"), axis=-1)
    first = ops.sum(difference, axis=-1) / ops.maximum(number, 1.0)
    first = ops.where(ops.isfinite(first), first, 0.0)
    centre = ops.where(batch.count > 0.0, batch.centre, first)
    around = centred(difference, centre, arrived)
    return batch._replace(
        count=batch.count + number,
        centre=centre,
        total=batch.total + ops.sum(around, axis=-1),
        squares=batch.squares + ops.sum(around * around, axis=-1),
    )


def centred(difference: Tensor, centre: Tensor, arrived: Tensor) -> Tensor:
    """Return l_i - c of a block, and 0 for what is not in the batch, (K, B)."""
    return ops.where(arrived, difference - ops.expand_dims(centre, -1), 0.0)
