"""Run a compiled loop in pieces: memory for kept draws alone, and a progress bar."""

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple
from typing import ParamSpec
from typing import TypeVar

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers.base import Traits

if TYPE_CHECKING:
    from keras_mhmcmc.sampling.run import Program

P = ParamSpec("P")
R = TypeVar("R")

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
        """
        end = self.burn_in if done < self.burn_in else self.num_steps
        full = self.due(kept + capacity)
        end = min(done + steps, end, full)
        draws = max(0, (end - 1 - self.due(kept)) // self.every + 1)
        return end - done, draws

    def check_warm_up(self, traits: Traits, start: int) -> None:
        """Refuse a burn-in that is shorter than what is left of the warm-up."""
        name, count = traits.warm_up_argument
        least = traits.warm_up - start
        if self.burn_in < least:
            raise ValueError(
                f"Argument `burn_in` must be at least {least}, since the first {count} "
                "steps of the kernel are its warm-up. Raise it, or make the kernel "
                f"with a smaller `{name}`. Received: burn_in={self.burn_in}, "
                f"{name}={count}"
            )


def checked_plan(num_steps: int, burn_in: int, every: int) -> Plan:
    """Return how long to run and what to keep, or raise a `ValueError`."""
    num_steps = _validate.integer("num_steps", num_steps, 1)
    burn_in = _validate.integer("burn_in", burn_in, 0)
    plan = Plan(num_steps, burn_in, _validate.integer("every", every, 1))
    if plan.num_draws < 1:
        raise ValueError(
            "Argument `num_steps` must be at least `burn_in` + `every`, so that a draw "
            f"is kept. Received: num_steps={num_steps}, burn_in={burn_in}, "
            f"every={every}"
        )
    return plan


def in_float32(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` with float32 as the float of Keras, in which chains run."""

    @functools.wraps(function)
    def run_in_float32(*args: P.args, **kwargs: P.kwargs) -> R:
        own = keras.config.floatx()
        keras.config.set_floatx("float32")
        try:
            return function(*args, **kwargs)
        finally:
            keras.config.set_floatx(own)

    return run_in_float32


class Outcome(NamedTuple):
    """The result of a run, whole or interrupted."""

    state: Any
    arrays: list[Array] | None  # kept records, (chain, draw, ...); None: no draw
    # By name, over the steps after the burn-in: float64 (chain,), or 0.0 without steps.
    counts: dict[str, Any]
    steps: int  # since the first step of the chains
    interrupted: bool


def run(
    program: "Program",
    state: Any,
    plan: Plan,
    *,
    seed: int,
    start: int = 0,
    progress: bool = False,
    jit_compile: bool | str = "auto",
    compile_chains: Callable[..., Any] = _backend.compile_chains,
) -> Outcome:
    """Run `plan.num_steps` steps of chains, from the step number `start` on.

    Ctrl-C ends the run early, with a warning.
    """

    def shapes(state: Any, constants: list[Tensor]) -> tuple[list[Tensor], list[Any]]:
        return program.step(state, constants, program.noise(seed, start), start)[1:]

    names = program.counts
    arrays: list[Array] | None = None
    totals: dict[str, Any] = dict.fromkeys(names, 0.0)
    bar = None
    if progress:
        bar = keras.utils.Progbar(
            plan.num_steps, unit_name="step", stateful_metrics=["acceptance"]
        )
    capacity = _BUFFER_BYTES // (4 * max(program.record_size, 1))
    capacity = int(np.clip(capacity, 1, _BUFFER_DRAWS))
    fuse = _backend.compiles(jit_compile, program.fuse)
    compiled = compile_chains(program.step, program.noise, shapes, capacity, fuse)
    done, kept, wanted, interrupted = 0, 0, _FIRST_STEPS, False
    try:
        while done < plan.num_steps:
            steps, draws = plan.piece(done, kept, wanted, capacity)
            began = time.perf_counter()
            first = plan.due(kept) - done
            new_state, records, counts = compiled(
                state, program.constants, seed, start + done, steps, first, plan.every
            )
            counts = [np.asarray(ops.convert_to_numpy(c), "float64") for c in counts]
            counts = dict(zip(names, counts, strict=True))
            if draws:
                records = [ops.convert_to_numpy(record)[:draws] for record in records]
                if arrays is None:
                    arrays = [
                        np.empty((plan.num_draws, *x.shape[1:]), x.dtype)
                        for x in records
                    ]
                for array, record in zip(arrays, records, strict=True):
                    array[kept : kept + draws] = record
            # The piece counts from here on: an interruption before discards it whole.
            state, done, kept = new_state, done + steps, kept + draws
            program.check(state)
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
    return Outcome(state, arrays, totals, start + done, interrupted)


def _shown(counts: dict[str, Array]) -> list[tuple[str, float]]:
    """Return what the bar shows: the acceptance of the piece, if it has one."""
    if "proposed" not in counts:
        return []
    proposed = counts["proposed"].sum()
    return [("acceptance", counts["accepted"].sum() / proposed)] if proposed else []
