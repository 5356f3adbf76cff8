"""Run chains in a compiled loop, in pieces: memory for kept draws, a progress bar."""

import contextlib
import copy
import functools
import math
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple
from typing import Self

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.base import Kernel
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import Traits
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.base import map_positions
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.sampling import faults
from keras_mhmcmc.sampling import starts
from keras_mhmcmc.sampling import threads
from keras_mhmcmc.sampling.control_variates import ControlVariates
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import named_leaves
from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.sampling.log_density import StepDensity
from keras_mhmcmc.sampling.log_density import normals_of

tree = keras.tree

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
        return (self.num_steps - self.burn_in) // self.every

    def due(self, kept: int) -> int:
        """Return the step, from 0, of the draw that comes after `kept` draws."""
        return self.burn_in + (kept + 1) * self.every - 1

    def piece(self, done: int, kept: int, steps: int, capacity: int) -> tuple[int, int]:
        """Return how many steps to run next, and how many draws they give."""
        # A piece ends at the end of the burn-in, and before the buffer is full.
        end = self.burn_in if done < self.burn_in else self.num_steps
        full = self.due(kept + capacity)
        end = min(done + steps, end, full)
        draws = max(0, (end - 1 - self.due(kept)) // self.every + 1)
        return end - done, draws

    def check_warm_up(self, traits: Traits, start: int) -> None:
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


@contextlib.contextmanager
def in_float32() -> Iterator[None]:
    """Make float32 the float of Keras for a while: chains run in it."""
    own = keras.config.floatx()
    keras.config.set_floatx("float32")
    try:
        yield
    finally:
        keras.config.set_floatx(own)


class Weight(NamedTuple):
    """A tensor of the position, as `Kernel.bind_weights` takes it."""

    path: str
    shape: tuple[int, ...]  # the chain axis first


class Program:
    """Chains of a kernel on a target: their steps, and what `run` gave."""

    # Of what `run` returns.
    leaves: list[Array]  # draws of each tensor of the position, (chain, draw, ...)
    others: list[Array]  # energies of the draws, and log weights; [] if not recorded
    counts: dict[str, Array]  # over the steps after the burn-in, float64 (chain,)
    state: Any  # of the kernel
    steps: int  # since the first step of the chains
    saved: ChainState
    interrupted: bool

    def __init__(
        self,
        kernel: Kernel,
        target: LogDensity,
        start: starts.Start,
        reference: ControlVariates | None = None,
        recorded: int | None = None,  # number of chains with records; None: all
    ) -> None:
        self.target, self.start, self._reference = target, start, reference
        self.shapes, self.num_chains = start.shapes, start.shapes[0][0]
        self._recorded = self.num_chains if recorded is None else recorded
        self.structure = tree.map_structure(lambda _: 0, start.structure)
        numbers = list(range(len(self.shapes)))
        named = named_leaves(tree.pack_sequence_as(self.structure, numbers))
        self.names = sorted(named, key=named.__getitem__)
        weights = [Weight(*x) for x in zip(self.names, self.shapes, strict=True)]
        self.kernel = kernel.bind_weights(weights, has_chains=True)
        self._traits = traits = self.kernel.traits
        # Names of what a step counts.
        self._counts = tuple(dict.fromkeys([*traits.counts, "nonfinite"]))
        self._arrays = [ops.convert_to_tensor(x) for x in self.kernel.arrays]
        self.constants = [*target.constants, *self._arrays]  # that each step reads
        if reference is not None:
            self.constants += reference.constants
        examples = self.num_chains * target.batch_size
        is_small = not target.draws_batches or examples <= traits.fused_examples
        # Whether XLA makes the loop faster on TensorFlow: a ladder compiles for minutes
        self._fuses = is_small and not traits.draws_data and traits.levels == 1
        self._levels = (traits.levels,) if traits.levels > 1 else ()
        self._no_counts = np.zeros((*self._levels, self.num_chains))
        self.dimension = sum(math.prod(row) for row in start.rows)
        # Whether the loop carries positions as one tensor (K, d).
        self._is_flat = traits.is_flat and len(self.shapes) > 1
        # Shapes of what one chain records: position, energy, and log weight.
        flat: list[tuple[int, ...]] = [(self.dimension,)]
        self._rows = flat if self._is_flat else start.rows
        self._rows += [()] * (not traits.draws_data) + [()] * traits.has_weights
        self._energy: Array | None = None  # of each chain at the start, nats

    def run(
        self,
        plan: Plan,
        name: str,
        progress: bool,
        jit_compile: bool | str = "auto",
        compile_chains: Callable[..., Any] = _backend.compile_chains,
    ) -> Self:
        """Run the chains, and return a copy with the results.

        A compiled loop that is kept for later runs holds this object.
        """
        start, names = self.start, self._counts
        state = starts.first_state(self.kernel, start.position)
        state = start.restored(state, name, self.target.check)
        if start.number == 0:
            self._check_start(state)
        if self._is_flat:
            state = map_positions(lambda position: [tensors.flat(position)], state)

        chains = max(self.num_chains, self._recorded)
        capacity = _BUFFER_BYTES // (4 * chains * (self.dimension + 2))
        capacity = int(np.clip(capacity, 1, _BUFFER_DRAWS))
        fuse = _backend.compiles(jit_compile, self._fuses)
        compiled = self._compiled(compile_chains, capacity, fuse)
        sizes = plan.num_draws, self._recorded
        records = [np.empty((*sizes, *row), "float32") for row in self._rows]
        result = copy.copy(self)
        result.counts = dict.fromkeys(names, self._no_counts)
        result.interrupted = False
        bar = None
        if progress:
            bar = keras.utils.Progbar(
                plan.num_steps, unit_name="step", stateful_metrics=["acceptance"]
            )
        done, kept, wanted = 0, 0, _FIRST_STEPS
        try:
            while done < plan.num_steps:
                steps, draws = plan.piece(done, kept, wanted, capacity)
                began = time.perf_counter()
                first = plan.due(kept) - done
                numbers = start.seed, start.number + done, steps, first, plan.every
                new_state, found, sums = compiled(state, self.constants, *numbers)
                sums = [np.asarray(ops.convert_to_numpy(x), "float64") for x in sums]
                counts = dict(zip(names, sums, strict=True))
                for array, record in zip(records, found, strict=True) if draws else ():
                    array[kept : kept + draws] = np.asarray(record)[:draws]
                # The piece counts from here on: an interruption before discards it.
                state, done, kept = new_state, done + steps, kept + draws
                if self._traits.draws_data:  # the others learn their settings
                    self.kernel.check(map_leaves(ops.convert_to_numpy, state))
                if done > plan.burn_in:
                    totals = result.counts.items()
                    result.counts = {name: x + counts[name] for name, x in totals}
                seconds = max(time.perf_counter() - began, 1e-6)
                wanted = max(1, int(min(steps * _SECONDS / seconds, 100 * steps)))
                if bar is not None:
                    bar.update(done, _shown(counts), finalize=done >= plan.num_steps)
        except KeyboardInterrupt:
            result.interrupted = True
            warn(
                f"Interrupted after {done} of {plan.num_steps} steps. The {kept} draws "
                "so far are returned.",
            )
        # These are views: in memory a draw follows the draw before, as they came.
        records = [np.moveaxis(array[:kept], 0, 1) for array in records]
        count = 1 if self._is_flat else len(self.shapes)
        result.leaves, result.others = records[:count], records[count:]
        if self._is_flat:
            state = map_positions(lambda p: tensors.unflat(p[0], self.shapes), state)
            ends = np.cumsum([math.prod(row) for row in start.rows])
            parts = np.split(records[0], ends[:-1], axis=2)
            result.leaves = [
                part.reshape(*part.shape[:2], *row)
                for part, row in zip(parts, start.rows, strict=True)
            ]
        result.state, result.steps = state, start.number + done
        result.saved = start.left(state, result.steps, name)
        return result

    def _compiled(
        self, compile_chains: Callable[..., Any], capacity: int, fuse: bool
    ) -> Callable[..., Any]:
        """Return the compiled loop, which may run groups of chains in threads."""
        traits, target = self._traits, self.target
        step, groups = self.step, 1
        draws_within = traits.draws_data and not traits.draws_once
        coupled = draws_within or traits.couples_chains or self._levels
        if target.has_data and not coupled:
            cores = _backend.count_loop_cores(fuse)
            groups = threads.count_groups(self.num_chains, target.batch_size, cores)
        if groups > 1:
            part = copy.copy(self)
            part.num_chains = part._recorded = count = self.num_chains // groups
            part.shapes = [(count, *row) for row in self.start.rows]
            step = threads.step_of_group(part.step, count)

        def shapes(state: Any, constants: list[Tensor]) -> tuple[list[Tensor], Any]:
            number = self.start.number
            noise = self.noise(self.start.seed, number)
            return step(state, constants, noise, number)[1:]

        loop = compile_chains(step, self.noise, shapes, capacity, fuse)
        if groups == 1:
            return loop
        slots = self.kernel.init(self.start.position)
        if self._is_flat:
            slots = map_positions(lambda position: position[:1], slots)
        leaves = base.leaves(slots)
        is_shared = [isinstance(leaf, Slot) and leaf.is_shared for leaf in leaves]
        return threads.Threads(loop, groups, is_shared)

    def noise(self, seed: Tensor, number: Tensor) -> tuple[Any, Any]:
        """Return normals, and uniforms (uniforms, K): the kernel's, the batch's."""
        if self._traits.draws_data:
            # PyTorch's generator takes plain integers.
            seed = seed if isinstance(seed, int) else ops.cast(seed, "int32")
            if not self._traits.draws_once:
                return seed, number  # for draws within a step
            return normals_of((seed, number), 0, self.shapes, self._is_flat), []
        count = self._traits.num_uniforms + self.target.num_uniforms
        shapes = [(*self._levels, *shape) for shape in self.shapes]
        uniforms = (*self._levels, count, self.num_chains)
        return _backend.draw(seed, number, shapes, uniforms)

    def step(
        self, state: Any, constants: list[Tensor], noise: Any, number: Tensor
    ) -> tuple[Any, list[Tensor], list[Tensor]]:
        first = len(self.target.constants)
        last = first + len(self._arrays)
        density = StepDensity(
            self.target,
            self.structure,
            self.shapes,
            constants[:first],
            noise,
            number,
            arrays=constants[first:last],
            is_flat=self._is_flat,
            draws_once=self._traits.draws_once,
        )
        if self._reference is not None:
            correct = self._reference.corrected
            density.correct = functools.partial(correct, constants[last:])
        state, record, counts = self.kernel.step(state, density)
        if self._recorded < record[0].shape[0]:
            record = [x[: self._recorded] for x in record]
        return state, record, [counts[name] for name in self._counts]

    def _check_start(self, state: Any) -> None:
        """Raise an error if energies at the start are not finite, or too coarse."""
        target, indices, traits = self.target, [], self._traits
        if not traits.draws_data:
            _, uniforms = self.noise(self.start.seed, 0)
            indices = target.batch_indices(uniforms[traits.num_uniforms :])
        point = self.kernel.point(state)
        energy = faults.check_finite(target, self.structure, point, indices)
        if not traits.draws_data:
            unit = self.kernel.energy_unit(0, self.dimension)
            faults.check_resolution(energy, unit, target.function_name)
            self._energy = energy

    def summary(self) -> dict[str, Array]:
        """Return the diagnostics of each chain by name, arrays (chain,)."""
        state = map_leaves(ops.convert_to_numpy, self.state)
        first = {"nonfinite": self.counts["nonfinite"]}
        return first | self.kernel.summary(state, self.counts)

    def draws(self) -> Draws:
        """Return the `Draws` of the run, and warn if they show a fault."""
        traits, kernel, target = self._traits, self.kernel, self.target
        info, counts = self.summary(), self.counts
        unit = kernel.energy_unit(self.steps - 1, self.dimension)
        if self.others:
            energy = self.others[0]
            info = {"energy": energy, **info}
            faults.warn_of_lost_chains(energy, target)
            if not traits.has_weights:  # else the chain visits all energies alike
                temperature = at_step(kernel.temperature, self.steps - 1)
                usual = 0.5 * self.dimension * float(ops.convert_to_numpy(temperature))
                faults.warn_of_runaway_chains(self._energy, energy, usual)
            faults.warn_of_coarse_energies(energy, unit)
            info |= kernel.report(self.state, energy, self.names)
        elif unit is not None:
            energy = ops.convert_to_numpy(self.state.energy)
            faults.warn_of_coarse_energies(energy[:, None], unit)
        if "accepted" in counts and not traits.warns_of_rejections:
            faults.warn_of_still_chains(counts)
            faults.warn_of_nonfinite_data(counts, target)
        if "batch_size" in info:
            faults.warn_of_large_batches(info["batch_size"], target.train_size)
        position = tree.pack_sequence_as(self.structure, self.leaves)
        faults.warn_of_rounding(position)
        weights = self.others[1] if traits.has_weights else None
        return Draws(position, weights, info, self.saved, self.interrupted)


def _shown(counts: dict[str, Array]) -> list[tuple[str, float]]:
    """Return what the bar shows: the acceptance of the piece, if it has one."""
    if "proposed" not in counts:
        return []
    proposed = counts["proposed"].sum()
    return [("acceptance", counts["accepted"].sum() / proposed)] if proposed else []
