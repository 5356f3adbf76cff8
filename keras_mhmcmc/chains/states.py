"""What a run starts from and what it leaves: checked, saved, restored."""

import warnings

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
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
        raise ValueError(
            "Argument `init` must be where the log density is finite. Received: a "
            f"position of chain {bad} at which it is {-energy[bad]} "
            f"({np.sum(~np.isfinite(energy))} of {len(energy)} chains): "
            f"{[ops.convert_to_numpy(x)[bad] for x in position]}"
        )


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
