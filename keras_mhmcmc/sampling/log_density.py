"""The target of `mh.sample`: the user's functions, checked, and their energy."""

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.replica_exchange import energy_variance

tree = keras.tree

_GOLDEN = -1640531535  # odd, so that no two parts of a step share a seed
_LARGEST = 2**31 - 1
_COARSE = 0.01  # longest step of float32, in standard deviations of a column

Function = Callable[..., Tensor]  # of the user
# Arguments: positions with a chain axis, and the list of `batch_indices`. Results: U in
# nats, (K,); the gradients of U/N, or an empty list; and perhaps the variance of the
# estimate of U in nats^2, (K,).
Energies = Callable[[Position, list[Tensor]], tuple[Any, ...]]


class LogDensity:
    """The energy U(theta) of K chains at once, from the functions of the user.

    It is -(N/m sum_I log p(x_i|theta) + log prior), or minus the log density.
    """

    def __init__(
        self,
        log_density: Function | None = None,
        log_likelihood: Function | None = None,
        log_prior: Function | None = None,
        data: Any = None,
        batch_size: int | None = None,
        replacement: bool = False,
    ) -> None:
        functions = {
            "log_density": log_density,
            "log_likelihood": log_likelihood,
            "log_prior": log_prior,
        }
        _check_functions(functions, data, batch_size)
        self._functions = {
            name: _backend.with_arrays(function)
            for name, function in functions.items()
            if function is not None
        }
        self.constants: list[Tensor] = []  # the arrays of the data
        self.train_size = self.batch_size = 1  # N and m; 1 without data
        self.has_data, self.has_prior = data is not None, log_prior is not None
        self.replacement = _validate.choice("replacement", replacement, (True, False))
        self._data = data
        if data is not None:
            arrays = _checked_arrays(data)
            self.train_size = len(arrays[0])
            size = self.train_size if batch_size is None else batch_size
            self.batch_size = _validate.integer("batch_size", size, 1)
            if self.batch_size > self.train_size:
                raise ValueError(
                    "Argument `batch_size` must be at most the number of examples in "
                    f"`data`. Received: batch_size={size}, and data with "
                    f"{self.train_size} examples"
                )
            self.constants = [ops.convert_to_tensor(array) for array in arrays]

    @property
    def function_name(self) -> str:
        return next(iter(self._functions))

    @property
    def draws_batches(self) -> bool:
        return self.batch_size < self.train_size

    @property
    def signature(self) -> tuple[Any, ...]:
        """What a compiled loop depends on, besides the functions of the user."""
        data = repr(tree.map_structure(lambda _: 0, self._data))
        arrays = [
            (tuple(array.shape), keras.backend.standardize_dtype(array.dtype))
            for array in self.constants
        ]
        return (data, *arrays, self.batch_size, self.replacement)

    @property
    def num_uniforms(self) -> int:
        return batches.num_rounds(self.train_size) if self.draws_batches else 0

    def batch_indices(self, uniforms: Tensor) -> list[Tensor]:
        """Return a list of one int32 tensor (K, m), or [] if a batch is all data."""
        if not self.draws_batches:
            return []
        sizes = self.train_size, self.batch_size
        return [batches.draw_batches(uniforms, *sizes, self.replacement)]

    def energies(
        self,
        structure: Any,
        constants: list[Tensor],
        differentiate: bool,
        variance: bool = False,
    ) -> Energies:
        """Return the function that evaluates all chains, of lists of tensors."""
        size = self.train_size
        scale = 1.0 / size

        def mean_energy(
            position: Position, indices: list[Tensor], constants: list[Tensor]
        ) -> Any:
            position = tree.pack_sequence_as(structure, position)
            if "log_density" in self._functions:
                return scale * -self._value("log_density", position)
            each = self.log_likelihoods(position, indices, constants)
            energy = -size * ops.mean(each) - self.log_prior(position)
            if not variance:
                return scale * energy
            return scale * energy, [energy_variance(each, size, self.replacement)]

        evaluate = _backend.map_chains(mean_energy, constants, differentiate, variance)

        def energies(position: Position, indices: list[Tensor]) -> tuple[Any, ...]:
            values, gradient, *others = evaluate(position, indices)
            return values / scale, gradient, *sum(others, [])

        return energies

    def log_likelihoods(
        self, position: Any, indices: list[Tensor], constants: list[Tensor]
    ) -> Tensor:
        """Return one chain's log-likelihood of each example, float32, (m,)."""
        arrays = constants
        if indices:
            arrays = _backend.gather(constants, indices[0])
        batch = tree.pack_sequence_as(self._data, arrays)
        return self._value("log_likelihood", position, batch)

    def log_prior(self, position: Any) -> Tensor:
        """Return one chain's log prior, float32, (); 0 for a flat prior."""
        return self._value("log_prior", position) if self.has_prior else 0.0

    def _value(self, name: str, *arguments: Any) -> Tensor:
        return ops.cast(self._call(name, *arguments), "float32")

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return self._functions[name](*arguments)
        except Exception as error:
            error.add_note(
                f"Argument `{name}` raised this error at the position of one chain, a "
                "float32 tensor. Write it for all chains at once: with `keras.ops`, "
                "not with numpy, `float()`, `if` or loops over the position, and with "
                "constants of dtype float32."
            )
            raise

    def check(self, position: Any) -> float:
        """Return a log density, of the first batch, or raise an error: wrong shapes."""

        def value(
            name: str, shape: tuple[int | None, ...], meaning: str, *batch: Any
        ) -> float:
            found = self._call(name, position, *batch)
            _check_shape(name, found, shape, position, meaning)
            return float(np.sum(ops.convert_to_numpy(found), dtype="float64"))

        one = "one number, the log density"
        if "log_density" in self._functions:
            return value("log_density", (), one)
        each = "one log-likelihood for each example of the batch, neither summed nor "
        arrays = [array[: self.batch_size] for array in self.constants]
        batch = tree.pack_sequence_as(self._data, arrays)
        total = value("log_likelihood", (self.batch_size,), each + "averaged", batch)
        return total + (value("log_prior", (), one) if self.has_prior else 0.0)


class StepDensity:
    """The target of K chains at one step: see `samplers.base.Density`."""

    correct: Callable[[Energies], Energies] | None = None  # by control variates

    def __init__(
        self,
        target: LogDensity,
        structure: Any,
        shapes: list[tuple[int, ...]],
        data: list[Tensor],
        noise: tuple[Any, Any],  # of `Program.noise`
        number: Tensor,
        arrays: Sequence[Tensor] = (),
        is_flat: bool = False,  # whether a position is a list of one tensor (K, d)
        draws_once: bool = False,  # whether the noise is drawn already
    ) -> None:
        self._is_flat, self._draws_once = is_flat, draws_once
        self._target, self._structure, self._shapes = target, structure, shapes
        self._data, self.arrays = data, list(arrays)
        self.noise, self.number = noise, number
        self.train_size = target.train_size

    def evaluation(self, algorithm: Algorithm, point: Position) -> Evaluation:
        traits, target, number = algorithm.traits, self._target, self.number
        normals, uniforms = self.noise
        wanted = traits.uses_gradient, traits.uses_energy_variance
        evaluate = target.energies(self._structure, self._data, *wanted)
        if self.correct is not None:
            evaluate = self.correct(evaluate)
        own = traits.num_uniforms
        indices = target.batch_indices(uniforms[own:])
        energy, gradient, *variance = evaluate(point, indices)
        return Evaluation(
            energy,
            gradient,
            normals,
            uniforms[:own],
            ops.convert_to_tensor(number),
            at_step(algorithm.learning_rate, number),
            at_step(algorithm.temperature, number),
            self.train_size,
            *variance,
        )

    def log_likelihoods(self, positions: list[Position], index: Tensor) -> list[Tensor]:
        count = len(self._shapes)

        def of_chain(
            leaves: Position, index: list[Tensor], data: list[Tensor]
        ) -> list[Tensor]:
            parts = [leaves[i : i + count] for i in range(0, len(leaves), count)]
            return [
                self._target.log_likelihoods(self._packed(part), index, data)
                for part in parts
            ]

        evaluate = _backend.map_chains(of_chain, self._data, False)
        return evaluate(sum(positions, []), [index])[0]

    def log_prior(self, position: Position) -> Tensor:
        if not self._target.has_prior:
            return ops.zeros((self._shapes[0][0],), "float32")
        return _backend.map_chains(self._log_prior, [], False)(position, [])[0]

    def energies(self, position: Position) -> Tensor:
        return self._energies(position, [], False)[0]

    def energies_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        return self._energies(position, [], True)

    def energies_above(
        self, position: Position, order: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Position, Tensor]:
        n, target = self.train_size, self._target
        size, few = [*sizes, 1][:2]
        whole = size == n
        indices = batches.draw_batches(order, n, few if whole else size)

        def of_chain(
            leaves: Position, extra: list[Tensor], constants: list[Tensor]
        ) -> tuple[Tensor, list[Tensor]]:
            point = self._packed(leaves)
            *data, reference = constants
            each = target.log_likelihoods(point, [] if whole else extra, data)
            if whole:
                each = each - reference
                (part,) = _backend.gather([each], extra[0])
            else:
                each = each - _backend.gather([reference], extra[0])[0]
                part = each[:few]
            log_prior = target.log_prior(point)
            # The second energy decides on jumps alone and needs no gradient.
            return -n * ops.mean(each) - log_prior, [-n * ops.mean(part) - log_prior]

        constants = [*self._data, *self.arrays]
        evaluate = _backend.map_chains(of_chain, constants, True, True)
        value, gradient, (other,) = evaluate(position, [indices])
        return value, gradient, other

    def gradient(self, position: Position, batch_size: int, part: Tensor) -> Position:
        index = []
        if batch_size < self.train_size:
            rounds = batches.num_rounds(self.train_size)
            keys = self.uniforms(rounds, 1, part)[:, :, 0]
            index = [batches.draw_batches(keys, self.train_size, batch_size)]
        return self._energies(position, index, True)[1]

    def weighted_gradient(
        self, position: Position, index: Tensor, weights: Tensor
    ) -> Position:
        def of_chain(
            leaves: Position, extra: list[Tensor], data: list[Tensor]
        ) -> Tensor:
            index, weights = extra
            values = self._target.log_likelihoods(self._packed(leaves), [index], data)
            return ops.sum(weights * values)

        evaluate = _backend.map_chains(of_chain, self._data, True)
        return list(evaluate(position, [index, weights])[1])

    def prior_gradient(self, position: Position) -> Position:
        if not self._target.has_prior:
            return [ops.zeros_like(x) for x in position]
        return list(_backend.map_chains(self._log_prior, [], True)(position, [])[1])

    def uniforms(self, count: int, size: int, part: Tensor) -> Tensor:
        shape = (count, self._shapes[0][0], size)
        return _backend.draw(*seed_of(self.noise, 2 * part + 1), [], shape)[1]

    def normals(self, part: Tensor) -> Position:
        if self._draws_once:
            return self.noise[0]
        return normals_of(self.noise, part, self._shapes, self._is_flat)

    def _energies(
        self, position: Position, index: list[Tensor], differentiate: bool
    ) -> tuple[Tensor, Position]:
        """Return U on mini-batches, or on all of the data, and its gradient."""
        evaluate = self._target.energies(self._structure, self._data, differentiate)
        if not self._is_flat:
            energy, gradient = evaluate(position, index)
            return energy, list(gradient)
        energy, gradient = evaluate(tensors.unflat(position[0], self._shapes), index)
        return energy, [tensors.flat(gradient)] if differentiate else []

    def _log_prior(self, leaves: Position, _: list[Tensor], __: list[Tensor]) -> Tensor:
        return self._target.log_prior(self._packed(leaves))

    def _packed(self, leaves: Position) -> Any:
        return tree.pack_sequence_as(self._structure, leaves)


def seed_of(noise: tuple[Any, Any], part: Tensor) -> tuple[Tensor, Tensor]:
    """Return seed and number of a part; integers stay plain, as PyTorch needs."""
    seed, number = noise
    return seed ^ (((part + 1) * _GOLDEN) & _LARGEST), number


def normals_of(
    noise: tuple[Any, Any], part: Tensor, shapes: list[tuple[int, ...]], is_flat: bool
) -> Position:
    """Return normals like a position, from the seed and the number of a step."""
    if is_flat:
        shapes = [(shapes[0][0], sum(math.prod(shape[1:]) for shape in shapes))]
    return _backend.draw(*seed_of(noise, 2 * part), shapes, (0,))[0]


def _check_functions(functions: dict[str, Any], data: Any, batch_size: Any) -> None:
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ValueError(
                f"Argument `{name}` must be a function. "
                f"Received: {name}={_validate.shown(function)}"
            )
    has_density = functions["log_density"] is not None
    if has_density == (functions["log_likelihood"] is not None):
        raise ValueError(
            "Exactly one of the arguments `log_density` and `log_likelihood` must be "
            "given: a log density of the position alone, or a log-likelihood of the "
            "position and a batch of `data`. Received: "
            + ("both" if has_density else "neither")
        )
    if has_density:
        others = {"log_prior": functions["log_prior"], "data": data}
        others["batch_size"] = batch_size
        for name, value in others.items():
            if value is not None:
                raise ValueError(
                    f"Argument `{name}` must be None with `log_density`: it goes with "
                    f"`log_likelihood`. Received: `{name}` and `log_density`"
                )
    elif data is None:
        raise ValueError(
            "Argument `data` must be given with `log_likelihood`: an array, or a tuple "
            "or dict of arrays, with one row for each example. Received: data=None"
        )


def _checked_arrays(data: Any) -> list[Array]:
    arrays = [
        _validate.array("Argument `data`", a, dtype=None) for a in tree.flatten(data)
    ]
    shapes = [array.shape for array in arrays]
    lengths = {shape[:1] for shape in shapes}
    if len(lengths) != 1 or lengths & {(), (0,)}:
        raise ValueError(
            "Argument `data` must hold arrays of equal length, with one row for each "
            f"example, and at least one row. Received: arrays of the shapes {shapes}"
        )
    if shapes[0][0] > batches.LARGEST_TRAIN_SIZE:
        raise ValueError(
            f"Argument `data` must have at most {batches.LARGEST_TRAIN_SIZE} examples. "
            f"Received: {shapes[0][0]}"
        )
    return [_in_32_bits(array) for array in arrays]


def _in_32_bits(array: Array) -> Array:
    """Return an array as the backends compute with it, or raise a `ValueError`."""
    if array.dtype == "float64":
        return _as_float32(array)
    if array.dtype.kind == "f":  # half precision would round a scalar position
        return array.astype("float32")
    if array.dtype.kind not in "iu":
        return array
    low, high = np.iinfo("int32").min, np.iinfo("int32").max
    if array.min() < low or array.max() > high:
        raise ValueError(
            "Argument `data` must hold integers of 32 bits: JAX would change the "
            "others. Pass the array as float, less a constant. Received: integers "
            f"between {array.min()} and {array.max()}"
        )
    return array.astype("int32")  # 1 - 2 * y of unsigned integers would be 255


def _as_float32(array: Array) -> Array:
    """Return an array in float32. Warn if this rounds away what its columns tell."""
    with np.errstate(all="ignore"):  # numbers that are not finite tell nothing
        spread = np.atleast_1d(np.std(array, axis=0))
        largest = np.atleast_1d(np.max(np.abs(array), axis=0))
        steps = np.spacing(largest.astype("float32"))
        coarse = (spread > 0.0) & (steps > _COARSE * spread)
    if np.any(coarse):
        warn(
            "Argument `data` is rounded to float32, whose steps are longer than a "
            "hundredth of the standard deviation of some columns. Subtract a constant "
            f"from these columns first. Received: {np.sum(coarse)} columns, such as "
            f"one with the standard deviation {spread[coarse][0]:.3g} and steps of "
            f"{steps[coarse][0]:.3g} in float32"
        )
    return array.astype("float32")


def _check_shape(
    name: str, value: Any, shape: tuple[int | None, ...], position: Any, meaning: str
) -> None:
    if not ops.is_tensor(value):
        raise ValueError(
            f"Argument `{name}` must return a tensor, {meaning}. Compute it with "
            f"`keras.ops`. Received: a function that returns {_validate.shown(value)}"
        )
    actual = tuple(ops.shape(value))
    if actual != shape:
        shapes = tree.map_structure(lambda x: tuple(ops.shape(x)), position)
        raise ValueError(
            f"Argument `{name}` must return {meaning}, shape {shape}, for the position "
            f"of one chain. Received: a function that returns shape {actual} at a "
            f"position of shape {shapes}"
        )
