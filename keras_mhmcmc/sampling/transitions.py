"""Transitions in the loop of `mh.sample`: their target, their noise, their draws."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Transition
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.base import map_positions
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import resume
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.log_density import LogDensity

tree = keras.tree

_GOLDEN = -1640531535  # odd, so that no two parts of a step share a seed
_LARGEST = 2**31 - 1


def check_arguments(
    transition: Transition, target: LogDensity, replacement: bool
) -> None:
    """Raise a `ValueError` if arguments of `mh.sample` do not fit the kernel."""
    if transition.needs_examples and target.train_size is None:
        raise ValueError(
            "Argument `log_likelihood` must be given, with `data`: the kernel compares "
            "single examples. Received: `log_density`"
        )
    if replacement:
        raise ValueError(
            "Argument `replacement` must be False: the kernel says itself how it draws "
            "its mini-batches. Received: replacement=True"
        )


def is_flat(kernel: Any, shapes: list[tuple[int, ...]]) -> bool:
    """Return whether the loop carries positions as one tensor (K, d)."""
    return isinstance(kernel, Transition) and kernel.is_flat and len(shapes) > 1


def carried(kernel: Any, state: Any, shapes: list[tuple[int, ...]]) -> Any:
    """Return a state as the loop carries it.

    Args:
        kernel: of the state.
        state: with positions of one tensor for each of `shapes`.
        shapes: of the position's tensors, the chain axis first.
    """
    if not is_flat(kernel, shapes):
        return state
    return map_positions(lambda position: [tensors.flat(position)], state)


class StepDensity:
    """The target of K chains at one step: see `algorithms.transition.Density`.

    Args:
        target: the user's functions and data.
        structure: of a position.
        shapes: of the position's tensors, the chain axis first.
        constants: the arrays of the data, and then those of the transition.
        seed: of the run.
        number: of the step.
        is_flat: whether a position is a list of one tensor (K, d), for all of `shapes`.
    """

    def __init__(
        self,
        target: LogDensity,
        structure: Any,
        shapes: list[tuple[int, ...]],
        constants: list[Tensor],
        seed: Tensor,
        number: Tensor,
        is_flat: bool = False,
    ) -> None:
        self._is_flat = is_flat
        self._target = target
        self._structure = structure
        self._shapes = shapes
        count = len(target.constants)
        self._data, self.arrays = constants[:count], constants[count:]
        self._seed = seed
        self._number = number
        self.train_size = target.train_size or 1

    def log_likelihoods(self, positions: list[Position], index: Tensor) -> list[Tensor]:
        """Return log p(x_i|theta) at each of the positions, float32, (K, B)."""
        count = len(self._shapes)

        def of_chain(
            leaves: Position, index: list[Tensor], data: list[Tensor]
        ) -> tuple[Tensor, list[Tensor]]:
            starts = range(0, len(leaves), count)
            values = [
                self._target.log_likelihoods(
                    self._packed(leaves[start : start + count]), index, data
                )
                for start in starts
            ]
            return ops.sum(values[0]), values

        evaluate = _backend.map_chains(of_chain, self._data, False, True)
        leaves = [leaf for p in positions for leaf in self._leaves(p)]
        return evaluate(leaves, [index])[2]

    def log_prior(self, position: Position) -> Tensor:
        """Return the log prior, float32, (K,)."""
        if not self._target.has_prior:
            return ops.zeros((self._shapes[0][0],), "float32")
        evaluate = _backend.map_chains(self._log_prior, [], False)
        return evaluate(self._leaves(position), [])[0]

    def energies(self, position: Position) -> Tensor:
        """Return U on all of the data, float32, (K,)."""
        evaluate = self._target.energies(self._structure, self._data, False)
        return evaluate(self._leaves(position), [])[0]

    def energies_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        """Return U on all of the data, float32, (K,), and the gradient of U/N."""
        evaluate = self._target.energies(self._structure, self._data, True)
        energy, gradient = evaluate(self._leaves(position), [])
        return energy, self._joined(gradient)

    def gradient(self, position: Position, batch_size: int, part: Tensor) -> Position:
        """Return the gradient of U/N on a random mini-batch of each chain."""
        index = []
        if batch_size < self.train_size:
            rounds = batches.num_rounds(self.train_size)
            keys = self.uniforms(rounds, 1, part)[:, :, 0]
            index = [batches.draw_batches(keys, self.train_size, batch_size)]
        evaluate = self._target.energies(self._structure, self._data, True)
        return self._joined(evaluate(self._leaves(position), index)[1])

    def weighted_gradient(
        self, position: Position, index: Tensor, weights: Tensor
    ) -> Position:
        """Return the gradient of sum_b w_b log p(x_b|theta)."""

        def of_chain(
            leaves: Position, extra: list[Tensor], data: list[Tensor]
        ) -> Tensor:
            index, weights = extra
            values = self._target.log_likelihoods(self._packed(leaves), [index], data)
            return ops.sum(weights * values)

        evaluate = _backend.map_chains(of_chain, self._data, True)
        return self._joined(evaluate(self._leaves(position), [index, weights])[1])

    def prior_gradient(self, position: Position) -> Position:
        """Return the gradient of the log prior."""
        if not self._target.has_prior:
            return [ops.zeros_like(x) for x in position]
        evaluate = _backend.map_chains(self._log_prior, [], True)
        return self._joined(evaluate(self._leaves(position), [])[1])

    def uniforms(self, count: int, size: int, part: Tensor) -> Tensor:
        """Return uniforms, float32, (count, K, size)."""
        shape = (count, self._shapes[0][0], size)
        return _backend.draw(self._seed_of(2 * part + 1), self._number, [], shape)[1]

    def normals(self, part: Tensor) -> Position:
        """Return standard normals like the position."""
        seed, shapes = self._seed_of(2 * part), self._shapes
        if self._is_flat:
            shapes = [(shapes[0][0], sum(math.prod(shape[1:]) for shape in shapes))]
        return _backend.draw(seed, self._number, shapes, (0,))[0]

    def _log_prior(self, leaves: Position, _: list[Tensor], __: list[Tensor]) -> Tensor:
        """Return the log prior of one chain, ()."""
        return self._target.log_prior(self._packed(leaves))

    def _seed_of(self, part: Tensor) -> Tensor:
        """Return the seed of a part. Plain integers stay plain, as PyTorch needs."""
        return self._seed ^ (((part + 1) * _GOLDEN) & _LARGEST)

    def _leaves(self, position: Position) -> Position:
        """Return the tensors of the user's structure."""
        return tensors.unflat(position[0], self._shapes) if self._is_flat else position

    def _joined(self, leaves: Position) -> Position:
        """Return a position from its tensors in the user's structure."""
        return [tensors.flat(leaves)] if self._is_flat else list(leaves)

    def _packed(self, leaves: Position) -> Any:
        return tree.pack_sequence_as(self._structure, leaves)


class TransitionProgram:
    """Steps of a transition on a target, for the compiled loop.

    Args:
        transition: bound to the data.
        target: gives the functions and the data.
        structure: of a position.
        shapes: of the position's tensors, the chain axis first.
    """

    def __init__(
        self,
        transition: Transition,
        target: LogDensity,
        structure: Any,
        shapes: list[tuple[int, ...]],
    ) -> None:
        self.transition = transition
        self.target = target
        self.structure = tree.map_structure(lambda _: 0, structure)
        self.counts = transition.counts
        self.fuse = False  # whether XLA compiles the loop on TensorFlow
        self.constants = [
            *target.constants,
            *(ops.convert_to_tensor(array) for array in transition.arrays),
        ]
        self._shapes = shapes
        self._is_flat = is_flat(transition, shapes)

    def noise(self, seed: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the noise of a step is made from."""
        # PyTorch's generator takes plain integers.
        return (seed if isinstance(seed, int) else ops.cast(seed, "int32")), number

    def step(
        self, state: Any, constants: list[Tensor], noise: Any, number: Tensor
    ) -> tuple[Any, list[Tensor], list[Tensor]]:
        """Return the next state, what to record, and counts."""
        density = StepDensity(
            self.target,
            self.structure,
            self._shapes,
            constants,
            *noise,
            is_flat=self._is_flat,
        )
        state, counts = self.transition.step(state, density)
        return state, list(state.point), [counts[name] for name in self.counts]

    def check_start(self, state: Any, seed: int) -> None:
        """Raise an error if energies at the start are not finite."""
        resume.check_finite(self.target, self.structure, state.point, [])

    def check(self, state: Any) -> None:
        """Raise an error if the state shows that the kernel's settings are wrong."""
        self.transition.check(map_leaves(ops.convert_to_numpy, state))

    def draws(self, outcome: loop.Outcome, seed: int, start: int) -> Draws:
        """Return the `Draws` of a run."""
        num_chains = self._shapes[0][0]
        arrays, state = outcome.arrays, outcome.state
        if arrays is None:
            rows = [shape[1:] for shape in self._shapes]
            arrays = [np.empty((num_chains, 0, *row), "float32") for row in rows]
        elif self._is_flat:
            arrays = _views(arrays[0], self._shapes)
        if self._is_flat:
            state = map_positions(lambda p: tensors.unflat(p[0], self._shapes), state)
        counts = {
            name: np.zeros(num_chains) + value for name, value in outcome.counts.items()
        }
        if "accepted" in counts and not self.transition.warns_of_rejections:
            resume.warn_of_still_chains(counts)
            resume.warn_of_nonfinite_data(counts, self.target)
        steps = start + outcome.steps
        info = self.transition.summary(counts)
        dimension = sum(math.prod(shape[1:]) for shape in self._shapes)
        unit = self.transition.energy_unit(dimension)
        if unit is not None:
            energy = ops.convert_to_numpy(outcome.state.energy)
            resume.warn_of_coarse_energies(energy[:, None], unit)
        if "batch_size" in info:
            _warn_of_large_batches(info["batch_size"], self.target.train_size or 1)
        return Draws(
            tree.pack_sequence_as(self.structure, arrays),
            None,
            info,
            resume.saved(
                state,
                self.structure,
                self._shapes,
                steps,
                seed,
                resume.kernel_of(self.transition),
            ),
            outcome.interrupted,
        )


def _views(rows: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
    """Return draws (chain, draw, d) as one array for each tensor, without a copy."""
    ends = np.cumsum([math.prod(shape[1:]) for shape in shapes])
    parts = np.split(rows, ends[:-1], axis=2)
    return [
        part.reshape(*rows.shape[:2], *shape[1:])
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _warn_of_large_batches(batch_size: Array, train_size: int) -> None:
    """Warn if a test evaluates more examples than there are."""
    mean = float(np.mean(batch_size))
    if mean > train_size:
        warn(
            f"A step of the kernel evaluated {mean:.0f} examples in the mean, and the "
            f"data has {train_size}. A test on all of the data is cheaper: use "
            "`mh.kernels.mhbt` without `batch_size`, or lower the kernel's "
            "`learning_rate` or the number of examples that it draws."
        )
