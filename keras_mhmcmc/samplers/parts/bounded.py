"""What kernels with bounds of examples share: batch, proposals, step, check of bounds.

Sources: Zhang and De Sa (2019), "Poisson-minibatching for Gibbs sampling with
convergence rate guarantees", section 2, for the batch; Walker (1977) and Vose (1991)
for the alias method.

A step proposes theta', draws a Poisson batch of examples, and accepts theta' if
log u < log r. What the kernel's own file defines is the rate of the batch, which of its
arrivals stay, and what each of them adds to log r.

Example i occurs s_i times in a batch, with s_i ~ Poisson(r w_i / W) independently. So
the batch is a Poisson process of rate r, and each of its arrivals is an example, drawn
with probability w_i / W. A chain draws arrivals in blocks until the time 1 has passed:

    t <- t + log(1/u_0) / r        while t < 1
    j uniform on 0, ..., a b - 1 from u_1 and u_2; j >= N is no arrival (thinning)
    i = j if u_3 < p_j, else the alias of j

The grid a x b has at least N places, and the rate is raised by a b / N. A float32
uniform has 24 bits. Two of them choose among millions of examples without bias.

If a proposal follows a gradient of the batch itself, the batch is drawn before it, and
the test visits the same arrivals again: the noise is a function of the step and the
block.

A bound that does not hold makes an exact kernel wrong without a sign. So each example
that is drawn is compared with its bound. A chain whose bound was exceeded accepts
nothing from then on, and `mh.sample` raises an error with the example.
"""

import abc
import math
from collections.abc import Callable
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

# Rounding of a log-likelihood, relative to its size: a few float32 steps.
_ROUNDING = 2e-6
# Kinds of the settings that final classes have, for `base.check`.
TEST: dict[str, Any] = dict(temperature=base.POSITIVE, block_size=1)
WALK: dict[str, Any] = dict(learning_rate=base.POSITIVE, **TEST)

# What sees a block of arrivals. Arguments: what it has gathered so far, the examples
# int32 (K, B), whether each has arrived, bool (K, B), and a uniform for each (K, B).
Visit = Callable[[Any, Tensor, Tensor, Tensor], Any]


class Violation(NamedTuple):
    """The first example of each chain that exceeded its bound."""

    example: Tensor  # int32, (K,); -1: none did
    value: Tensor  # what exceeded, nats, (K,)
    bound: Tensor  # nats, (K,)


class Examples(NamedTuple):
    """A block of examples of each chain, (K, B) each."""

    here: Tensor  # log-likelihood at the position
    there: Tensor  # log-likelihood at the proposal
    limits: list[Tensor]  # the bounds
    index: Tensor  # int32
    arrived: Tensor  # bool: belongs to the batch


def checked_bounds(name: str, values: Any) -> Array:
    bounds = _validate.array(f"Argument `{name}`", values)
    if bounds.ndim != 1 or bounds.size == 0:
        raise ValueError(
            f"Argument `{name}` must have one number for each example, shape (N,). "
            f"Received: an array of shape {bounds.shape}"
        )
    is_fine = np.isfinite(bounds) & (bounds >= 0.0)
    if not is_fine.all():
        bad = int(np.argmin(is_fine))
        raise ValueError(
            f"Argument `{name}` must have finite numbers of at least 0. Received: "
            f"{bounds[bad]} for example {bad}"
        )
    if not bounds.any():
        raise ValueError(
            f"Argument `{name}` must have a number above 0: examples whose bound is 0 "
            "do not depend on the position. Received: zeros"
        )
    return bounds


def check_length(name: str, bounds: Array, train_size: int | None) -> None:
    """Raise a `ValueError` if the data has not one example for each bound."""
    if train_size is not None and len(bounds) != train_size:
        raise ValueError(
            f"Argument `{name}` must have one number for each example of `data`. "
            f"Received: {len(bounds)} numbers, and {train_size} examples"
        )


def first_violation(
    before: Violation, value: Tensor, bound: Tensor, examples: Examples, exceeds: Tensor
) -> Violation:
    """Return the first violation: the one so far, or one where `exceeds`, (K, B)."""
    marks = ops.cast(exceeds & examples.arrived, "int32")
    column = ops.argmax(marks, axis=1)
    is_new = (ops.max(marks, axis=1) > 0) & (before.example < 0)

    def chosen(new: Tensor, old: Tensor) -> Tensor:
        row = ops.take_along_axis(new, ops.expand_dims(column, 1), axis=1)[:, 0]
        return ops.where(is_new, row, old)

    seen = examples.index, value, bound
    return Violation(*map(chosen, seen, before))


def rounding(*values: Tensor) -> Tensor:
    """Return by how much rounding may change a difference of log-likelihoods."""
    return _ROUNDING * (1.0 + sum(ops.abs(value) for value in values))


def bounded_share(
    examples: Examples, bound: Tensor, before: Violation
) -> tuple[Tensor, Violation]:
    """Return (here - there) / bound in [-1, 1], and the first violation so far.

    `bound` is that of the absolute difference of log-likelihoods, (K, B).
    """
    here, there = examples.here, examples.there
    difference = here - there
    # Not `~(x <= y)`, which TensorFlow takes for `x > y`: NaN exceeds every bound.
    exceeds = ops.abs(difference) > bound + rounding(here, there)
    exceeds = exceeds | ~ops.isfinite(difference)
    violation = first_violation(before, difference, bound, examples, exceeds)
    positive = bound > 0.0
    share = ops.where(positive, difference, 0.0) / ops.where(positive, bound, 1.0)
    return ops.clip(share, -1.0, 1.0), violation


def check_violation(name: str, violation: Violation) -> None:
    """Raise a `ValueError` if a bound of the argument `name` was exceeded."""
    chains = np.flatnonzero(np.asarray(violation.example) >= 0)
    if len(chains) == 0:
        return
    chain = chains[0]
    raise ValueError(
        f"Argument `{name}` must bound every example. Widen the bounds, and run "
        "again. Received: a bound of "
        f"{violation.bound[chain]:.6g} nats for example {violation.example[chain]} at "
        f"the proposal of chain {chain}, where the value is "
        f"{violation.value[chain]:.6g} nats. {len(chains)} of "
        f"{len(violation.example)} chains have such an example; nothing was accepted "
        "after it was seen."
    )


class State(NamedTuple):
    point: base.Position
    violation: Violation


def first_state(position: base.Position) -> State:
    slots = Violation(
        base.Slot("violating_example", dtype="int32", value=-1),
        base.Slot("violating_value"),
        base.Slot("violated_bound"),
    )
    return State(position, slots)


class Judged(NamedTuple):
    """What a kernel makes of a block of examples."""

    probability: Tensor  # that an arrival stays in the batch, (K, B)
    term: Tensor  # of log r, for an arrival that stays, (K, B)
    violation: Violation
    # Derivative of the term by the log-likelihood at the proposal, (K, B). Needed for a
    # move with a `way_back` alone.
    slope: Tensor | None = None


class Gathered(NamedTuple):
    """What the examples of a batch have given so far."""

    log_ratio: Tensor  # without the prior, (K,)
    examples: Tensor  # evaluated, float32, (K,)
    violation: Violation
    gradient: (
        base.Position
    )  # of log r at the proposal, with the prior; empty if not needed


class WayBack(NamedTuple):
    """The way back of a move that follows the gradient of its batch."""

    gradient: base.Position  # of log r at the proposal, without the batch
    # Of the gradient with the batch: log q(theta' -> theta) - log q(theta -> theta').
    log_q_ratio: Callable[[base.Position], Tensor]


class Move(NamedTuple):
    """A proposal, and what its test needs."""

    proposal: base.Position
    log_ratio: Tensor  # log r without the batch, (K,)
    rate: Tensor  # r, the expected size of the batch, (K,)
    examples: Tensor  # evaluated already, float32, (K,)
    measures: Any  # for the kernel's `judge`
    first_block: int = 1  # part of the noise that the batch begins with
    way_back: WayBack | None = None  # None: the batch does not change q


def alias_table(weights: Array) -> tuple[Array, Array]:
    """Return p_j, float32, and the alias, int32, of weights, float64, (N,) each."""
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
    return share.astype("float32"), alias.astype("int32")


def visit_arrivals(
    density: base.Density,
    rate: Tensor,
    table: list[Tensor],
    block_size: int,
    visit: Visit,
    gathered: Any,
    first_block: int = 1,
) -> Any:
    """Return what `visit` has gathered from all arrivals of a batch of the size `rate`.

    A second visit that begins with the same `first_block`, a part of the noise, finds
    the same arrivals.
    """
    size = density.train_size
    rows, columns = batches.grid(size)
    remaining = rate * (rows * columns / size)  # what is left of r

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
        share, alias = tensors.gather(table, place)
        index = ops.where(uniforms[3] < share, place, alias)
        gathered = visit(gathered, index, arrived, uniforms[4])
        return block + 1, remaining - times[:, -1], gathered

    state = tensors.loop_while(goes_on, one_block, (first_block, remaining, gathered))
    return state[-1]


class BoundedTest(base.ExampleTest):
    """Abstract: a kernel whose test draws a Poisson batch of bounded examples.

    A final class is a frozen dataclass. It adds `limits`, `propose` and
    `judge`, and what it has of `shared` and `weights`.
    """

    names: ClassVar[tuple[str, ...]] = ("bounds",)  # arguments that give `limits`
    temperature: float
    block_size: int  # of examples that a chain evaluates at once

    @property
    @abc.abstractmethod
    def limits(self) -> list[Array]:
        """What `judge` reads of each example: first the bounds, float64, (N, ...)."""

    @property
    def shared(self) -> list[Array]:
        """What `propose` reads, the last of `Density.arrays`."""
        return []

    @property
    def weights(self) -> Array:
        """w_i, what examples are drawn in proportion to, float64, (N,)."""
        return self.limits[0]

    @abc.abstractmethod
    def propose(self, point: base.Position, density: base.Density) -> Move:
        """Return a proposal from `density.normals(0)`, and the rate of its batch.

        A move that draws noise of the parts 1, 2, ... sets `first_block` after them.
        """

    @abc.abstractmethod
    def judge(self, examples: Examples, measures: Any, violation: Violation) -> Judged:
        """Return what a block of examples adds to the test of a move."""

    @property
    def arrays(self) -> list[Array]:
        limits = [limit.astype("float32") for limit in self.limits]
        shared = [array.astype("float32") for array in self.shared]
        return [*limits, *alias_table(self.weights), *shared]

    def tables(self, density: base.Density) -> tuple[list[Tensor], list[Tensor]]:
        """Return `limits` and the table that draws the examples, as tensors."""
        count = len(self.limits)
        return density.arrays[:count], density.arrays[count : count + 2]

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        if batch_size is not None:
            raise ValueError(
                "Argument `batch_size` must be left out: the kernel draws mini-batches "
                "of a random size. Set `block_size` of the kernel, how many examples "
                f"are evaluated at once. Received: batch_size={batch_size}"
            )
        check_length(self.names[0], self.limits[0], train_size)
        return self

    def init(self, position: base.Position) -> State:
        return first_state(position)

    def step(
        self, state: State, density: base.Density
    ) -> tuple[State, base.Position, dict[str, Tensor]]:
        limits, table = self.tables(density)
        move = self.propose(state.point, density)
        way_back = move.way_back
        # A proposal that is out of the prior's support needs no batch.
        possible = ops.isfinite(move.log_ratio) & ops.isfinite(move.rate)

        def visit(
            gathered: Gathered, index: Tensor, arrived: Tensor, uniform: Tensor
        ) -> Gathered:
            here, there = density.log_likelihoods([state.point, move.proposal], index)
            rows = tensors.gather(limits, index)
            examples = Examples(here, there, rows, index, arrived)
            judged = self.judge(examples, move.measures, gathered.violation)
            stays = arrived & (uniform < judged.probability)
            term = ops.where(stays, judged.term, 0.0)
            gradient = gathered.gradient
            if way_back is not None:
                weights = ops.where(stays, judged.slope, 0.0)
                added = density.weighted_gradient(move.proposal, index, weights)
                gradient = tensors.add_scaled(gradient, 1.0, added)
            return Gathered(
                gathered.log_ratio + ops.sum(term, axis=1),
                gathered.examples + ops.sum(ops.cast(arrived, "float32"), axis=1),
                judged.violation,
                gradient,
            )

        nothing, rate = ops.zeros_like(move.rate), ops.where(possible, move.rate, 0.0)
        gradient = [] if way_back is None else way_back.gradient
        first = Gathered(nothing, move.examples, state.violation, gradient)
        visited = density, rate, table, self.block_size, visit
        gathered = visit_arrivals(*visited, first, move.first_block)
        log_ratio = gathered.log_ratio + move.log_ratio
        if way_back is not None:
            back = way_back.log_q_ratio(gathered.gradient)
            log_ratio = log_ratio + ops.where(possible, back, 0.0)
        uniform = density.uniforms(1, 1, 0)[0, :, 0]
        wins = possible & (ops.log(uniform) < log_ratio)
        wins = wins & (gathered.violation.example < 0)
        # Outside the prior's support log r is -infinity: a plain rejection.
        is_odd = (~possible | ops.isnan(log_ratio)) & ~(log_ratio == -math.inf)
        proposed = ops.ones_like(move.rate)
        counts = dict(accepted=wins, proposed=proposed, examples=gathered.examples)
        counts = base.counted(**counts, nonfinite=is_odd)
        point = tensors.select(wins, move.proposal, state.point)
        return State(point, gathered.violation), list(point), counts

    def check(self, state: State) -> None:
        check_violation("` or `".join(self.names), state.violation)


class Walk(NamedTuple):
    distance: Tensor  # between proposal and position, (K,)
    size: int  # number of weights of a chain


class BoundedWalk(BoundedTest):
    """Abstract: a `BoundedTest` of moves by a distance. It adds `rate`."""

    learning_rate: float

    @abc.abstractmethod
    def rate(self, walk: Walk) -> Tensor:
        """Return the expected size of a batch, (K,)."""

    def random_walk(self, point: base.Position, density: base.Density) -> Move:
        noise = density.normals(0)
        proposal = tensors.add_scaled(point, self.learning_rate, noise)
        return self.move_to(proposal, point, density)

    def move_to(
        self, proposal: base.Position, point: base.Position, density: base.Density
    ) -> Move:
        """Return a move whose proposal has the same density both ways."""
        prior = density.log_prior(proposal) - density.log_prior(point)
        moved = tensors.subtract(proposal, point)
        distance = ops.sqrt(tensors.sum_squares(moved, like=prior))
        walk = Walk(distance, tensors.size(moved, like=prior))
        zero = ops.zeros_like(prior)
        return Move(proposal, prior / self.temperature, self.rate(walk), zero, walk)
