"""Run a compiled loop in pieces: memory for kept draws alone, and a progress bar."""

import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn

# Arguments: state, constants, noise, number of the step. Results: the next state; the
# tensors to record, each with the chain axis first; counts, each of shape (chain,).
Step = Callable[[Any, list[Tensor], Any, Tensor], tuple[Any, list[Tensor], list[Any]]]
# Arguments: seed, number of the step. Result: the noise of the step.
Noise = Callable[[Tensor, Tensor], Any]

_SECONDS = 0.5  # of a piece, between two updates of the bar
_FIRST_STEPS = 8
_BUFFER_BYTES = 2**22
_BUFFER_DRAWS = 2**12


class Plan(NamedTuple):
    """How long to run, and what to keep, in steps of this run."""

    num_steps: int
    burn_in: int
    every: int

    @property
    def num_draws(self) -> int:
        """Number of draws that a whole run keeps."""
        return (self.num_steps - self.burn_in) // self.every

    def due(self, kept: int) -> int:
        """Return the step, from 0, of the draw that comes after `kept` draws."""
        return self.burn_in + (kept + 1) * self.every - 1

    def piece(self, done: int, kept: int, steps: int, capacity: int) -> tuple[int, int]:
        """Return how many steps to run next, and how many draws they give.

        A piece ends at the end of the burn-in, and before the buffer is full.

        Args:
            done: steps so far.
            kept: draws so far.
            steps: steps that are wanted.
            capacity: draws that the buffer holds.
        """
        end = self.burn_in if done < self.burn_in else self.num_steps
        full = self.due(kept + capacity)
        end = min(done + steps, end, full)
        draws = max(0, (end - 1 - self.due(kept)) // self.every + 1)
        return end - done, draws


class Outcome(NamedTuple):
    """The result of a run, whole or interrupted."""

    state: Any
    arrays: list[Array] | None  # kept records, (chain, draw, ...); None: no draw
    # By name, over the steps after the burn-in: float64 (chain,), or 0.0 without steps.
    counts: dict[str, Any]
    steps: int
    interrupted: bool


def run(
    step: Step,
    noise: Noise,
    state: Any,
    constants: list[Tensor],
    plan: Plan,
    *,
    seed: int,
    start: int,
    names: Sequence[str],
    progress: bool,
    record_size: int | None = None,
    fuse: bool = True,
    jit_compile: bool | str = "auto",
    check: Callable[[Any], None] | None = None,
    compile_chains: Callable[..., Any] = _backend.compile_chains,
) -> Outcome:
    """Run `plan.num_steps` steps of chains, from the step number `start` on.

    Args:
        step: function of state, constants, noise and the number of the step. It
            returns the next state, the tensors to record, and the counts.
        noise: function of the seed and the number of the step. It returns the noise.
        state: what the loop carries, a structure of tensors.
        constants: tensors that each step reads.
        plan: how long to run, and what to keep.
        seed: of the run.
        start: number of the first step.
        names: of the counts.
        progress: whether to show a bar.
        record_size: how many numbers a record has at most. It sets how many records
            one call of the loop keeps. Defaults to the size of the state.
        fuse: whether XLA makes the loop faster on TensorFlow.
        jit_compile: as in `mh.sample`.
        check: function of the state, called every half second or so. An error that it
            raises ends the run.
        compile_chains: function that compiles the loop.

    Returns:
        The `Outcome`. Ctrl-C ends the run early, with a warning.
    """

    def shapes(state: Any, constants: list[Tensor]) -> tuple[list[Tensor], list[Any]]:
        return step(state, constants, noise(seed, start), start)[1:]

    arrays: list[Array] | None = None
    totals: dict[str, Any] = dict.fromkeys(names, 0.0)
    bar = None
    if progress:
        bar = keras.utils.Progbar(
            plan.num_steps, unit_name="step", stateful_metrics=["acceptance"]
        )
    if record_size is None:
        record_size = sum(int(np.prod(x.shape)) for x in keras.tree.flatten(state))
    capacity = _capacity(record_size, plan)
    fuse = _backend.compiles(jit_compile, fuse)
    program = compile_chains(step, noise, shapes, capacity, fuse)
    done, kept, wanted, interrupted = 0, 0, _FIRST_STEPS, False
    try:
        while done < plan.num_steps:
            steps, draws = plan.piece(done, kept, wanted, capacity)
            began = time.perf_counter()
            first = plan.due(kept) - done
            new_state, records, counts = program(
                state, constants, seed, start + done, steps, first, plan.every
            )
            counts = [np.asarray(ops.convert_to_numpy(c), "float64") for c in counts]
            counts = dict(zip(names, counts, strict=True))
            if draws:
                records = [ops.convert_to_numpy(record)[:draws] for record in records]
                if arrays is None:
                    arrays = [_room(record, plan.num_draws) for record in records]
                for array, record in zip(arrays, records, strict=True):
                    array[kept : kept + draws] = record
            # The piece counts from here on: an interruption before discards it whole.
            state, done, kept = new_state, done + steps, kept + draws
            if check is not None:
                check(state)
            if done > plan.burn_in:
                totals = {name: totals[name] + counts[name] for name in names}
            seconds = time.perf_counter() - began
            wanted = max(
                1, int(min(steps * _SECONDS / max(seconds, 1e-6), 100 * steps))
            )
            if bar is not None:
                bar.update(done, _shown(counts), finalize=done >= plan.num_steps)
    except KeyboardInterrupt:
        interrupted = True
        warn(
            f"Interrupted after {done} of {plan.num_steps} steps. The {kept} draws so "
            "far are returned.",
        )
    if arrays is not None:
        # These are views: in memory a draw follows the draw before, as they came.
        arrays = [np.moveaxis(array[:kept], 0, 1) for array in arrays]
    return Outcome(state, arrays, totals, done, interrupted)


def _capacity(size: int, plan: Plan) -> int:
    """Return how many records of `size` numbers one call of the loop keeps."""
    capacity = _BUFFER_BYTES // (4 * max(size, 1))
    return int(np.clip(capacity, 1, min(_BUFFER_DRAWS, max(plan.num_draws, 1))))


def _room(record: Array, num_draws: int) -> Array:
    return np.empty((num_draws, *record.shape[1:]), record.dtype)


def _shown(counts: dict[str, Array]) -> list[tuple[str, float]]:
    """Return what the bar shows: the acceptance of the piece, if it has one."""
    if "proposed" not in counts:
        return []
    proposed = counts["proposed"].sum()
    return [("acceptance", counts["accepted"].sum() / proposed)] if proposed else []
