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
    """Where chains start."""

    structure: Any  # of a position
    shapes: list[tuple[int, ...]]  # of the position's tensors, the chain axis first
    position: list[Tensor]  # zeros if a saved state tells it
    number: int  # of the first step
    seed: int
    saved: ChainState | None

    def restored(self, template: Any, kernel: str, origin: str, check: Check) -> Any:
        """Return the first state: the template, or one with the saved values."""
        if self.saved is None:
            return template
        values = self.saved.values
        self.check_kernel(kernel, origin)
        expected = [tuple(ops.shape(x)) for x in tree.flatten(template)]
        actual = [x.shape for x in values]
        if expected != actual:
            raise ValueError(
                f"Argument `init` must be the state of draws of {origin}, with arrays "
                f"of the shapes {expected}. Received: a state with arrays of the "
                f"shapes {actual}"
            )
        values = [ops.convert_to_tensor(x) for x in values]
        position = [value[0] for value in values[: len(self.shapes)]]
        check(tree.pack_sequence_as(self.structure, position))
        return tree.pack_sequence_as(template, values)

    def check_kernel(self, kernel: str, origin: str) -> None:
        """Raise an error if another kernel has left the saved state."""
        if self.saved is not None and self.saved.kernel != kernel:
            raise ValueError(
                f"Argument `init` must be the state of draws of {origin}. For another "
                "kernel, start from the last positions: take [:, -1] of each array of "
                f"`draws.position`, and pass `num_chains`. Received: a state of "
                f"'{self.saved.kernel}', to go on with '{kernel}'"
            )

    def one_position(self, value: Any, name: str) -> list[Array]:
        """Return the leaves of a position of one chain, or raise a `ValueError`."""
        arrays = tree.map_structure(
            lambda leaf: checked_array(leaf, name), without_lists(value, name)
        )
        shapes = [shape[1:] for shape in self.shapes]
        try:
            tree.assert_same_structure(arrays, self.structure)
            fits = [a.shape for a in tree.flatten(arrays)] == shapes
        except (TypeError, ValueError):
            fits = False
        if not fits:
            expected = tree.pack_sequence_as(self.structure, list(map(list, shapes)))
            raise ValueError(
                f"Argument `{name}` must be a position of one chain, in the structure "
                f"of `init`, with arrays of the shapes {expected}. Received: "
                f"{name}={_validate.shown(value)}"
            )
        return tree.flatten(arrays)

    def left(self, state: Any, steps: int, kernel: str) -> ChainState:
        """Return the `ChainState` of chains after `steps` steps, in numpy."""
        return ChainState(
            [ops.convert_to_numpy(x) for x in tree.flatten(state)],
            tree.map_structure(lambda _: 0, self.structure),
            self.shapes,
            steps,
            self.seed,
            kernel,
        )


def begin(
    init: Any, num_chains: int, seed: int, check: Check, copies: int = 1
) -> Start:
    """Return where chains start, from the arguments of `mh.sample`."""
    seed = _validate.seed(seed)
    if isinstance(init, ChainState):
        saved = checked(init)
        position = [ops.zeros(shape) for shape in saved.shapes]
        parts = saved.structure, saved.shapes, position, saved.steps, saved.seed
        return Start(*parts, saved)
    num_chains = _validate.integer("num_chains", num_chains, 1)
    structure = starting_positions(init, num_chains, check)
    position = [
        ops.tile(x, (copies,) + (1,) * (len(x.shape) - 1)) if copies > 1 else x
        for x in tree.flatten(structure)
    ]
    shapes = [tuple(ops.shape(x)) for x in position]
    return Start(structure, shapes, position, 0, seed, None)


def checked(state: ChainState) -> ChainState:
    """Return the state that a run starts from, or raise a `ValueError`."""
    values, shapes = state.values, state.shapes

    def is_shape(shape: Any) -> bool:
        lengths = isinstance(shape, tuple) and all(isinstance(n, int) for n in shape)
        return lengths and len(shape) > 0 and shape[0] > 0

    are_lists = isinstance(values, list) and isinstance(shapes, list) and shapes
    are_arrays = are_lists and all(isinstance(value, np.ndarray) for value in values)
    if not are_arrays or not all(map(is_shape, shapes)):
        raise ValueError(
            "Argument `init` must be the unchanged `state` of draws, with a list of "
            "arrays and a list of shapes, the chain axis first. "
            f"Received: init={_validate.shown(state)}"
        )
    _validate.integer("init", state.steps, 0, "It is the `steps` of a `ChainState`.")
    _validate.integer("init", state.seed, 0, "It is the `seed` of a `ChainState`.")
    return state


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
    """Return the names of a kernel and of its parts, such as its integrator.

    A part may have a state of its own. Equal names have states of equal meaning.
    """
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

    If the first axis of every tensor has the length `num_chains`, `init` holds one
    position for each chain. Otherwise all chains start from the position `init`. If
    all tensors are vectors of length `num_chains`, they may be one position, or one
    number for each chain: `check` decides.
    """
    arrays = tree.map_structure(checked_array, without_lists(init))
    flat = tree.flatten(arrays)
    if not flat:
        raise ValueError(
            "Argument `init` must be a position: an array, or a tuple or dict of "
            f"arrays. Received: init={_validate.shown(init)}"
        )
    has_axis = all(a.ndim > 0 and a.shape[0] == num_chains for a in flat)
    if has_axis and all(array.ndim == 1 for array in flat):
        has_axis = _are_scalars(arrays, num_chains, check)
    elif has_axis and num_chains == 1:  # the default: nobody may have thought of it
        has_axis = _have_chain_axis(arrays, flat, check)
    if not has_axis:
        arrays = tree.map_structure(
            lambda a: np.broadcast_to(a, (num_chains, *a.shape)), arrays
        )
    check(first_chain(arrays))
    return tree.map_structure(lambda a: ops.convert_to_tensor(a), arrays)


def first_chain(arrays: Any) -> Any:
    """Return the position of the first chain, as tensors."""
    return tree.map_structure(lambda a: ops.convert_to_tensor(a[0]), arrays)


def without_lists(position: Any, name: str = "init") -> Any:
    """Return a position with arrays in place of lists of numbers.

    Dicts and tuples are structures. `name` is the argument that an error names.
    """
    if isinstance(position, dict):
        return {key: without_lists(value, name) for key, value in position.items()}
    if isinstance(position, tuple):
        values = [without_lists(value, name) for value in position]
        is_named = type(position) is not tuple  # a `NamedTuple` takes its fields
        return type(position)(*values) if is_named else tuple(values)
    if not isinstance(position, list):
        return position
    try:
        return np.asarray(position)
    except ValueError as error:
        raise ValueError(
            f"Argument `{name}` must have lists of numbers only, and dicts or tuples "
            f"of tensors. For the weights of a model pass {name}="
            f"tuple(model.get_weights()). Received: {_validate.shown(position)}"
        ) from error


def checked_array(value: Any, name: str = "init") -> Array:
    """Return a tensor of a position as a float32 array, or raise a `ValueError`.

    `name` is the argument that an error names.
    """
    array = _validate.array(f"Argument `{name}`", value, dtype=None)
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


def _are_scalars(arrays: Any, num_chains: int, check: Check) -> bool:
    """Return whether vectors of length `num_chains` are one number for each chain."""
    as_vector = tree.map_structure(ops.convert_to_tensor, arrays)
    takes_vector = _value(check, as_vector) is not None
    takes_scalar = _value(check, first_chain(arrays)) is not None
    if takes_vector and takes_scalar and num_chains > 1:
        raise ValueError(
            "Argument `init` must show which axis is the chain axis. Give it the shape "
            f"({num_chains}, {num_chains}) for one position of {num_chains} values for "
            f"each chain, or ({num_chains}, 1) for one number for each chain. "
            f"Received: an array of shape ({num_chains},) with "
            f"num_chains={num_chains}"
        )
    return takes_scalar and not takes_vector


def _have_chain_axis(arrays: Any, flat: list[Array], check: Check) -> bool:
    """Return whether first axes of length 1 are that of a single chain."""
    one = _value(check, first_chain(arrays))
    whole = _value(check, tree.map_structure(ops.convert_to_tensor, arrays))
    if one is None or whole is None:
        return whole is None
    if not np.isclose(one, whole, rtol=1e-4, equal_nan=True):
        raise ValueError(
            "Argument `init` must show which axis is the chain axis: the log density "
            f"is {whole:.6g} with the first axes, and {one:.6g} without them. Give "
            "each array one more axis of length 1, that of the chain, or pass "
            "`num_chains=2`. Received: arrays of the shapes "
            f"{[array.shape for array in flat]}"
        )
    return True


def _value(check: Check, position: Tensor) -> float | None:
    """Return the log density, None if the functions do not take the position."""
    try:
        return check(position)
    except Exception:  # the user's function may raise anything at a wrong shape
        return None


def increasing(
    name: str,
    values: Any,
    hint: str,
    interval: _validate.Interval | None,
    count: int | None = None,
) -> list[Any]:
    """Return a list of increasing numbers in an interval; None: of positive integers.

    `hint` says what it must be: a list of `count` numbers, or of at least two.
    """

    def checked(value: Any) -> float:
        value = value.item() if isinstance(value, np.generic) else value
        if interval is None:
            return _validate.integer(name, value, 1)
        return _validate.number(name, value, interval)

    is_array = isinstance(values, np.ndarray) and values.ndim == 1
    found: Any = None
    if isinstance(values, list | tuple) or is_array:
        found = [checked(value) for value in values]
    fits = found and len(found) == (count or max(len(found), 2))
    if not fits or any(a >= b for a, b in zip(found, found[1:], strict=False)):
        raise ValueError(
            f"Argument `{name}` must be {hint}. Received: "
            f"{name}={_validate.shown(values)}"
        )
    return found
