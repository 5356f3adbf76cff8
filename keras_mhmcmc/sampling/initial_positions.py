"""Where chains start: one position for all of them, or one for each."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor

tree = keras.tree

# Raise an error if the log density does not take the position of one chain.
Check = Callable[[Any], float]


def starting_positions(init: Any, num_chains: int, check: Check) -> Any:
    """Return the first position of each chain.

    If the first axis of every tensor has the length `num_chains`, `init` holds one
    position for each chain. Otherwise all chains start from the position `init`. If
    all tensors are vectors of length `num_chains`, they may be one position, or one
    number for each chain: `check` decides.

    Args:
        init: a tensor, or a dict or tuple of tensors, from the user.
        num_chains: number of chains, K.
        check: function of the position of one chain. It raises an error if the log
            density does not take the position.

    Returns:
        Tensors of shape (K, ...), in the structure of `init`.
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
            "Argument `init` must show which axis is the chain axis. The log density "
            f"takes it as a position, where it is {whole:.6g}, and without the first "
            f"axes as the position of one chain, where it is {one:.6g}. Give each "
            "array one more axis of length 1, that of the chain, or pass "
            "`num_chains=2`. "
            f"Received: arrays of the shapes {[array.shape for array in flat]}"
        )
    return True


def _value(check: Check, position: Tensor) -> float | None:
    """Return the log density, None if the functions do not take the position."""
    try:
        return check(position)
    except Exception:  # the user's function may raise anything at a wrong shape
        return None
