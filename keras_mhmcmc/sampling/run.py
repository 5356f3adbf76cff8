"""`sample`: chains for any density, as one vectorised and compiled program."""

from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms.base import Algorithm
from keras_mhmcmc.algorithms.base import Evaluation
from keras_mhmcmc.algorithms.base import at_step
from keras_mhmcmc.algorithms.base import map_leaves
from keras_mhmcmc.algorithms.contour import ContourSampler
from keras_mhmcmc.algorithms.spike_slab import SpikeSlabSampler
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import reports
from keras_mhmcmc.sampling import resume
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import named_leaves
from keras_mhmcmc.sampling.initial_positions import starting_positions
from keras_mhmcmc.sampling.log_density import LogDensity

tree = keras.tree


def sample(
    kernel,
    init,
    *,
    log_likelihood=None,
    data=None,
    batch_size=None,
    log_prior=None,
    log_density=None,
    num_steps,
    num_chains=1,
    burn_in=0,
    every=1,
    seed=0,
    replacement=False,
    progress=True,
):
    """Runs many chains of a kernel on any density.

    Samples exp(-U/T) as the kernel's documentation says, with the energy U = -log
    density in nats, or U = -(sum of log-likelihoods + log prior) over all of the data.
    All chains run as one vectorised program in a compiled loop; each draws its own
    mini-batches. Memory grows with the draws that are kept, and with nothing else.

    Each step evaluates the density once, the first one at `init`; a draw is a position
    that was evaluated, with its own energy.

    Args:
        kernel: what a function of `mh.kernels` builds, such as `mh.kernels.sgld(0.1)`.
        init: where the chains start, a tensor or a dict (or tuple) of tensors: one
            position for all chains, or tensors with a first axis of length
            `num_chains`. Or the `state` of earlier draws: then the chains go on from
            there, bit for bit as if they had not stopped (`num_chains` and `seed` are
            those of the state).
        log_likelihood: function of (position, batch) of one chain, which gives the
            log-likelihood of each example, shape (batch_size,), in nats, written with
            `keras.ops`. `batch` has the structure of `data`.
        data: array, or tuple or dict of arrays, with one row for each example.
        batch_size: examples in a mini-batch, m; defaults to all of the data.
        log_prior: function of a position, its log density; None is a flat prior.
        log_density: function of a position, its log density up to a constant, instead
            of `log_likelihood` and `data`.
        num_steps: steps of each chain, more than `burn_in`.
        num_chains: number of chains, K.
        burn_in: steps before the first one that may be kept.
        every: keep each `every`-th step after that (thinning).
        seed: integer in [0, 2**31) that makes the run repeatable.
        replacement: whether a mini-batch may hold an example twice. By default it is
            drawn without replacement, as in the papers.
        progress: whether to show a bar with rate, acceptance and time left.

    Returns:
        `Draws`: `position`, `weights`, `info`, `state`, `to_arviz()`. After Ctrl-C,
        with a warning, the draws until then.

    Raises:
        ValueError: an argument is outside its range, a function gives a wrong shape, or
            the density at `init` is not finite, or so large that float32 does not
            hold the differences that the kernel decides on; before a step is run.

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
    """
    _validate.instance(
        "kernel",
        kernel,
        Algorithm,
        "built by `mh.kernels`, such as mh.kernels.sgld(0.1)",
    )
    plan = checked_plan(num_steps, burn_in, every)
    _validate.choice("progress", progress, (True, False))
    seed = _validate.seed(seed)
    target = LogDensity(
        log_density=log_density,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        data=data,
        batch_size=batch_size,
        replacement=replacement,
    )
    kernel = kernel.bind_data_size(target.train_size, target.batch_size)
    if isinstance(init, ChainState):
        values, structure, shapes, start, seed = resume.checked(init)
        kernel = bound_to_weights(kernel, structure, shapes)
        template = resume.first_state(kernel, [ops.zeros(shape) for shape in shapes])
        state = resume.restored(template, values, "the same kernel")
    else:
        num_chains = _validate.integer("num_chains", num_chains, 1)
        structure = starting_positions(init, num_chains, target.check)
        position, start = tree.flatten(structure), 0
        shapes = [tuple(ops.shape(x)) for x in position]
        kernel = bound_to_weights(kernel, structure, shapes)
        state = resume.first_state(kernel, position)
    program = Program(kernel, target, structure, shapes)
    if start == 0:
        program.check_start(state, seed)

    outcome = loop.run(
        program.step,
        program.noise,
        state,
        target.constants,
        plan,
        seed=seed,
        start=start,
        names=program.counts,
        progress=progress,
        # On TensorFlow XLA takes minutes to compile a likelihood of gathered batches.
        fuse=not target.draws_batches,
    )
    return program.draws(outcome, seed, start)


class Weight(NamedTuple):
    """A tensor of a position, as algorithms choose weights by."""

    path: str
    shape: tuple[int, ...]  # the chain axis first


def bound_to_weights(
    kernel: Algorithm, structure: Any, shapes: list[tuple[int, ...]]
) -> Algorithm:
    """Return the algorithm for positions of this structure and these shapes."""
    numbers = tree.pack_sequence_as(structure, list(range(len(shapes))))
    names = {number: name for name, number in named_leaves(numbers).items()}
    weights = [Weight(names[i], shape) for i, shape in enumerate(shapes)]
    return kernel.bind_weights(weights, has_chains=True)


class Program:
    """One step of K chains of an algorithm on a target, as the compiled loop takes it.

    Args:
        kernel: the algorithm, bound to the data and to the weights.
        target: a `LogDensity`.
        structure: of a position.
        shapes: of the position's tensors, the chain axis first.
        recorded: how many chains, the first ones, are recorded; None is all.
    """

    def __init__(
        self,
        kernel: Algorithm,
        target: LogDensity,
        structure: Any,
        shapes: list[tuple[int, ...]],
        recorded: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.target = target
        self.num_chains = shapes[0][0]
        self.structure = tree.map_structure(lambda _: 0, structure)
        counts = kernel.traits.counts
        self.counts = counts if "nonfinite" in counts else (*counts, "nonfinite")
        self._shapes = shapes
        self._recorded = recorded

    def noise(self, seed: Tensor, number: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the noise of a step: normals, and uniforms of kernel and batch."""
        uniforms = self.kernel.traits.num_uniforms + self.target.num_uniforms
        shape = (uniforms, self.num_chains)
        return _backend.draw(seed, number, self._shapes, shape)

    def step(
        self, state: Any, constants: list[Tensor], noise: Any, number: Tensor
    ) -> tuple[Any, list[Tensor], list[Tensor]]:
        """Return the next state, what to record, and counts."""
        kernel, target = self.kernel, self.target
        normals, uniforms = noise
        own = kernel.traits.num_uniforms
        evaluate = target.energies(
            self.structure,
            constants,
            kernel.traits.uses_gradient,
            kernel.traits.uses_energy_variance,
        )
        energy, gradient, *variance = evaluate(
            kernel.point(state), target.batch_indices(uniforms[own:])
        )
        evaluation = Evaluation(
            energy,
            gradient,
            normals,
            uniforms[:own],
            ops.convert_to_tensor(number),
            at_step(kernel.learning_rate, number),
            at_step(kernel.temperature, number),
            target.train_size or 1,
            *variance,
        )
        current, info = kernel.decide(state, evaluation)
        counts = {"nonfinite": ops.cast(~ops.isfinite(energy), "float32")}
        counts |= info.counts
        records = [*current.position, current.energy]
        if kernel.traits.has_weights:
            records.append(info.log_weight)
        if self._recorded is not None:
            records = [record[: self._recorded] for record in records]
        state = kernel.move(current, evaluation)
        return state, records, [counts[name] for name in self.counts]

    def check_start(self, state: Any, seed: int) -> None:
        """Raise an error if energies at the start are not finite, or too coarse."""
        _, uniforms = self.noise(seed, 0)
        indices = self.target.batch_indices(uniforms[self.kernel.traits.num_uniforms :])
        point = self.kernel.point(state)
        energy = resume.check_finite(self.target, self.structure, point, indices)
        unit = self.kernel.energy_unit(0)
        resume.check_resolution(energy, unit, self.target.function_name)

    def summary(self, outcome: loop.Outcome) -> dict[str, Any]:
        """Return what the steps say of each chain, arrays (chain,)."""
        counts = {
            name: np.zeros(self.num_chains) + value
            for name, value in outcome.counts.items()
        }
        state = map_leaves(ops.convert_to_numpy, outcome.state)
        counted = {"nonfinite": counts["nonfinite"]}
        return counted | self.kernel.summary(state, counts)

    def draws(self, outcome: loop.Outcome, seed: int, start: int) -> Draws:
        """Return the `Draws` of a run."""
        arrays = resume.kept_records(outcome, self._shapes, self.num_chains)
        position, energy = arrays[: len(self._shapes)], arrays[len(self._shapes)]
        log_weights = arrays[-1] if self.kernel.traits.has_weights else None
        steps = start + outcome.steps
        state = resume.saved(outcome.state, self.structure, self._shapes, steps, seed)
        info = {"energy": energy, **self.summary(outcome)}
        # A chain that was lost stays lost.
        resume.warn_of_lost_chains(~np.isfinite(energy[:, -1:]).all(axis=1))
        resume.warn_of_coarse_energies(energy, self.kernel.energy_unit(steps - 1))
        if isinstance(self.kernel, ContourSampler):
            info |= reports.of_contour(self.kernel, outcome.state, energy)
        if isinstance(self.kernel, SpikeSlabSampler):
            info |= reports.of_spike_slab(self.kernel, outcome.state, self.structure)
        return Draws(
            tree.pack_sequence_as(self.structure, position),
            log_weights,
            info,
            state,
            outcome.interrupted,
        )


def checked_plan(num_steps: int, burn_in: int, every: int) -> loop.Plan:
    """Return how long to run and what to keep, or raise a `ValueError`."""
    num_steps = _validate.integer("num_steps", num_steps, 1)
    burn_in = _validate.integer("burn_in", burn_in, 0)
    every = _validate.integer("every", every, 1)
    plan = loop.Plan(num_steps, burn_in, every)
    if plan.num_draws < 1:
        raise ValueError(
            "Argument `num_steps` must be at least `burn_in` + `every`, for a draw to "
            f"be kept. Received: num_steps={num_steps}, burn_in={burn_in}, "
            f"every={every}"
        )
    return plan
