"""What a run starts from and what it leaves: checked, saved, restored."""

import warnings

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc.chains.draws import ChainState

tree = keras.tree


def saved(state, structure, shapes, steps, seed):
    """The `ChainState` of chains after `steps` steps, all in numpy."""
    return ChainState(
        [ops.convert_to_numpy(x) for x in tree.flatten(state)],
        tree.map_structure(lambda _: 0, structure),
        shapes,
        steps,
        seed,
    )


def checked(state):
    """The parts of a `ChainState` that a run starts from, or a `ValueError`."""
    _, _, shapes, steps, seed = state
    are_lists = isinstance(state.values, list) and isinstance(shapes, list) and shapes
    if not (
        are_lists
        and all(isinstance(value, np.ndarray) for value in state.values)
        and all(_is_shape(shape) for shape in shapes)
    ):
        raise ValueError(
            "Argument `init` must be the `state` of draws as they have it, with lists "
            "of arrays and of their shapes, the chain axis first. "
            f"Received: init={_validate.shown(state)}"
        )
    _validate.integer("init", steps, 0, "It is the `steps` of a `ChainState`.")
    _validate.integer("init", seed, 0, "It is the `seed` of a `ChainState`.")
    return state


def _is_shape(shape):
    lengths = isinstance(shape, tuple) and all(isinstance(n, int) for n in shape)
    return lengths and len(shape) > 0 and shape[0] > 0


def restored(kernel, shapes, values, origin):
    """What `kernel.init` gives at positions of these shapes, with saved values.

    `origin` names in an error the draws that the values must come from.
    """
    template = kernel.init([ops.zeros(shape) for shape in shapes])
    expected = [tuple(ops.shape(x)) for x in tree.flatten(template)]
    actual = [x.shape for x in values]
    if expected != actual:
        raise ValueError(
            f"Argument `init` must be the state of draws of {origin}. Received: a "
            f"state with arrays of shapes {actual}, where this run's have the shapes "
            f"{expected}"
        )
    values = [ops.convert_to_tensor(x) for x in values]
    return tree.pack_sequence_as(template, values)


def check_finite(target, structure, position, indices):
    """Raises where the energy of a chain is not finite at its start."""

    def energies(position, indices, constants):
        return target.energies(structure, constants, False)(position, indices)[0]

    evaluate = _backend.compile_function(energies)
    energy = ops.convert_to_numpy(evaluate(position, indices, target.constants))
    if not np.isfinite(energy).all():
        bad = int(np.argmin(np.isfinite(energy)))
        hidden = sum(_count_of_nonfinite(array) for array in target.constants)
        raise ValueError(
            "Argument `init` must be where the log density is finite"
            + (f"; `data` has {hidden} values that are not. " if hidden else ". ")
            + "Received: a "
            f"position of chain {bad} at which it is {-energy[bad]} "
            f"({np.sum(~np.isfinite(energy))} of {len(energy)} chains): "
            f"{[ops.convert_to_numpy(x)[bad] for x in position]}"
        )


def _count_of_nonfinite(tensor):
    array = ops.convert_to_numpy(tensor)
    return int(np.sum(~np.isfinite(array))) if array.dtype.kind == "f" else 0


def kept_records(outcome, shapes, num_chains):
    """Positions, energies and so on of a run; empty if it kept none."""
    if outcome.arrays is not None:
        return outcome.arrays
    shapes = [*(shape[1:] for shape in shapes), ()]
    return [np.empty((num_chains, 0, *shape), "float32") for shape in shapes]


def warn_of_lost_chains(lost):
    """Warns if there are `lost` chains, (K,); to be called by what a run ends with."""
    if lost.any():
        warnings.warn(
            f"{lost.sum()} of {len(lost)} chains ran to where the log density is not "
            "finite; their draws are useless. Lower the learning rate, or use "
            "`mh.kernels.mhbt`, which rejects such moves.",
            stacklevel=4,
        )
