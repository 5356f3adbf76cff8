"""`sample`: chains for any density, as one vectorised and compiled program."""

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import resume as states
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.initial_positions import starting_positions
from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.transitions import Kernel
from keras_mhmcmc.transitions import Step

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
        kernel: what `mh.kernels.sgld`, `psgld`, `sghmc`, `csgld`, `csghmc`, `mhbt` or
            `mint` builds.
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
        "kernel", kernel, Kernel, "built by `mh.kernels`, such as mh.kernels.sgld(0.1)"
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
    kernel = kernel.fit(target.train_size, target.batch_size)
    if isinstance(init, ChainState):
        values, structure, shapes, start, seed = states.checked(init)
        state = states.restored(kernel, shapes, values, "the same kernel")
    else:
        num_chains = _validate.integer("num_chains", num_chains, 1)
        structure = starting_positions(init, num_chains, target.check)
        position, start = tree.flatten(structure), 0
        shapes = [tuple(ops.shape(x)) for x in position]
        state = kernel.init(position)
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
        names=kernel.count_names,
        progress=progress,
        # On TensorFlow XLA takes minutes to compile a likelihood of gathered batches.
        fuse=not target.draws_batches,
    )
    return program.draws(outcome, seed, start)


class Program:
    """One step of K chains of a kernel on a target, as the compiled loop takes it."""

    def __init__(self, kernel, target, structure, shapes):
        self.kernel = kernel
        self.target = target
        self.num_chains = shapes[0][0]
        self.structure = tree.map_structure(lambda _: 0, structure)
        self._shapes = shapes

    def noise(self, seed, number):
        """The draws of a step: normals, and uniforms (kernel's and batch's, K)."""
        uniforms = self.kernel.num_uniforms + self.target.num_uniforms
        shape = (uniforms, self.num_chains)
        return _backend.draw(seed, number, self._shapes, shape)

    def step(self, state, constants, draws, number):
        """The next state, what to record, and counts."""
        state, record = self._advance(state, constants, draws, number)
        records = [*record.position, record.energy]
        if self.kernel.has_weights:
            records.append(record.log_weight)
        counts = [record.counts[name] for name in self.kernel.count_names]
        return state, records, counts

    def _advance(self, state, constants, draws, number):
        normals, uniforms = draws
        own = self.kernel.num_uniforms
        evaluate = self.target.energies(
            self.structure,
            constants,
            self.kernel.uses_gradient,
            self.kernel.uses_energy_variance,
        )
        energy, gradient, *variance = evaluate(
            self.kernel.point(state), self.target.batch_indices(uniforms[own:])
        )
        train_size = self.target.train_size or 1
        step = Step(
            energy, gradient, normals, uniforms[:own], number, train_size, *variance
        )
        return self.kernel.advance(state, step)

    def check_start(self, state, seed):
        """Raises where energies at the start are not finite, or too coarse."""
        _, uniforms = self.noise(seed, 0)
        indices = self.target.batch_indices(uniforms[self.kernel.num_uniforms :])
        point = self.kernel.point(state)
        energy = states.check_finite(self.target, self.structure, point, indices)
        unit = self.kernel.energy_unit(0)
        states.check_resolution(energy, unit, self.target.function_name)

    def draws(self, outcome, seed, start):
        """The `Draws` of a run."""
        arrays = states.kept_records(outcome, self._shapes, self.num_chains)
        position, energy = arrays[: len(self._shapes)], arrays[len(self._shapes)]
        log_weights = arrays[-1] if self.kernel.has_weights else None
        steps = start + outcome.steps
        state = states.saved(outcome.state, self.structure, self._shapes, steps, seed)
        info = {"energy": energy, **summarized(outcome.counts, self.num_chains)}
        # A chain that was lost stays so.
        states.warn_of_lost_chains(~np.isfinite(energy[:, -1:]).all(axis=1))
        states.warn_of_coarse_energies(energy, self.kernel.energy_unit(steps - 1))
        info |= self.kernel.report(outcome.state, info)
        return Draws(
            tree.pack_sequence_as(self.structure, position),
            log_weights,
            info,
            state,
            outcome.interrupted,
        )


def checked_plan(num_steps, burn_in, every):
    """How long to run and what to keep, or a `ValueError`."""
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


def summarized(counts, num_chains):
    """Counts as shares where they are shares, each of shape (chain,)."""
    counts = {name: np.zeros(num_chains) + value for name, value in counts.items()}
    info = {}
    for name, value in counts.items():
        if name.endswith("proposed"):
            accepted = counts[name.removesuffix("proposed") + "accepted"]
            share = np.divide(accepted, value, where=value > 0, out=value * np.nan)
            info[name.removesuffix("proposed") + "acceptance"] = share
        elif not name.endswith("accepted"):
            info[name] = value
    return info
