"""The state that a run starts from, and the state that it leaves."""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Kernel
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.parts.proposals import Proposal
from keras_mhmcmc.sampling.draws import ChainState

tree = keras.tree

# Raise an error if the log density does not take the position of one chain.
Check = Callable[[Any], float]


class Start(NamedTuple):
    structure: Any  # of a position
    shapes: list[tuple[int, ...]]  # of the position's tensors, the chain axis first
    position: list[Tensor]  # zeros if a saved state tells it
    number: int  # of the first step
    seed: int
    saved: ChainState | None

    @property
    def rows(self) -> list[tuple[int, ...]]:
        return [shape[1:] for shape in self.shapes]

    def restored(self, template: Any, kernel: str, check: Check) -> Any:
        """Return the first state: the template, or one with the saved values."""
        if self.saved is None:
            return template
        expected = [tuple(ops.shape(x)) for x in tree.flatten(template)]
        actual = [x.shape for x in self.saved.values]
        self.check_kernel(kernel, expected == actual)
        values = [ops.convert_to_tensor(x) for x in self.saved.values]
        position = [value[0] for value in values[: len(self.shapes)]]
        check(tree.pack_sequence_as(self.structure, position))
        return tree.pack_sequence_as(template, values)

    def check_kernel(self, kernel: str, fits: bool = True) -> None:
        """Raise an error if another kernel has left the saved state."""
        if self.saved is not None and (self.saved.kernel != kernel or not fits):
            raise ValueError(
                "Argument `init` must be the state of draws of the same kernel, with "
                "the same number of temperatures and sizes of batches and rings. For "
                "another run, start from the last positions: take [:, -1] of each "
                "array of `draws.position`, and pass `num_chains`. Received: a state "
                f"of '{self.saved.kernel}', to go on with '{kernel}'"
            )

    def one_position(self, value: Any, name: str) -> list[Array]:
        arrays = checked_arrays(value, name)
        try:
            tree.assert_same_structure(arrays, self.structure)
            fits = [a.shape for a in tree.flatten(arrays)] == self.rows
        except (TypeError, ValueError):
            fits = False
        if not fits:
            expected = tree.pack_sequence_as(self.structure, list(map(list, self.rows)))
            raise ValueError(
                f"Argument `{name}` must be a position of one chain, in the structure "
                f"of `init`, with arrays of the shapes {expected}. Received: "
                f"{name}={_validate.shown(value)}"
            )
        return tree.flatten(arrays)

    def left(self, state: Any, steps: int, kernel: str) -> ChainState:
        """Return the `ChainState` of chains after `steps` steps, in numpy."""
        values = [ops.convert_to_numpy(x) for x in tree.flatten(state)]
        structure = tree.map_structure(lambda _: 0, self.structure)
        return ChainState(values, structure, self.shapes, steps, self.seed, kernel)


def begin(
    init: Any, num_chains: int, seed: int, check: Check, copies: int = 1
) -> Start:
    seed = _validate.seed(seed)
    if isinstance(init, ChainState):
        position = [ops.zeros(shape) for shape in init.shapes]
        parts = init.structure, init.shapes, position, init.steps, init.seed
        return Start(*parts, init)
    num_chains = _validate.integer("num_chains", num_chains, 1)
    structure = starting_positions(init, num_chains, check)
    position = [
        ops.tile(x, (copies,) + (1,) * (len(x.shape) - 1)) if copies > 1 else x
        for x in tree.flatten(structure)
    ]
    shapes = [tuple(ops.shape(x)) for x in position]
    return Start(structure, shapes, position, 0, seed, None)


def first_state(kernel: Kernel, position: list[Tensor]) -> Any:
    """Return the state of a bound kernel before the first step, as tensors."""
    num_chains = position[0].shape[0]

    def value(leaf: Any) -> Tensor:
        if not isinstance(leaf, Slot):
            return leaf
        shape = leaf.shape
        if leaf.weight is None and not leaf.is_shared:
            shape = (num_chains, *shape)
        array = np.broadcast_to(np.asarray(leaf.value), shape)
        return ops.convert_to_tensor(array.astype(leaf.dtype or "float32"))

    return map_leaves(value, kernel.init(position))


def kernel_of(kernel: Any) -> str:
    """Return the names of a kernel and its parts: equal names have equal states."""
    parts = [type(kernel).__name__]
    for field in dataclasses.fields(kernel):
        value = getattr(kernel, field.name)
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, Proposal):
            parts.append(type(value).__name__)
        elif isinstance(value, Kernel):
            parts.append(kernel_of(value))
    return " ".join(parts)


def starting_positions(init: Any, num_chains: int, check: Check) -> Any:
    """Return the first position of each chain.

    `check` decides whether first axes of length `num_chains` are those of chains, if
    that is a question: all tensors are vectors, or there is one chain.
    """
    arrays = checked_arrays(init)
    flat = tree.flatten(arrays)
    if not flat:
        raise ValueError(
            "Argument `init` must be a position: an array, or a tuple or dict of "
            f"arrays. Received: init={_validate.shown(init)}"
        )
    has_axis = all(a.ndim > 0 and a.shape[0] == num_chains for a in flat)
    if has_axis and (num_chains == 1 or all(a.ndim == 1 for a in flat)):
        has_axis = _has_chain_axis(arrays, flat, num_chains, check)
    if not has_axis:
        arrays = tree.map_structure(
            lambda a: np.broadcast_to(a, (num_chains, *a.shape)), arrays
        )
    check(tree.map_structure(lambda a: ops.convert_to_tensor(a[0]), arrays))
    return tree.map_structure(ops.convert_to_tensor, arrays)


def _has_chain_axis(
    arrays: Any, flat: list[Array], num_chains: int, check: Check
) -> bool:
    """Return whether the first axes are those of the chains, and not of a position."""

    def value(position: Any) -> float | None:
        try:
            return check(tree.map_structure(ops.convert_to_tensor, position))
        except Exception:  # the user's function may raise anything at a wrong shape
            return None

    whole = value(arrays)
    first = value(tree.map_structure(lambda a: a[0], arrays))
    are_vectors = all(a.ndim == 1 for a in flat)
    if whole is None or first is None:
        return first is not None if are_vectors else whole is None
    if num_chains == 1 and are_vectors:
        return False
    if num_chains == 1 and np.isclose(first, whole, rtol=1e-4, equal_nan=True):
        return True
    raise ValueError(
        "Argument `init` must show which axis is the chain axis: the log density is "
        f"{whole:.6g} with the first axes, and {first:.6g} without them. Give each "
        f"array a first axis of length {num_chains} for the chains, such as the shape "
        f"({num_chains}, {num_chains}) for a vector of {num_chains} numbers, or "
        f"({num_chains}, 1) for one number for each chain. Received: "
        f"num_chains={num_chains}, and arrays of the shapes {[a.shape for a in flat]}"
    )


def checked_arrays(position: Any, name: str = "init") -> Any:
    """Return a position with float32 arrays of finite numbers, or raise an error.

    Dicts and tuples are structures, and lists are arrays.
    """
    if isinstance(position, dict):
        return {key: checked_arrays(value, name) for key, value in position.items()}
    if isinstance(position, tuple):
        values = [checked_arrays(value, name) for value in position]
        is_named = type(position) is not tuple  # a `NamedTuple` takes its fields
        return type(position)(*values) if is_named else tuple(values)
    if isinstance(position, list):
        try:
            position = np.asarray(position)
        except ValueError as error:
            raise ValueError(
                f"Argument `{name}` must have lists of numbers only, and dicts or "
                f"tuples of tensors. For the weights of a model pass {name}="
                f"tuple(model.get_weights()). Received: {_validate.shown(position)}"
            ) from error
    array = _validate.array(f"Argument `{name}`", position, dtype=None)
    # The chains run in float32, and the numbers must be finite there.
    with np.errstate(over="ignore"):
        result = array.astype("float32")
    if array.dtype.kind == "b" or array.size == 0 or not np.isfinite(result).all():
        raise ValueError(
            f"Argument `{name}` must hold finite numbers, at least one in each array. "
            f"Received: {name} with an array of type {array.dtype} and shape "
            f"{array.shape}: {_validate.shown(array)}"
        )
    return result
