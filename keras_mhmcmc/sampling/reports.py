"""What `Draws.info` has beside energies and acceptance, for some algorithms."""

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
    kernel: contour.ContourSampler, state: contour.State, energy: Array
) -> dict[str, Array]:
    """Return the learned masses, and how many draws each subregion has.

    Warn of a partition that does not fit the energies.

    Args:
        kernel: the algorithm.
        state: its last state.
        energy: of the draws, nats, (chain, draw).

    Returns:
        `masses` and `visits`, shape (chain, partitions).
    """
    settings = kernel.contour
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
    kernel: spike_slab.SpikeSlabSampler, state: spike_slab.State, structure: Any
) -> dict[str, Any]:
    """Return rho of each sparse tensor by name, arrays (chain, ...).

    Args:
        kernel: the algorithm.
        state: its last state.
        structure: of a position.
    """
    count = len(state.base.point)
    numbers = keras.tree.pack_sequence_as(structure, list(range(count)))
    names = {number: name for name, number in named_leaves(numbers).items()}
    probabilities = {
        names[i]: 1.0 - ops.convert_to_numpy(spike)
        for i, spike in zip(kernel.sparse, state.latents.spike, strict=True)
    }
    return {"inclusion_probabilities": probabilities}
