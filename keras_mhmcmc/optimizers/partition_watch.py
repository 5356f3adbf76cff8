"""Warnings if the partition of a contour sampler does not fit the energies."""

import numpy as np

from keras_mhmcmc import partition
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.algorithms.contour import Contour

_FEWEST = 10  # energies that are enough to judge a partition


class PartitionWatch:
    """A watch over the energies of a run, which warns at most once."""

    def __init__(self, contour: Contour) -> None:
        self._contour = contour
        self._has_warned = False

    def look_at_epoch(
        self, counts: dict[str, Array], lowest: float, highest: float
    ) -> None:
        """Warn if most energies of an epoch lie outside the partition.

        Args:
            counts: what `ContourSampler` counts, arrays () or (chains,).
            lowest: lowest energy of the run, nats.
            highest: highest energy of the run, nats.
        """
        steps = np.sum(counts["steps"])
        if steps >= _FEWEST:
            below, above = (np.sum(counts[name]) / steps for name in ("below", "above"))
            count = self._contour.partitions
            self._warn(partition.outside_message(below, above, lowest, highest, count))

    def look_at_end(self, visits: Array, lowest: float, highest: float) -> None:
        """Warn if a run left subregions empty between others.

        Args:
            visits: number of visits of each subregion, (..., partitions).
            lowest: lowest energy of the run, nats.
            highest: highest energy of the run, nats.
        """
        visits = visits.reshape(-1, self._contour.partitions).sum(0)
        if visits.sum() >= _FEWEST:
            self._warn(partition.run_message(visits, lowest, highest, self._contour))

    def _warn(self, message: str | None) -> None:
        if message is not None and not self._has_warned:
            self._has_warned = True
            warn(message)
