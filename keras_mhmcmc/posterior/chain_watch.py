"""Warnings about a chain that did not sample its target: it stood still, or drifted."""

import math

import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc._warn import warn
from keras_mhmcmc.optimizers.sampler import Sampler

# Copies: samples are too alike if at most this share of them, and at most this number,
# differs from the sample before. Fewer samples than the last number prove nothing.
_DISTINCT_SHARE = 0.1
_DISTINCT = 10
_FEWEST_SAMPLES = 4
# Drift: the energy rose from the first third of the epochs to the last by more than
# this many standard errors of their means, if epochs were independent, and by more than
# this share of itself, since epochs are not. Fewer epochs show no trend.
_ERRORS = 5.0
_RISE = 0.2
_FEWEST_EPOCHS = 9
# A start that was better: the mean energy exceeds the first energy by more than this
# many standard deviations of an epoch, and by more than this share of it.
_DEVIATIONS = 2.0
_ABOVE = 0.25


class ChainWatch:
    """A record of kept states and of the epochs' energies, for warnings after `fit`."""

    def __init__(self) -> None:
        # Samples of each chain that differ from the sample before, shape (chains,).
        self._distinct = np.zeros(1, int)
        self._kept = 0
        self._last: npt.NDArray[np.float32] | None = None
        self._first_energy: float | None = None
        self._energies: list[float] = []

    def keep(self, state: npt.NDArray[np.float32]) -> None:
        """Record a sample: numbers of the weights, shape (chains, numbers)."""
        if self._last is None or self._last.shape != state.shape:
            self._distinct = np.ones(len(state), int)
            self._kept = 0
        else:
            self._distinct += (state != self._last).any(axis=1)
        self._kept += 1
        self._last = state

    def begin(self, energy: float | None) -> None:
        """Record the energy of the first mini-batch of a run, in nats."""
        self._first_energy = energy

    def end_epoch(self, energy: float | None, is_kept: bool) -> None:
        """Record the mean energy of an epoch, if a sample of it was kept."""
        if energy is not None and np.isfinite(energy) and is_kept:
            self._energies.append(energy)

    def end(self, sampler: Sampler) -> None:
        """Warn if samples are copies, or if the energy rose."""
        is_lost = np.reshape(sampler.lost_chains(), -1)
        self._check_states(is_lost)
        if not is_lost.any():  # otherwise the means are over different chains
            weights = sum(math.prod(v.shape) for v in sampler.sampled_variables)
            # At equilibrium each weight has the energy T/2 above the minimum.
            excess = 0.5 * sampler.temperature_now() * weights / len(is_lost)
            rate = float(ops.convert_to_numpy(sampler.learning_rate))
            self._check_energies(rate, excess)

    def _check_states(self, is_lost: npt.NDArray[np.bool_]) -> None:
        if self._kept < _FEWEST_SAMPLES or len(is_lost) != len(self._distinct):
            return
        few = max(1.0, min(_DISTINCT_SHARE * self._kept, _DISTINCT))
        is_still = (self._distinct <= few) & ~is_lost
        if not is_still.any():
            return
        where = "the chain"
        if len(is_still) > 1:
            where = f"each of the chains {np.flatnonzero(is_still).tolist()}"
        fewest = int(self._distinct[is_still].min())
        warn(
            f"Of the {self._kept} samples of {where}, only {fewest} "
            f"{'is' if fewest == 1 else 'are'} distinct. The others are copies of the "
            "sample before, and an ensemble of them is hardly more than one network. "
            "Look at `acceptance` in the logs. Lower the learning "
            "rate, raise the temperature, or keep samples less often (`every`)."
        )

    def _check_energies(self, rate: float, excess: float) -> None:
        energies = np.array(self._energies)
        if len(energies) < _FEWEST_EPOCHS:
            return
        third = len(energies) // 3
        early, late = energies[:third], energies[-third:]
        # Differences of neighbours, which a trend hardly changes.
        step = np.std(np.diff(energies))
        rise = late.mean() - early.mean()
        least = max(_ERRORS * step / third**0.5, _RISE * abs(early.mean()))
        remedy = (
            "Keep samples later (`burn_in`) and train longer. If the loss is worse "
            f"than before training, lower the learning rate (now {rate:.3g}), or check "
            "that `train_size` is the number of training examples."
        )
        if rise > least and late.min() > early.max():
            warn(
                f"The energy rose from {early.mean():.4g} to {late.mean():.4g} nats "
                f"over the {len(energies)} epochs with kept samples: the chain has not "
                f"settled. {remedy}"
            )
            return
        first = np.nan if self._first_energy is None else self._first_energy
        spread = _DEVIATIONS * energies.std()
        if energies.mean() - first > max(spread, _ABOVE * abs(first)) + excess:
            warn(
                f"The energy of the samples is {energies.mean():.4g} nats, far above "
                f"the {first:.4g} nats at the start of this `fit`. A posterior of so "
                f"many weights lies about {excess:.4g} nats above its minimum. {remedy}"
            )
