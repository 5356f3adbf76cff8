"""What some algorithms add to `Draws.info`."""

import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import partition
from keras_mhmcmc._types import Array
from keras_mhmcmc.algorithms import contour
from keras_mhmcmc.algorithms import spike_slab
from keras_mhmcmc.sampling.draws import named_leaves


def of_contour(
    algorithm: contour.ContourSampler, state: contour.State, energy: Array
) -> dict[str, Array]:
    """Return the learned masses, and the number of draws in each subregion.

    Warn if the partition does not fit the energies.

    Args:
        algorithm: with its settings.
        state: its last state.
        energy: of the draws, nats, (chain, draw).

    Returns:
        `masses` and `visits`, shape (chain, partitions).
    """
    settings = algorithm.contour
    place = contour.locate(ops.convert_to_tensor(energy), settings)
    index, finite = map(ops.convert_to_numpy, (place.index, place.finite))
    visits = np.array(
        [
            np.bincount(row[known], minlength=settings.partitions)
            for row, known in zip(index, finite, strict=True)
        ]
    )
    known = energy[np.isfinite(energy)]
    if known.size > 0:
        message = partition.run_message(
            visits.sum(0), known.min(), known.max(), settings
        )
        if message is not None:
            warnings.warn(message, stacklevel=4)
    log_masses = np.asarray(ops.convert_to_numpy(state.log_masses), "float64")
    return {
        "masses": np.broadcast_to(np.exp(log_masses), visits.shape),
        "visits": visits,
    }


def of_spike_slab(
    algorithm: spike_slab.SpikeSlabSampler, state: spike_slab.State, structure: Any
) -> dict[str, Any]:
    """Return the inclusion probabilities of each sparse tensor.

    Args:
        algorithm: with its settings.
        state: its last state.
        structure: of a position.

    Returns:
        `inclusion_probabilities`: rho by the name of the tensor, shape (chain, ...).
    """
    count = len(state.base.point)
    numbers = keras.tree.pack_sequence_as(structure, list(range(count)))
    names = {number: name for name, number in named_leaves(numbers).items()}
    probabilities = {
        names[i]: 1.0 - ops.convert_to_numpy(spike)
        for i, spike in zip(algorithm.sparse, state.latents.spike, strict=True)
    }
    return {"inclusion_probabilities": probabilities}
