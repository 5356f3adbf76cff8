"""Runs a compiled loop in pieces: memory for kept draws alone, and a progress bar."""

import time
import warnings
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend

_SECONDS = 0.5  # of a piece, between two updates of the bar
_FIRST_STEPS = 8
_BUFFER_BYTES = 2**22
_BUFFER_DRAWS = 2**12


class Plan(NamedTuple):
    """How long to run and what to keep, in steps of this run."""

    num_steps: int
    burn_in: int
    every: int

    @property
    def num_draws(self):
        """Draws that a whole run keeps."""
        return (self.num_steps - self.burn_in) // self.every

    def due(self, kept):
        """The step, from 0, that the next draw is taken from."""
        return self.burn_in + (kept + 1) * self.every - 1

    def piece(self, done, kept, steps, capacity):
        """How many steps to run next, and how many draws they give.

        Pieces do not cross the end of the burn-in, and end before the buffer is full.
        """
        end = self.burn_in if done < self.burn_in else self.num_steps
        full = self.due(kept + capacity)
        end = min(done + steps, end, full)
        draws = max(0, (end - 1 - self.due(kept)) // self.every + 1)
        return end - done, draws


class Outcome(NamedTuple):
    """What a run gives back, whole or interrupted."""

    state: Any
    arrays: list  # kept records, numpy, (chain, draw, ...)
    counts: dict  # name -> float64 (chain,), over the steps after the burn-in
    steps: int
    interrupted: bool


def run(
    step,
    noise,
    state,
    constants,
    plan,
    *,
    seed,
    start,
    names,
    progress,
    record_size=None,
    fuse=True,
):
    """Runs `plan.num_steps` steps of chains, from the step number `start` on.

    Args:
        step: function of (state, constants, draws, number of the step), which gives
            the next state, the tensors to record, each with the chain axis first, and
            a list of counts, each of shape (chain,).
        noise: function of (seed, number of the step), the step's draws.
        state: what the loop carries, a structure of tensors.
        constants: list of tensors that steps read.
        plan: a `Plan`.
        seed: integer.
        start: number of the first step.
        names: names of the counts.
        progress: whether to show a bar.
        record_size: numbers in a record; defaults to those in the state, which has no
            fewer.
        fuse: whether XLA compiles the loop on TensorFlow.
    """

    def shapes(state, constants):
        return step(state, constants, noise(seed, start), start)[1:]

    arrays, totals = None, dict.fromkeys(names, 0.0)
    bar = None
    if progress:
        bar = keras.utils.Progbar(
            plan.num_steps, unit_name="step", stateful_metrics=["acceptance"]
        )
    if record_size is None:
        record_size = sum(int(np.prod(x.shape)) for x in keras.tree.flatten(state))
    capacity = _capacity(record_size, plan)
    program = _backend.compile_chains(step, noise, shapes, capacity, fuse)
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
            # From here on the piece counts, all of it at once.
            state, done, kept = new_state, done + steps, kept + draws
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
        warnings.warn(
            f"Interrupted after {done} of {plan.num_steps} steps; the {kept} draws "
            "that were kept until then are returned.",
            stacklevel=3,
        )
    if arrays is not None:
        # Views: the draws lie one after the other in memory, as they came.
        arrays = [np.moveaxis(array[:kept], 0, 1) for array in arrays]
    return Outcome(state, arrays, totals, done, interrupted)


def _capacity(size, plan):
    capacity = _BUFFER_BYTES // (4 * max(size, 1))
    return int(np.clip(capacity, 1, min(_BUFFER_DRAWS, max(plan.num_draws, 1))))


def _room(record, num_draws):
    return np.empty((num_draws, *record.shape[1:]), record.dtype)


def _shown(counts):
    if "proposed" not in counts:
        return []
    proposed = counts["proposed"].sum()
    return [("acceptance", counts["accepted"].sum() / proposed)] if proposed else []
