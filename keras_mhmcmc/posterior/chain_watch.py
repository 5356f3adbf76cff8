"""Warnings about a chain that did not sample its target: it stood still, or drifted."""

import math
from collections.abc import Mapping

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.posterior import progress

# Copies: samples are too alike if at most this share of them, and at most this number,
# differs from the sample before. Fewer samples than the last number prove nothing.
_DISTINCT_SHARE = 0.1
_DISTINCT = 10
_FEWEST_SAMPLES = 4
# A rate that ends near 0: it never rose over the samples, and the last one has at most
# this share of the first one's rate, or of the rate at which the run began.
_LAST_RATE = 0.01
_LEAST_RATE = 1e-6
# Few acceptances: their share in the epochs with samples, if there were so many epochs.
_ACCEPTED = 0.05
_ACCEPTED_EPOCHS = 3
# Drift: the energy rose from the first third of the epochs to the last by more than
# this many standard errors of their means, if epochs were independent, and by more than
# this share of itself, since epochs are not. Fewer epochs show no trend. An energy that
# falls is usual while few samples are kept early, and has to fall more.
_ERRORS = 5.0
_RISE = 0.2
_FALL = 0.5
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
        self._acceptances: list[float] = []
        self._first_rate = math.nan
        self._is_new = False
        self._rates: list[float] = []

    def keep(self, state: npt.NDArray[np.float32], rate: float) -> None:
        """Record a sample.

        Args:
            state: numbers of the weights, shape (chains, numbers).
            rate: the learning rate at the sample.
        """
        self._rates.append(rate)
        if self._last is None or self._last.shape != state.shape:
            self._distinct = np.ones(len(state), int)
            self._kept = 0
        else:
            self._distinct += (state != self._last).any(axis=1)
        self._kept += 1
        self._last = state

    def begin(self, model: keras.Model, sampler: Sampler, is_new: bool) -> None:
        """Record the energy of the first mini-batch of a run, and the rate.

        Args:
            model: trains.
            sampler: its optimizer.
            is_new: whether the chain begins, and no burn-in was asked for.
        """
        self._first_energy = sampler.diagnostics().get("energy")
        self._first_rate, self._is_new = progress.rate_of(model), is_new

    def end_epoch(self, diagnostics: Mapping[str, float], is_kept: bool) -> None:
        """Record the mean energy and acceptance of an epoch with a kept sample."""
        for name, values in (
            ("energy", self._energies),
            ("acceptance", self._acceptances),
        ):
            value = diagnostics.get(name, math.nan)
            if is_kept and np.isfinite(value):
                values.append(value)

    def end(self, sampler: Sampler, is_weighted: bool) -> None:
        """Warn if samples are nearly copies, or if the energy drifted.

        Args:
            sampler: the optimizer of the run.
            is_weighted: whether the samples are weighted by their rates.
        """
        is_lost = np.reshape(sampler.lost_chains(), -1)
        if not self._check_states(is_lost):
            self._check_acceptances()
            if not is_weighted:
                self._check_rates()
        if not is_lost.any():  # otherwise the means are over different chains
            weights = sum(math.prod(v.shape) for v in sampler.sampled_variables)
            # At equilibrium each weight has the energy T/2 above the minimum.
            excess = 0.5 * sampler.temperature_now() * weights / len(is_lost)
            rate = float(ops.convert_to_numpy(sampler.learning_rate))
            self._check_energies(rate, excess)

    def _check_rates(self) -> None:
        if self._kept < _FEWEST_SAMPLES or (np.diff(self._rates) > 0.0).any():
            return
        first, last = self._rates[0], self._rates[-1]
        if last > max(_LAST_RATE * first, _LEAST_RATE * self._first_rate):
            return
        warn(
            f"The learning rate fell to {last:.3g} at the last of {self._kept} "
            f"samples, from {first:.3g} at the first and {self._first_rate:.3g} at the "
            "start of this `fit`. The late samples are nearly copies of each other, "
            "and an ensemble of them is hardly more than one network. Let the rate end "
            "above 0, such as with `alpha=0.1` of a `CosineDecay`, keep samples from "
            'many cycles of a cyclical schedule, or pass weight_by="learning_rate".'
        )

    def _check_acceptances(self) -> None:
        if len(self._acceptances) < _ACCEPTED_EPOCHS:
            return
        mean = float(np.mean(self._acceptances))
        if mean < _ACCEPTED:
            warn(
                f"The chain accepted {mean:.1%} of its proposals in the epochs with "
                "kept samples, and it hardly moves. Lower the learning rate, or raise "
                "the temperature, until it accepts 10% or more."
            )

    def _check_states(self, is_lost: npt.NDArray[np.bool_]) -> bool:
        """Warn if samples are copies, and return whether they are."""
        if self._kept < _FEWEST_SAMPLES or len(is_lost) != len(self._distinct):
            return False
        few = max(1.0, min(_DISTINCT_SHARE * self._kept, _DISTINCT))
        is_still = (self._distinct <= few) & ~is_lost
        if not is_still.any():
            return False
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
        return True

    def _check_descent(self, energies: npt.NDArray[np.float64]) -> None:
        """Warn if all samples of a new chain may be from its way down."""
        falls = len(energies) > 1 and bool((np.diff(energies) < 0.0).all())
        if falls and self._is_new and self._first_energy is not None:
            warn(
                f"All {self._kept} samples are from the first {len(energies)} epochs "
                f"of a new chain, whose energy fell in each of them, from "
                f"{self._first_energy:.4g} to {energies[-1]:.4g} nats. They are from "
                "its way down, and not of the posterior. Train longer, and keep "
                "samples once the energy has settled (`burn_in`)."
            )

    def _check_energies(self, rate: float, excess: float) -> None:
        energies = np.array(self._energies)
        if len(energies) < _FEWEST_EPOCHS:
            self._check_descent(energies)
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
        least = max(_ERRORS * step / third**0.5, _FALL * abs(early.mean()))
        if -rise > least and late.max() < early.min():
            warn(
                f"The energy fell from {early.mean():.4g} to {late.mean():.4g} nats "
                f"over the {len(energies)} epochs with kept samples: the early ones "
                "are from before the chain settled, and make the ensemble worse. Keep "
                "samples later (`burn_in`), and train longer."
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
