"""`sample`: chains on any density, as one vectorised and compiled program."""

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
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Transition
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.contour import ContourSampler
from keras_mhmcmc.samplers.spike_slab import SpikeSlabSampler
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import plans
from keras_mhmcmc.sampling import reports
from keras_mhmcmc.sampling import resume
from keras_mhmcmc.sampling import reuse
from keras_mhmcmc.sampling import transitions
from keras_mhmcmc.sampling.control_variates import ControlVariates
from keras_mhmcmc.sampling.control_variates import check_arguments
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import named_leaves
from keras_mhmcmc.sampling.initial_positions import starting_positions
from keras_mhmcmc.sampling.log_density import LogDensity

tree = keras.tree

# A step of 400 gathered examples on TensorFlow took 47 us with XLA, 128 us without, of
# 3,200 251 and 298 us, and of 10,000 1,136 and 706 us.
_FUSED_EXAMPLES = 4096

_WAYS: tuple[bool | str, ...] = ("auto", True, False)

BoundAlgorithm = TypeVar("BoundAlgorithm", bound=Algorithm)


@plans.in_float32
def sample(
    kernel: Algorithm | Transition,
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
    All chains run as one vectorised program in a compiled loop. Each chain draws its
    own mini-batches. Memory grows only with the number of draws that are kept.

    Each step of most kernels evaluates the density once, the first at `init`. A draw is
    an evaluated position, with its own energy.

    Args:
        kernel: from a function of `mh.kernels`, such as `mh.kernels.sgld(0.1)`.
        init: where the chains start, a tensor, or a dict or tuple of tensors: one
            position for all chains, or tensors with a first axis of length
            `num_chains`. Or the `state` of earlier draws: the chains then go on, bit
            for bit as if they had not stopped, and `num_chains` and `seed` come from
            the state.
        log_likelihood: function of (position, batch) of one chain, written with
            `keras.ops`. It returns the log-likelihood of each example in nats, shape
            (batch_size,). `batch` has the structure of `data`.
        data: array, or tuple or dict of arrays, with one row for each example.
        batch_size: examples in a mini-batch, m. Defaults to all of the data.
        log_prior: function of a position. It returns the log prior, shape (). None is
            a flat prior.
        log_density: function of a position, instead of `log_likelihood` and `data`. It
            returns the log density up to a constant, shape ().
        num_steps: steps of each chain, at least `burn_in` + `every`.
        num_chains: number of chains, K. Defaults to 1.
        burn_in: number of first steps that are not kept. Defaults to 0.
        every: keep each `every`-th step after the burn-in (thinning). Defaults to 1.
        seed: integer in [0, 2**31) that makes the run repeatable. Defaults to 0.
        replacement: whether a mini-batch may hold an example twice. By default a batch
            is drawn without replacement, as in the papers.
        control_variates: a position of one chain near the mode, the reference, in the
            structure of `init`. It reduces the noise of mini-batch gradients. A step
            uses its mini-batch only for the difference between the gradients at the
            chain's position and at the reference. It adds the gradient of all of the
            data at the reference, which the run computes once. The gradient stays
            unbiased. A step evaluates its batch twice. Only for `sgld`, `psgld`,
            `sghmc` and `sgnht`, with `log_likelihood` and mini-batches. Find the mode
            by optimisation first, or take the `reference` of
            `mh.expansions.logistic_regression`. Far from the reference the noise may be
            larger than without. `info["energy"]` is corrected in the same way. None
            uses the plain gradient of the mini-batch.
        progress: whether to show a bar with the speed, the acceptance and the time
            left.
        jit_compile: "auto", True or False. On PyTorch True compiles the step, with the
            compiler of `torch.compile`. This takes seconds, and then small steps take
            a fraction of the time. Kernels that draw noise within a step, such as
            `tuna` and `hmc`, cannot be compiled. "auto" and False do not compile. On
            TensorFlow True and False switch XLA on and off, and "auto" uses XLA where
            it makes a step faster. JAX always compiles, and refuses False. Defaults to
            "auto".

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
        (Algorithm, Transition),
        "built by `mh.kernels`, such as mh.kernels.sgld(0.1)",
    )
    plan = plans.checked_plan(num_steps, burn_in, every)
    _validate.choice("progress", progress, (True, False))
    jit_compile = _validate.choice("jit_compile", jit_compile, _WAYS)
    seed = _validate.seed(seed)
    target = LogDensity(
        log_density=log_density,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        data=data,
        batch_size=batch_size,
        replacement=replacement,
    )
    given = kernel
    if isinstance(kernel, Transition):
        transitions.check_arguments(kernel, target, replacement)
        kernel = kernel.bind_data_size(target.train_size, batch_size)
    else:
        kernel = kernel.bind_data_size(target.train_size, target.batch_size)
    if isinstance(kernel, SpikeSlabSampler) and kernel.is_regression:
        target.check_squared_errors()
    if control_variates is not None:
        check_arguments(kernel, target)
    saved = None
    if isinstance(init, ChainState):
        saved = resume.checked(init)
        _, structure, shapes, start, seed, _ = saved
        position = [ops.zeros(shape) for shape in shapes]
    else:
        num_chains = _validate.integer("num_chains", num_chains, 1)
        structure = starting_positions(init, num_chains, target.check)
        position, start = tree.flatten(structure), 0
        shapes = [tuple(ops.shape(x)) for x in position]
    program: Program | transitions.TransitionProgram
    if isinstance(kernel, Transition):
        plans.check_warm_up(kernel.warm_up_argument, start, plan)
        program = transitions.TransitionProgram(kernel, target, structure, shapes)
    else:
        kernel = bound_to_weights(kernel, structure, shapes)
        plans.check_warm_up(
            kernel.traits.warm_up_argument, start, plan, kernel.traits.warm_up
        )
        reference = None
        if control_variates is not None:
            reference = ControlVariates(control_variates, target, structure, shapes)
        program = Program(kernel, target, structure, shapes, reference=reference)
    state = resume.first_state(kernel, position)
    if saved is not None:
        name = resume.kernel_of(kernel)
        state = resume.restored(state, saved, name, "the same kernel")
        resume.check_functions(saved, target.check)
    if start == 0:
        program.check_start(state, seed)
    outcome = loop.run(
        program.step,
        program.noise,
        transitions.carried(kernel, state, shapes),
        program.constants,
        plan,
        seed=seed,
        start=start,
        names=program.counts,
        progress=progress,
        fuse=program.fuse,
        record_size=resume.record_size(shapes),
        jit_compile=jit_compile,
        check=program.check,
        compile_chains=reuse.compiler(
            [log_density, log_likelihood, log_prior],
            (
                given,
                repr(program.structure),
                *shapes,
                *target.signature,
                control_variates is None,
            ),
        ),
    )
    return reports.told_of_rounding(program.draws(outcome, seed, start))


class Weight(NamedTuple):
    """A tensor of the position, as `Algorithm.bind_weights` takes it."""

    path: str
    shape: tuple[int, ...]  # the chain axis first


def bound_to_weights(
    algorithm: BoundAlgorithm, structure: Any, shapes: list[tuple[int, ...]]
) -> BoundAlgorithm:
    """Return the algorithm for positions of this structure and these shapes."""
    numbers = tree.pack_sequence_as(structure, list(range(len(shapes))))
    names = {number: name for name, number in named_leaves(numbers).items()}
    weights = [Weight(names[i], shape) for i, shape in enumerate(shapes)]
    return algorithm.bind_weights(weights, has_chains=True)


class Program:
    """One step of K chains of an algorithm on a target, for the compiled loop.

    Args:
        algorithm: bound to the data and to the weights.
        target: gives the energies.
        structure: of a position.
        shapes: of the position's tensors, the chain axis first.
        recorded: number of the first chains that are recorded. None records all.
        reference: control variates of the gradients. None uses plain mini-batches.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        target: LogDensity,
        structure: Any,
        shapes: list[tuple[int, ...]],
        recorded: int | None = None,
        reference: ControlVariates | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.target = target
        self.num_chains = shapes[0][0]
        self.structure = tree.map_structure(lambda _: 0, structure)
        self.constants = list(target.constants)
        self._reference = reference
        if reference is not None:
            self.constants += reference.constants
        examples = self.num_chains * (target.batch_size or 1)
        self.fuse = not target.draws_batches or examples <= _FUSED_EXAMPLES
        counts = algorithm.traits.counts
        self.counts = counts if "nonfinite" in counts else (*counts, "nonfinite")
        self._shapes = shapes
        self._recorded = recorded
        self._start: Array | None = None  # energy of each chain, nats

    def noise(self, seed: Tensor, number: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the noise of a step: normals, and uniforms (uniforms, K).

        The first uniforms are the algorithm's, the others the mini-batch's.
        """
        uniforms = self.algorithm.traits.num_uniforms + self.target.num_uniforms
        shape = (uniforms, self.num_chains)
        return _backend.draw(seed, number, self._shapes, shape)

    def step(
        self, state: Any, constants: list[Tensor], noise: Any, number: Tensor
    ) -> tuple[Any, list[Tensor], list[Tensor]]:
        """Return the next state, what to record, and counts."""
        algorithm, target = self.algorithm, self.target
        normals, uniforms = noise
        own = algorithm.traits.num_uniforms
        count = len(target.constants)
        evaluate = target.energies(
            self.structure,
            constants[:count],
            algorithm.traits.uses_gradient,
            algorithm.traits.uses_energy_variance,
        )
        if self._reference is not None:
            evaluate = self._reference.corrected(evaluate, constants[count:])
        energy, gradient, *variance = evaluate(
            algorithm.point(state), target.batch_indices(uniforms[own:])
        )
        evaluation = Evaluation(
            energy,
            gradient,
            normals,
            uniforms[:own],
            ops.convert_to_tensor(number),
            at_step(algorithm.learning_rate, number),
            at_step(algorithm.temperature, number),
            target.train_size or 1,
            *variance,
        )
        current, info = algorithm.decide(state, evaluation)
        counts = {"nonfinite": ops.cast(~ops.isfinite(energy), "float32")}
        counts |= info.counts
        records = [*current.position, current.energy]
        if algorithm.traits.has_weights:
            records.append(info.log_weight)
        if self._recorded is not None:
            records = [record[: self._recorded] for record in records]
        state = algorithm.move(current, evaluation)
        return state, records, [counts[name] for name in self.counts]

    def check_start(self, state: Any, seed: int) -> None:
        """Raise an error if energies at the start are not finite, or too coarse."""
        _, uniforms = self.noise(seed, 0)
        own = self.algorithm.traits.num_uniforms
        indices = self.target.batch_indices(uniforms[own:])
        point = self.algorithm.point(state)
        energy = resume.check_finite(self.target, self.structure, point, indices)
        self._start, unit = energy, self.algorithm.energy_unit(0)
        resume.check_resolution(energy, unit, self.target.function_name)

    def check(self, state: Any) -> None:
        """Accept every state."""

    def counted(self, outcome: loop.Outcome) -> dict[str, Array]:
        """Return what the steps after the burn-in counted, arrays (chain,)."""
        return {
            name: np.zeros(self.num_chains) + value
            for name, value in outcome.counts.items()
        }

    def summary(self, outcome: loop.Outcome) -> dict[str, Any]:
        """Return the diagnostics of each chain by name, arrays (chain,)."""
        counts = self.counted(outcome)
        state = map_leaves(ops.convert_to_numpy, outcome.state)
        counted = {"nonfinite": counts["nonfinite"]}
        return counted | self.algorithm.summary(state, counts)

    def draws(self, outcome: loop.Outcome, seed: int, start: int) -> Draws:
        """Return the `Draws` of a run."""
        count = len(self._shapes)
        arrays = resume.kept_records(outcome, self._shapes, self.num_chains)
        position, energy = arrays[:count], arrays[count]
        log_weights = arrays[-1] if self.algorithm.traits.has_weights else None
        steps = start + outcome.steps
        kernel, shapes = resume.kernel_of(self.algorithm), self._shapes
        state = resume.saved(outcome.state, self.structure, shapes, steps, seed, kernel)
        info = {"energy": energy, **self.summary(outcome)}
        resume.warn_of_lost_chains(energy, self.target)
        if log_weights is None:  # otherwise the chain visits all energies alike
            temperature = at_step(self.algorithm.temperature, steps - 1)
            reports.warn_of_runaway_chains(self._start, energy, temperature, position)
        resume.warn_of_coarse_energies(energy, self.algorithm.energy_unit(steps - 1))
        if self.algorithm.traits.compares_batches:
            resume.warn_of_still_chains(self.counted(outcome))
            resume.warn_of_nonfinite_data(self.counted(outcome), self.target)
        if isinstance(self.algorithm, ContourSampler):
            info |= reports.of_contour(self.algorithm, outcome.state, energy)
        if isinstance(self.algorithm, SpikeSlabSampler):
            info |= reports.of_spike_slab(self.algorithm, outcome.state, self.structure)
        return Draws(
            tree.pack_sequence_as(self.structure, position),
            log_weights,
            info,
            state,
            outcome.interrupted,
        )
