"""Where chains start: one position for all of them, or one for each."""

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate

tree = keras.tree


def starting_positions(init, num_chains, check):
    """`init` as a structure whose tensors have a chain axis of length `num_chains`.

    `init` is one position, from which all chains start, or holds one for each chain
    along the first axis of all its tensors. The first axis decides: an axis of length
    `num_chains` is the chain axis. Where `init` is made of vectors alone, that may be
    one position with `num_chains` values, or `num_chains` numbers: then `check`, which
    raises an error at a position that the log density does not take, decides.
    """
    arrays = tree.map_structure(_checked_array, without_lists(init))
    flat = tree.flatten(arrays)
    if not flat:
        raise ValueError(
            "Argument `init` must be a position: an array, or a tuple or dict of "
            f"arrays. Received: init={_validate.shown(init)}"
        )
    has_axis = all(a.ndim > 0 and a.shape[0] == num_chains for a in flat)
    if has_axis and all(array.ndim == 1 for array in flat):
        has_axis = _are_scalars(arrays, num_chains, check)
    if not has_axis:
        arrays = tree.map_structure(
            lambda a: np.broadcast_to(a, (num_chains, *a.shape)), arrays
        )
    check(first_chain(arrays))
    return tree.map_structure(lambda a: ops.convert_to_tensor(a), arrays)


def first_chain(arrays):
    """The position of the first chain, as tensors."""
    return tree.map_structure(lambda a: ops.convert_to_tensor(a[0]), arrays)


def without_lists(position, name="init"):
    """Lists of numbers are arrays; dicts and tuples are structures."""
    if isinstance(position, dict):
        return {key: without_lists(value, name) for key, value in position.items()}
    if isinstance(position, tuple):
        return tuple(without_lists(value, name) for value in position)
    if not isinstance(position, list):
        return position
    try:
        return np.asarray(position)
    except ValueError as error:
        raise ValueError(
            f"Argument `{name}` may have lists of numbers, and dicts or tuples of "
            f"tensors. Received: the list {_validate.shown(position)}"
        ) from error


def _checked_array(value):
    array = _validate.array("Argument `init`", value, dtype=None)
    # Finite in float32, in which the chains run.
    with np.errstate(over="ignore"):
        result = array.astype("float32")
    if array.dtype.kind == "b" or array.size == 0 or not np.isfinite(result).all():
        raise ValueError(
            "Argument `init` must hold finite numbers, one at least in each array. "
            f"Received: init with an array of type {array.dtype} and shape "
            f"{array.shape}: {_validate.shown(array)}"
        )
    return result


def _are_scalars(arrays, num_chains, check):
    """Whether vectors of length `num_chains` are one number for each chain."""
    as_vector = tree.map_structure(ops.convert_to_tensor, arrays)
    takes_vector = _passes(check, as_vector)
    takes_scalar = _passes(check, first_chain(arrays))
    if takes_vector and takes_scalar and num_chains > 1:
        raise ValueError(
            f"Argument `init` has the shape ({num_chains},) with {num_chains} chains: "
            f"one position of {num_chains} values, or a number for each chain? Give "
            f"it the shape ({num_chains}, {num_chains}) for the first, "
            f"({num_chains}, 1) for the second. Received: num_chains={num_chains}"
        )
    return takes_scalar and not takes_vector


def _passes(check, position):
    try:
        check(position)
    except Exception:  # the user's function may raise anything at a wrong shape
        return False
    return True
