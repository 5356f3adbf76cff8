"""What a run starts from and what it leaves: checked, saved, restored."""

import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms.base import Algorithm
from keras_mhmcmc.algorithms.base import Slot
from keras_mhmcmc.algorithms.base import map_leaves
from keras_mhmcmc.sampling.draws import ChainState

tree = keras.tree

# Of what energies decide on, the rounding that is let through. For a normal law in one
# dimension the variance is off by up to 1.0% at this, 2.9% at twice and 22% at eight
# times as much; in five dimensions by 0.3% at eight times as much.
COARSEST = 0.125


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


def first_state(kernel: Algorithm, position: list[Tensor]) -> Any:
    """Return the state of an algorithm before the first step, as tensors.

    Args:
        kernel: the algorithm.
        position: where the chains start, the chain axis first.
    """
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


def restored(template: Any, values: list[Array], origin: str) -> Any:
    """Return a state of the structure and shapes of `template`, with saved values.

    `origin` names in an error the draws that the values must come from.
    """
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
    try:
        energy = evaluate(position, indices, target.constants)
    except Exception as error:
        if target.called is None:
            raise
        raise ValueError(
            f"Argument `{target.called}` must be a function that runs for all chains "
            "at once: write it with `keras.ops`. Constants may be arrays, of dtype "
            "float32 where a function asks for one dtype; what depends on the position "
            "must not go through numpy's functions, `float()`, `if` or loops. "
            "Received: a function that raised "
            f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
        ) from error
    energy = ops.convert_to_numpy(energy)
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
    return energy


def spacing(energy):
    """How far apart the float32 numbers next to energies are."""
    return np.spacing(np.abs(np.asarray(energy, "float32")))


def check_resolution(energy, unit, name):
    """Raises where float32 energies, (K,), are too coarse for what they decide on.

    Args:
        energy: at the start of each chain. One chain that starts far out is no harm.
        unit: `energy_unit` of the kernel.
        name: of the function that gives them, for the error.
    """
    if unit is None or (spacing(energy) <= COARSEST * unit).any():
        return
    best = float(np.min(np.abs(energy)))
    raise ValueError(
        f"Argument `{name}` must give smaller numbers: {_remedy(unit)} "
        f"Received: an energy of at least {best:.4g} nats at `init`, where float32 "
        f"numbers are {spacing(best):.3g} nats apart"
    )


def warn_of_coarse_energies(energy, unit):
    """Warns where the draws' energies, (K, draws), are too coarse.

    To be called by what a run ends with. Half of a chain's draws must be so: others
    may come from before it had found the mode.
    """
    if unit is None or energy.shape[1] == 0:
        return
    coarse = np.mean(spacing(energy) > COARSEST * unit, axis=1) > 0.5
    if coarse.any():
        typical = float(np.median(np.abs(energy[coarse])))
        warnings.warn(
            f"The draws of {coarse.sum()} of {len(coarse)} chains do not have the law "
            f"of the density: their energy is about {typical:.4g} nats, where float32 "
            f"numbers are {spacing(typical):.3g} nats apart. {_remedy(unit)}",
            stacklevel=4,
        )


def _remedy(unit):
    return (
        f"the kernel decides on differences of energies of {unit:.3g} nats (its "
        "temperature, or `energy_gap`), and must know them to an eighth of that. "
        "Leave out the constants of the log density, subtract its value at the mode, "
        "start nearer to the mode, or raise the temperature (or gap); kernels that use "
        "gradients alone, such as `mh.kernels.sgld`, do not need it."
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
