"""The state that a run starts from, and the state that it leaves."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
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
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import Transition
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.parts.proposals import Proposal
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.initial_positions import Check
from keras_mhmcmc.sampling.log_density import LogDensity

_MANY = 100  # steps after which a chain that accepted none stands still

tree = keras.tree

# Largest spacing of the energies, relative to the kernel's energy unit. At this spacing
# the variance of a normal target in one dimension is wrong by up to 1.0%, at twice by
# 2.9%, at eight times by 22%. In five dimensions it is wrong by 0.3% at eight times.
COARSEST = 0.125


def saved(
    state: Any,
    structure: Any,
    shapes: list[tuple[int, ...]],
    steps: int,
    seed: int,
    kernel: str,
) -> ChainState:
    """Return the `ChainState` of chains after `steps` steps, in numpy."""
    return ChainState(
        [ops.convert_to_numpy(x) for x in tree.flatten(state)],
        tree.map_structure(lambda _: 0, structure),
        shapes,
        steps,
        seed,
        kernel,
    )


def checked(state: ChainState) -> ChainState:
    """Return the state that a run starts from, or raise a `ValueError`."""
    shapes, steps, seed = state.shapes, state.steps, state.seed
    are_lists = isinstance(state.values, list) and isinstance(shapes, list) and shapes
    if not (
        are_lists
        and all(isinstance(value, np.ndarray) for value in state.values)
        and all(_is_shape(shape) for shape in shapes)
    ):
        raise ValueError(
            "Argument `init` must be the unchanged `state` of draws, with a list of "
            "arrays and a list of shapes, the chain axis first. "
            f"Received: init={_validate.shown(state)}"
        )
    _validate.integer("init", steps, 0, "It is the `steps` of a `ChainState`.")
    _validate.integer("init", seed, 0, "It is the `seed` of a `ChainState`.")
    return state


def check_functions(state: ChainState, check: Check) -> None:
    """Raise an error if the functions do not take the position of the first chain."""
    values = state.values[: len(state.shapes)]
    position = [ops.convert_to_tensor(value[0]) for value in values]
    check(tree.pack_sequence_as(state.structure, position))


def _is_shape(shape: Any) -> bool:
    lengths = isinstance(shape, tuple) and all(isinstance(n, int) for n in shape)
    return lengths and len(shape) > 0 and shape[0] > 0


def first_state(algorithm: Algorithm | Transition, position: list[Tensor]) -> Any:
    """Return the state of an algorithm before the first step, as tensors.

    Args:
        algorithm: bound to the weights.
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

    return map_leaves(value, algorithm.init(position))


def kernel_of(algorithm: Any) -> str:
    """Return the names of an algorithm and of its parts, such as its integrator.

    A part may have a state of its own. Equal names have states of equal meaning.
    """
    parts = [type(algorithm).__name__]
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, Proposal):
            parts.append(type(value).__name__)
        elif isinstance(value, Algorithm):
            parts.append(kernel_of(value))
    return " ".join(parts)


def restored(template: Any, state: ChainState, kernel: str, origin: str) -> Any:
    """Return a state with saved values, or raise a `ValueError`.

    Args:
        template: a state with the structure and the shapes.
        state: has the leaves.
        kernel: `kernel_of` what goes on.
        origin: what must have made the values, for the error.
    """
    values = state.values
    if state.kernel != kernel:
        raise ValueError(
            f"Argument `init` must be the state of draws of {origin}. For another "
            "kernel, start from the last positions: take [:, -1] of each array of "
            f"`draws.position`, and pass `num_chains`. Received: a state of "
            f"'{state.kernel}', to go on with '{kernel}'"
        )
    expected = [tuple(ops.shape(x)) for x in tree.flatten(template)]
    actual = [x.shape for x in values]
    if expected != actual:
        raise ValueError(
            f"Argument `init` must be the state of draws of {origin}. This run has "
            f"arrays of the shapes {expected}. Received: a state with arrays of the "
            f"shapes {actual}"
        )
    return tree.pack_sequence_as(template, [ops.convert_to_tensor(x) for x in values])


def evaluated(target: LogDensity, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(*arguments)`, and explain an error of the user's functions.

    Args:
        target: has the user's functions.
        function: evaluates them.
        *arguments: of `function`.
    """
    try:
        return function(*arguments)
    except Exception as error:
        if target.called is None:
            raise
        raise ValueError(
            f"Argument `{target.called}` must be a function that runs for all chains "
            "at once. Write it with `keras.ops`. Do not pass what depends on the "
            "position to functions of numpy, `float()`, `if` or loops. Constants may "
            "be arrays. If a function needs equal dtypes, give them dtype float32. "
            "Received: a function that raised "
            f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
        ) from error


def check_finite(
    target: LogDensity, structure: Any, position: list[Tensor], indices: list[Tensor]
) -> Array:
    """Return the energies at the start, (K,), or raise an error if one is not finite.

    Args:
        target: gives the energies.
        structure: of a position.
        position: where the chains start, the chain axis first.
        indices: the mini-batches of `LogDensity.batch_indices`.
    """

    def energies(
        position: list[Tensor], indices: list[Tensor], constants: list[Tensor]
    ) -> Tensor:
        return target.energies(structure, constants, False)(position, indices)[0]

    evaluate = _backend.compile_function(energies)
    energy = evaluated(target, evaluate, position, indices, target.constants)
    energy = ops.convert_to_numpy(energy)
    if not np.isfinite(energy).all():
        bad = int(np.argmin(np.isfinite(energy)))
        raise ValueError(
            "Argument `init` must be where the log density is finite. "
            + count_of_nonfinite(target)
            + f"Received: a position of chain {bad} with the log density "
            f"{-energy[bad]} ({np.sum(~np.isfinite(energy))} of {len(energy)} chains "
            f"are not finite): {[ops.convert_to_numpy(x)[bad] for x in position]}"
        )
    return energy


def spacing(energy: Array | float) -> Array:
    """Return the distance from each energy to the next float32 number."""
    return np.spacing(np.abs(np.asarray(energy, "float32")))


def check_resolution(energy: Array, unit: float | None, name: str) -> None:
    """Raise an error if float32 energies are too coarse for the kernel's decisions.

    Args:
        energy: at the start of each chain, nats, (K,). One chain that is fine enough
            will do: others may start far out.
        unit: `energy_unit` of the algorithm.
        name: of the function that gives the energies, for the error.
    """
    if unit is None or (spacing(energy) <= COARSEST * unit).any():
        return
    best = float(np.min(np.abs(energy)))
    raise ValueError(
        f"Argument `{name}` must return smaller numbers: {_remedy(unit)} "
        f"Received: an energy of at least {best:.4g} nats at `init`, where float32 "
        f"numbers are {spacing(best):.3g} nats apart"
    )


def warn_of_coarse_energies(energy: Array, unit: float | None) -> None:
    """Warn if energies of draws are too coarse for the kernel's decisions.

    Call it at the end of a run. A chain counts if more than half of its draws are too
    coarse: the first draws may come from before the chain found the mode.

    Args:
        energy: of the draws, nats, (chain, draw).
        unit: `energy_unit` of the algorithm.
    """
    if unit is None or energy.shape[1] == 0:
        return
    coarse = np.mean(spacing(energy) > COARSEST * unit, axis=1) > 0.5
    if coarse.any():
        typical = float(np.median(np.abs(energy[coarse])))
        warn(
            f"The draws of {coarse.sum()} of {len(coarse)} chains do not follow the "
            f"density: their energy is about {typical:.4g} nats, where float32 numbers "
            f"are {spacing(typical):.3g} nats apart. {_remedy(unit)}",
        )


def _remedy(unit: float) -> str:
    return (
        f"the kernel decides on energy differences of {unit:.3g} nats (its "
        "temperature, its `energy_gap`, or the energy error that it aims at), and "
        "needs them to within an eighth. "
        "Leave out the constants of the log density, subtract its value at the mode, "
        "start nearer to the mode, or raise the temperature (or gap). Kernels that use "
        "gradients alone, such as `mh.kernels.sgld`, do not decide on energies."
    )


def count_of_nonfinite(target: LogDensity) -> str:
    """Return a sentence with the number of bad values in the data; "" if none is."""
    arrays = [ops.convert_to_numpy(tensor) for tensor in target.constants]
    count = sum(int(np.sum(~np.isfinite(a))) for a in arrays if a.dtype.kind == "f")
    return f"`data` has {count} values that are not finite. " if count else ""


def record_size(shapes: list[tuple[int, ...]]) -> int:
    """Return how many numbers a record has at most: position, energies, log weights.

    Args:
        shapes: of the position's tensors, the chain axis first.
    """
    return sum(int(np.prod(shape)) for shape in shapes) + 2 * shapes[0][0]


def kept_records(
    outcome: loop.Outcome, shapes: list[tuple[int, ...]], num_chains: int
) -> list[Array]:
    """Return the records of a run, (chain, draw, ...); without draws if it kept none.

    Args:
        outcome: of the run.
        shapes: of the position's tensors, the chain axis first.
        num_chains: how many chains are recorded.
    """
    if outcome.arrays is not None:
        return outcome.arrays
    rows = [*(shape[1:] for shape in shapes), ()]  # the last one is the energy's
    return [np.empty((num_chains, 0, *row), "float32") for row in rows]


def warn_of_still_chains(
    counts: Mapping[str, Array],
    consequence: str = "the draws of such a chain are one position",
) -> None:
    """Warn of Metropolis-Hastings chains that did not move. Call it after a run.

    Args:
        counts: of the steps after the burn-in, by name, arrays (K,).
        consequence: what the warning says of such a chain.
    """
    tried = np.maximum(counts["proposed"], counts["nonfinite"])
    still = (counts["accepted"] == 0.0) & (tried >= _MANY)
    if still.any():
        warn(
            f"{still.sum()} of {len(still)} chains accepted no proposal after the "
            f"burn-in: {consequence}. Make the moves smaller, by a lower learning rate "
            "or step size. If a proposal follows a gradient, start where the gradient "
            "of the log density is finite. "
            f"Received: {counts['proposed'][still].max():.0f} proposals, and "
            f"{counts['nonfinite'][still].max():.0f} steps that were not finite",
        )


def warn_of_lost_chains(energy: Array, target: LogDensity) -> None:
    """Warn of draws where the energy is not finite. Call it at the end of a run.

    Args:
        energy: of the draws, nats, (chain, draw).
        target: has the data.
    """
    outside = ~np.isfinite(energy)
    lost: Array = np.any(outside, axis=1)
    if lost.any():
        warn(
            f"{lost.sum()} of {len(lost)} chains ran to where the log density is not "
            f"finite: {outside[lost].mean():.1%} of their draws lie there, and are "
            f"useless. {count_of_nonfinite(target)}Lower the learning rate, transform "
            "to variables without limits, or use `mh.kernels.mhbt`, which rejects "
            "such moves.",
        )


def warn_of_nonfinite_data(counts: Mapping[str, Array], target: LogDensity) -> None:
    """Warn if steps were not finite and the data may be why. Call it after a run.

    Args:
        counts: of the steps after the burn-in, by name, arrays (K,).
        target: has the data.
    """
    steps = counts["nonfinite"].sum()
    bad = count_of_nonfinite(target)
    if steps > 0 and bad:
        warn(
            f"{steps:.0f} steps of the chains were not finite, and were rejected. "
            f"{bad}Remove these rows, or let the likelihood leave them out."
        )
