"""What kernels with a bound for each example share: the check of the bounds, the test.

A bound that does not hold makes an exact kernel wrong without a sign. So each example
that is drawn is compared with its bound. A chain whose bound was exceeded accepts
nothing from then on, and `mh.sample` raises an error with the example.
"""

import math
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.base import Position
from keras_mhmcmc.algorithms.base import Slot
from keras_mhmcmc.algorithms.tensors import ops
from keras_mhmcmc.algorithms.transition import Density
from keras_mhmcmc.algorithms.transition import Report

# Rounding of a log-likelihood, relative to its size: a few float32 steps.
_ROUNDING = 2e-6

COUNTS = ("accepted", "proposed", "examples", "nonfinite")


class Violation(NamedTuple):
    """The first example of each chain that exceeded its bound."""

    example: Tensor  # int32, (K,); -1: none did
    value: Tensor  # what exceeded, nats, (K,)
    bound: Tensor  # nats, (K,)


def no_violation() -> Violation:
    """Return the slots of a violation that has not happened."""
    return Violation(
        Slot("violating_example", dtype="int32", value=-1),
        Slot("violating_value"),
        Slot("violated_bound"),
    )


def checked_bounds(name: str, values: Any) -> Array:
    """Return bounds as an array, float64, (N,), or raise a `ValueError`."""
    bounds = _validate.array(f"Argument `{name}`", values)
    if bounds.ndim != 1 or bounds.size == 0:
        raise ValueError(
            f"Argument `{name}` must have one number for each example, shape (N,). "
            f"Received: an array of shape {bounds.shape}"
        )
    if not np.isfinite(bounds).all() or (bounds < 0.0).any():
        bad = int(np.argmin(np.isfinite(bounds) & (bounds >= 0.0)))
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


def check_size(name: str, bounds: Array, train_size: int | None) -> None:
    """Raise a `ValueError` unless there is one bound for each example."""
    if len(bounds) != train_size:
        raise ValueError(
            f"Argument `{name}` must have one number for each example of `data`. "
            f"Received: {len(bounds)} numbers, and {train_size} examples"
        )


def check_no_batch_size(batch_size: int | None) -> None:
    """Raise a `ValueError` if the user has asked for batches of a fixed size."""
    if batch_size is not None:
        raise ValueError(
            "Argument `batch_size` must be left out: the kernel draws mini-batches of "
            "a random size. Its own `block_size` says how many examples are evaluated "
            f"at once. Received: batch_size={batch_size}"
        )


def first_violation(
    before: Violation, value: Tensor, bound: Tensor, index: Tensor, exceeds: Tensor
) -> Violation:
    """Return the violation, with an example of this block if it is the first.

    Args:
        before: of the blocks and steps so far.
        value: what must not exceed the bound, (K, B).
        bound: of the value, (K, B).
        index: examples, (K, B).
        exceeds: bool, whether an example of the batch exceeds its bound, (K, B).
    """
    marks = ops.cast(exceeds, "int32")
    column = ops.argmax(marks, axis=1)
    is_new = (ops.max(marks, axis=1) > 0) & (before.example < 0)

    def chosen(new: Tensor, old: Tensor) -> Tensor:
        row = ops.take_along_axis(new, ops.expand_dims(column, 1), axis=1)[:, 0]
        return ops.where(is_new, row, old)

    return Violation(
        chosen(index, before.example),
        chosen(value, before.value),
        chosen(bound, before.bound),
    )


def rounding(*values: Tensor) -> Tensor:
    """Return by how much rounding may change a difference of log-likelihoods."""
    return _ROUNDING * (1.0 + sum(ops.abs(value) for value in values))


def bounded_share(
    here: Tensor,
    there: Tensor,
    bound: Tensor,
    index: Tensor,
    arrived: Tensor,
    before: Violation,
) -> tuple[Tensor, Violation]:
    """Return (here - there) / bound in [-1, 1], and the first violation so far.

    Args:
        here: log-likelihoods at the position, (K, B).
        there: log-likelihoods at the proposal, (K, B).
        bound: of the absolute difference, (K, B).
        index: examples, (K, B).
        arrived: bool, whether an example belongs to the batch, (K, B).
        before: the violation so far.
    """
    difference = here - there
    # Not `~(x <= y)`, which TensorFlow takes for `x > y`: NaN exceeds every bound.
    exceeds = ops.abs(difference) > bound + rounding(here, there)
    exceeds = exceeds | ~ops.isfinite(difference)
    violation = first_violation(before, difference, bound, index, arrived & exceeds)
    positive = bound > 0.0
    share = ops.where(positive, difference, 0.0) / ops.where(positive, bound, 1.0)
    return ops.clip(share, -1.0, 1.0), violation


def decided(
    position: Position,
    proposal: Position,
    log_ratio: Tensor,
    possible: Tensor,
    examples: Tensor,
    violation: Violation,
    density: Density,
) -> tuple[Position, Report]:
    """Return the position after the test, and what the step reports.

    Args:
        position: of the chains.
        proposal: of the chains.
        log_ratio: log r, (K,).
        possible: bool, whether prior and rate were finite, (K,).
        examples: how many were evaluated, float32, (K,).
        violation: after the step.
        density: gives the uniform of the test, part 0.
    """
    uniform = density.uniforms(1, 1, 0)[0, :, 0]
    wins = possible & (ops.log(uniform) < log_ratio) & (violation.example < 0)
    return tensors.select(wins, proposal, position), Report(
        {
            "accepted": ops.cast(wins, "float32"),
            "proposed": ops.ones_like(examples),
            "examples": examples,
            # Outside the prior's support log r is -infinity: a plain rejection.
            "nonfinite": ops.cast(~possible & ~(log_ratio == -math.inf), "float32"),
        }
    )


def check_violation(name: str, violation: Violation) -> None:
    """Raise a `ValueError` if a bound of the argument `name` was exceeded.

    Args:
        name: of the argument.
        violation: of all chains, numpy arrays.
    """
    chains = np.flatnonzero(np.asarray(violation.example) >= 0)
    if len(chains) == 0:
        return
    chain = chains[0]
    raise ValueError(
        f"Argument `{name}` must bound every example, and does not: nothing was "
        "accepted after this was seen. Received: a bound of "
        f"{violation.bound[chain]:.6g} nats for example {violation.example[chain]} at "
        f"the proposal of chain {chain}, where the value is "
        f"{violation.value[chain]:.6g} nats. {len(chains)} of "
        f"{len(violation.example)} chains have such an example."
    )


def summary(counts: dict[str, Array], steps: int) -> dict[str, Array]:
    """Return the share of accepted proposals, and the mean size of a batch."""
    with np.errstate(invalid="ignore"):
        acceptance = counts["accepted"] / np.asarray(counts["proposed"])
    return {
        "acceptance": acceptance,
        "batch_size": counts["examples"] / max(steps, 1),
        "nonfinite": counts["nonfinite"],
    }
