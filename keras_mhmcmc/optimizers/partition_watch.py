"""Warnings if the partition of a contour sampler does not fit the energies."""

from typing import Any

import numpy as np

from keras_mhmcmc import partition
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.optimizers.standstill import warm_up_message

_FEWEST = 10  # energies that are enough to judge a partition


class PartitionWatch:
    """A watch over the energies of a run, which warns at most once.

    Args:
        name: of the sampler, for the warnings.
        algorithm: of the sampler.
    """

    def __init__(self, name: str, algorithm: Any) -> None:
        self._name = name
        self._algorithm = algorithm
        self._told: set[str] = set()

    def use_warm_up(self, steps: int) -> None:
        """Take another length of the pilot."""
        self._algorithm = self._algorithm.with_warm_up(steps)

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
            advice = self._advice(lowest, highest)
            self._tell("partition", partition.outside_message(below, above, advice))

    def look_at_end(
        self, state: Any, steps: int, lowest: float, highest: float
    ) -> None:
        """Warn if a run ends in the pilot, or left subregions empty between others.

        Args:
            state: of the algorithm, numpy arrays.
            steps: of the run.
            lowest: lowest energy of the run, nats.
            highest: highest energy of the run, nats.
        """
        self._tell("pilot", warm_up_message(self._name, steps, self._algorithm.traits))
        contour = self._algorithm.contour
        visits = state.visits.reshape(-1, contour.partitions).sum(0)
        if visits.sum() < _FEWEST:
            return
        advice = self._advice(lowest, highest)
        if self._algorithm.pilot is None:
            self._tell("partition", partition.run_message(visits, contour, advice))
        else:  # each chain has a partition of its own, and the pilot was in all of it
            self._tell("partition", partition.visits_message(visits, advice))

    def _advice(self, lowest: float, highest: float) -> str:
        if self._algorithm.pilot is not None:
            return partition.fix_of_pilot(self._algorithm.pilot.steps)
        return partition.fix(lowest, highest, self._algorithm.contour.partitions)

    def _tell(self, what: str, message: str | None) -> None:
        """Warn, unless there was a warning of this kind."""
        if message is not None and what not in self._told:
            self._told.add(what)
            warn(message)
