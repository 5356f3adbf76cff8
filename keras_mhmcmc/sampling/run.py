"""`sample`: chains on any density, as one vectorised and compiled program."""

import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Kernel
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.base import map_positions
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.sampling import faults
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import reuse
from keras_mhmcmc.sampling import starts
from keras_mhmcmc.sampling.control_variates import ControlVariates
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import named_leaves
from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.sampling.log_density import StepDensity
from keras_mhmcmc.sampling.log_density import normals_of

tree = keras.tree

Bound = TypeVar("Bound", bound=Kernel)
_WAYS: tuple[bool | str, ...] = ("auto", True, False)


@loop.in_float32
def sample(
    kernel: Kernel,
    init: Any,
    *,
    log_likelihood: Callable[..., Tensor] | None = None,
    data: Any = None,
    batch_size: int | None = None,
    log_prior: Callable[..., Tensor] | None = None,
    log_density: Callable[..., Tensor] | None = None,
    num_steps: int,
    num_chains: int = 1,
    burn_in: int = 0,
    every: int = 1,
    seed: int = 0,
    replacement: bool = False,
    control_variates: Any = None,
    progress: bool = True,
    jit_compile: bool | str = "auto",
) -> Draws:
    """Run many chains of a kernel on any density.

    The chains sample exp(-U/T), as the kernel's documentation says. The energy U in
    nats is -log density, or -(sum of log-likelihoods + log prior) over all of the data.
    All chains run as one vectorised program, and each draws its own mini-batches. A
    draw is a position that a step has evaluated, with its energy, the first at `init`.

    Args:
        kernel: from a function of `mh.kernels`, such as `mh.kernels.sgld(0.1)`.
        init: a tensor, or a dict or tuple of tensors: one position for all chains, or
            tensors with a first axis of length `num_chains`. Or the `state` of earlier
            draws: the chains go on bit for bit, with its number of chains and seed.
        log_likelihood: function of (position, batch) of one chain, written with
            `keras.ops`. It returns the log-likelihood of each example in nats, shape
            (batch_size,). `batch` has the structure of `data`.
        data: array, or tuple or dict of arrays, with one row for each example.
        batch_size: examples in a mini-batch, m. Defaults to all of the data.
        log_prior: function of a position that returns the log prior, shape (). None is
            a flat prior.
        log_density: function of a position, instead of `log_likelihood` and `data`. It
            returns the log density up to a constant, shape ().
        num_steps: steps of each chain, at least `burn_in` + `every`.
        num_chains: number of chains, K. Defaults to 1.
        burn_in: number of first steps that are not kept. Defaults to 0.
        every: keep each `every`-th step after the burn-in (thinning). Defaults to 1.
        seed: integer in [0, 2**31) that makes the run repeatable. Defaults to 0.
        replacement: whether a mini-batch may hold an example twice. Defaults to False.
        control_variates: a position of one chain near the mode. The gradients of all of
            the data there reduce the noise of mini-batches, whose gradients stay
            unbiased. Only for `sgld`, `psgld`, `sghmc` and `sgnht` with mini-batches.
            None uses plain gradients.
        progress: whether to show a bar.
        jit_compile: on PyTorch True compiles the step, which takes seconds; not for
            kernels that draw noise within a step, such as `tuna` and `hmc`. On
            TensorFlow True and False switch XLA on and off, and "auto" uses it where it
            is faster. JAX refuses False. Defaults to "auto".

    Returns:
        `Draws`, with `position`, `weights`, `info`, `state` and `to_arviz()`. After
        Ctrl-C it has the draws so far, and a warning says so.

    Raises:
        ValueError: an argument is outside its range; a function returns a wrong shape;
            the density at `init` is not finite, or so large that float32 loses the
            differences that the kernel decides on. Raised before the first step.
        RuntimeError: `jit_compile` is True, and PyTorch cannot compile, for instance
            without a C++ compiler.

    Example:

    >>> import keras_mhmcmc as mh
    >>> from keras import ops
    >>> draws = mh.sample(
    ...     mh.kernels.mhbt(2.0),
    ...     [0.0, 0.0],
    ...     log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
    ...     num_steps=600,
    ...     num_chains=20,
    ...     burn_in=100,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (20, 500, 2)

    Reference: Wu, Wang and Wong (2020), section 3.1; Li and Wong (2017), algorithm 1.
    Control variates: Baker, Fearnhead, Fox and Nemeth (2019), "Control variates for
    stochastic gradient MCMC".
    """
    _validate.instance(
        "kernel",
        kernel,
        Kernel,
        "built by `mh.kernels`, such as mh.kernels.sgld(0.1)",
    )
    plan = loop.checked_plan(num_steps, burn_in, every)
    _validate.choice("progress", progress, (True, False))
    jit_compile = _validate.choice("jit_compile", jit_compile, _WAYS)
    functions = log_density, log_likelihood, log_prior
    target = LogDensity(*functions, data, batch_size, replacement)
    given, kernel = kernel, bound_to_data(kernel, target, batch_size)
    start = starts.begin(init, num_chains, seed, target.check)
    reference = None
    if control_variates is not None:
        reference = ControlVariates(control_variates, kernel, target, start)
    plan.check_warm_up(kernel.traits, start.number)
    program = Program(kernel, target, start, reference)
    # What a compiled loop depends on, besides the functions of the user.
    shapes = repr(program.structure), *start.shapes, *target.signature
    outcome = program.run(
        plan,
        starts.kernel_of(program.kernel),
        "the same kernel",
        progress,
        jit_compile=jit_compile,
        compile_chains=reuse.compiler(functions, (given, *shapes, reference is None)),
    )
    return faults.told_of_rounding(program.draws(outcome))


def bound_to_data(kernel: Bound, target: LogDensity, batch_size: int | None) -> Bound:
    """Return the kernel for the data of the target, or raise a `ValueError`."""
    traits = kernel.traits
    if traits.needs_examples and target.train_size is None:
        raise ValueError(
            "Argument `log_likelihood` must be given, with `data`: the kernel compares "
            "single examples. Received: `log_density`"
        )
    if traits.draws_data and target.replacement:
        raise ValueError(
            "Argument `replacement` must be False: the kernel says itself how it draws "
            "its mini-batches. Received: replacement=True"
        )
    size = batch_size if traits.draws_data else target.batch_size
    if traits.needs_batches and not target.draws_batches:
        raise ValueError(
            "Argument `batch_size` must be smaller than the number of examples: the "
            "kernel takes its noise from mini-batches. With all data use "
            f"`mh.kernels.mclmc`. Received: batch_size={batch_size}"
        )
    kernel = kernel.bind_data_size(target.train_size, size)
    if traits.learns_noise:
        target.check_squared_errors()
    return kernel


class Weight(NamedTuple):
    """A tensor of the position, as `Kernel.bind_weights` takes it."""

    path: str
    shape: tuple[int, ...]  # the chain axis first


class Program:
    """Steps of K chains of a kernel on a target, for the compiled loop."""

    def __init__(
        self,
        kernel: Kernel,
        target: LogDensity,
        start: starts.Start,
        reference: ControlVariates | None = None,
        recorded: int | None = None,  # number of chains with records; None: all
    ) -> None:
        self.target, self.start, self._reference = target, start, reference
        self.shapes = start.shapes
        self.num_chains = self.shapes[0][0]
        self._recorded = self.num_chains if recorded is None else recorded
        self.structure = tree.map_structure(lambda _: 0, start.structure)
        numbers = list(range(len(self.shapes)))
        named = named_leaves(tree.pack_sequence_as(self.structure, numbers))
        self.names = sorted(named, key=named.__getitem__)
        weights = [Weight(*x) for x in zip(self.names, self.shapes, strict=True)]
        self.kernel = kernel.bind_weights(weights, has_chains=True)
        self._traits = traits = self.kernel.traits
        has_count = "nonfinite" in traits.counts
        # Names of what a step counts.
        self.counts = traits.counts if has_count else (*traits.counts, "nonfinite")
        self._arrays = [ops.convert_to_tensor(x) for x in self.kernel.arrays]
        self.constants = [*target.constants, *self._arrays]  # that each step reads
        if reference is not None:
            self.constants += reference.constants
        examples = self.num_chains * (target.batch_size or 1)
        is_small = not target.draws_batches or examples <= traits.fused_examples
        # Whether XLA makes the loop faster on TensorFlow: a ladder compiles for minutes
        self.fuse = is_small and not traits.draws_data and traits.levels == 1
        self._dimension = sum(math.prod(shape[1:]) for shape in self.shapes)
        # Position, energy, and log weight.
        rows = max(self.num_chains, self._recorded)  # of a record, at most
        self.record_size = rows * (self._dimension + 2)
        # Whether the loop carries positions as one tensor (K, d).
        self._is_flat = traits.is_flat and len(self.shapes) > 1
        self._energy: Array | None = None  # of each chain at the start, nats

    def run(
        self, plan: loop.Plan, name: str, origin: str, progress: bool, **options: Any
    ) -> loop.Outcome:
        """Run the chains from the start on, whose state must be one of `name`."""
        check, self._name, start = self.target.check, name, self.start
        state = starts.first_state(self.kernel, start.position)
        state = start.restored(state, name, origin, check)
        if start.number == 0:
            self._check_start(state)
        if self._is_flat:
            state = map_positions(lambda position: [tensors.flat(position)], state)
        options |= dict(seed=start.seed, start=start.number, progress=progress)
        return loop.run(self, state, plan, **options)

    def noise(self, seed: Tensor, number: Tensor) -> tuple[Any, Any]:
        """Return the noise of a step: normals, and uniforms (uniforms, K).

        The first uniforms are the kernel's, the others the mini-batch's. For a kernel
        that draws its data and more than once, the noise is the seed and the number.
        """
        if self._traits.draws_data:
            # PyTorch's generator takes plain integers.
            seed = seed if isinstance(seed, int) else ops.cast(seed, "int32")
            if not self._traits.draws_once:
                return seed, number
            return normals_of((seed, number), 0, self.shapes, self._is_flat), []
        count = self._traits.num_uniforms + self.target.num_uniforms
        levels = (self._traits.levels,) if self._traits.levels > 1 else ()
        shapes = [(*levels, *shape) for shape in self.shapes]
        return _backend.draw(seed, number, shapes, (*levels, count, self.num_chains))

    def step(
        self, state: Any, constants: list[Tensor], noise: Any, number: Tensor
    ) -> tuple[Any, list[Tensor], list[Tensor]]:
        """Return the next state, what to record, and counts."""
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
            density.correct = self._reference.corrected(constants[last:])
        state, record, counts = self.kernel.step(state, density)
        if self._recorded < self.num_chains:
            record = [x[: self._recorded] for x in record]
        return state, record, [counts[name] for name in self.counts]

    def _check_start(self, state: Any) -> None:
        """Raise an error if energies at the start are not finite, or too coarse."""
        target, indices = self.target, []
        if not self._traits.draws_data:
            _, uniforms = self.noise(self.start.seed, 0)
            indices = target.batch_indices(uniforms[self._traits.num_uniforms :])
        point = self.kernel.point(state)
        energy = faults.check_finite(target, self.structure, point, indices)
        if not self._traits.draws_data:
            unit = self.kernel.energy_unit(0, self._dimension)
            faults.check_resolution(energy, unit, target.function_name)
            self._energy = energy

    def check(self, state: Any) -> None:
        """Raise an error if the state shows that the kernel's settings are wrong."""
        if self._traits.draws_data:  # the others learn their settings, or have none
            self.kernel.check(map_leaves(ops.convert_to_numpy, state))

    def saved(self, outcome: loop.Outcome) -> Any:
        """Return the `ChainState` after a run."""
        state = outcome.state
        if self._is_flat:
            state = map_positions(lambda p: tensors.unflat(p[0], self.shapes), state)
        return self.start.left(state, outcome.steps, self._name)

    def records(self, outcome: loop.Outcome) -> list[Array]:
        """Return the records of a run, (chain, draw, ...); without draws if none."""
        if outcome.arrays is None:
            rows = [shape[1:] for shape in self.shapes]
            rows += [()] * (not self._traits.draws_data)  # the energy
            return [np.empty((self._recorded, 0, *row), "float32") for row in rows]
        if not self._is_flat:
            return outcome.arrays
        # One array for each tensor, without a copy.
        (joined,) = outcome.arrays
        ends = np.cumsum([math.prod(shape[1:]) for shape in self.shapes])
        parts = zip(np.split(joined, ends[:-1], axis=2), self.shapes, strict=True)
        return [part.reshape(*joined.shape[:2], *shape[1:]) for part, shape in parts]

    def counted(self, outcome: loop.Outcome) -> dict[str, Array]:
        """Return what the steps after the burn-in counted, arrays (chain,)."""
        zeros = np.zeros(self.num_chains)
        return {name: zeros + value for name, value in outcome.counts.items()}

    def summary(self, outcome: loop.Outcome) -> dict[str, Array]:
        """Return the diagnostics of each chain by name, arrays (chain,)."""
        counts = self.counted(outcome)
        state = map_leaves(ops.convert_to_numpy, outcome.state)
        first = {"nonfinite": counts["nonfinite"]}
        return first | self.kernel.summary(state, counts)

    def draws(self, outcome: loop.Outcome) -> Draws:
        """Return the `Draws` of a run, and warn if they show a fault."""
        count, traits, kernel = len(self.shapes), self._traits, self.kernel
        arrays = self.records(outcome)
        position, log_weights = arrays[:count], None
        info, counts = self.summary(outcome), self.counted(outcome)
        unit = kernel.energy_unit(outcome.steps - 1, self._dimension)
        if traits.draws_data:
            if unit is not None:
                energy = ops.convert_to_numpy(outcome.state.energy)
                faults.warn_of_coarse_energies(energy[:, None], unit)
        else:
            energy = arrays[count]
            info = {"energy": energy, **info}
            faults.warn_of_lost_chains(energy, self.target)
            if traits.has_weights:  # the chain visits all energies alike
                log_weights = arrays[-1]
            else:
                temperature = at_step(kernel.temperature, outcome.steps - 1)
                at_start = self._energy
                faults.warn_of_runaway_chains(at_start, energy, temperature, position)
            faults.warn_of_coarse_energies(energy, unit)
            info |= kernel.report(outcome.state, energy, self.names)
        if "accepted" in counts and not traits.warns_of_rejections:
            faults.warn_of_still_chains(counts)
            faults.warn_of_nonfinite_data(counts, self.target)
        if "batch_size" in info:
            size = self.target.train_size or 1
            faults.warn_of_large_batches(info["batch_size"], size)
        position = tree.pack_sequence_as(self.structure, position)
        saved = self.saved(outcome)
        return Draws(position, log_weights, info, saved, outcome.interrupted)
