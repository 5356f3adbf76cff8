"""Signs in the samples of a run that the chain did not sample."""

import math

import numpy as np
from keras import ops

from keras_mhmcmc._warn import warn
from keras_mhmcmc.parallel.stacked_model import StackedModel

_FEWEST = 9  # epochs from which a trend can be told
_FEWEST_SAMPLES = 4  # from which copies are no chance
_COPIES = 0.1  # share of the samples that differ, and
_FEW_STATES = 10  # number of them, below which they are worth little
# By what the energy must have risen from the first third to the last: errors of a mean
# if epochs were independent, and a share of itself, since they are not.
_ERRORS = 5.0
_RISE = 0.2
# And by what it must lie above the first energy: deviations of an epoch, and a share.
_DEVIATIONS = 2.0
_ABOVE = 0.25
_ENTRIES = 256  # numbers of a weight that tell one state from another


class ChainWatch:
    """Looks at kept states and at energies of epochs; warns at the end of a run."""

    def __init__(self):
        self._states = np.zeros(1, int)  # of each chain, samples unlike the one before
        self._kept = 0
        self._last = None
        self._first_energy = None
        self._energies = []

    def keep(self, model):
        """Takes note of a sample, the state that `model` holds now."""
        state = _entries(model)
        if self._kept == 0 or self._last.shape != state.shape:
            self._states = np.ones(len(state), int)
            self._kept = 0
        else:
            self._states += (state != self._last).any(axis=1)
        self._kept += 1
        self._last = state

    def begin(self, energy):
        """Takes note of the energy in the first mini-batch of a run, or None."""
        self._first_energy = energy

    def end_epoch(self, energy, is_kept):
        """Takes note of the mean energy of an epoch, and whether it gave samples."""
        if energy is not None and np.isfinite(energy) and is_kept:
            self._energies.append(energy)

    def end(self, sampler):
        """Warns of samples that are copies, and of an energy that rises."""
        is_lost = np.reshape(sampler.lost_chains(), -1)
        self._check_states(is_lost)
        if not is_lost.any():  # or the means are not over the same chains
            weights = sum(math.prod(v.shape) for v in sampler.sampled_variables)
            # At equilibrium each weight has half of T above the least energy.
            warmth = 0.5 * sampler.temperature_now() * weights / len(is_lost)
            rate = float(ops.convert_to_numpy(sampler.learning_rate))
            self._check_energies(rate, warmth)

    def _check_states(self, is_lost):
        if self._kept < _FEWEST_SAMPLES or len(is_lost) != len(self._states):
            return
        few = max(1.0, min(_COPIES * self._kept, _FEW_STATES))
        is_still = (self._states <= few) & ~is_lost
        if not is_still.any():
            return
        where = "the chain"
        if len(is_still) > 1:
            where = f"each of the chains {np.flatnonzero(is_still).tolist()}"
        fewest = int(self._states[is_still].min())
        warn(
            f"Of the {self._kept} samples of {where}, {fewest} "
            f"{'is' if fewest == 1 else 'are'} different from the one before, or the "
            "first: the others are copies, and an ensemble of them is hardly more than "
            "one network. Look at `acceptance`; lower the learning rate, raise the "
            "temperature, or keep samples less often (`every`)."
        )

    def _check_energies(self, rate, warmth):
        energies = np.array(self._energies)
        if len(energies) < _FEWEST:
            return
        third = len(energies) // 3
        early, late = energies[:third], energies[-third:]
        # Differences of neighbours, which a trend hardly touches.
        step = np.std(np.diff(energies))
        rise = late.mean() - early.mean()
        least = max(_ERRORS * step / third**0.5, _RISE * abs(early.mean()))
        remedy = (
            "Keep samples later (`burn_in`) and train longer. If the loss is worse "
            f"than before training, lower the learning rate (now {rate:.3g}), or look "
            "whether `train_size` is the number of training examples."
        )
        if rise > least and late.min() > early.max():
            warn(
                f"The energy rose from {early.mean():.4g} to {late.mean():.4g} nats "
                f"over the {len(energies)} epochs whose samples were kept: the chain "
                f"has not settled. {remedy}"
            )
            return
        first = np.nan if self._first_energy is None else self._first_energy
        spread = _DEVIATIONS * energies.std()
        if energies.mean() - first > max(spread, _ABOVE * abs(first)) + warmth:
            warn(
                f"The energy of the samples is {energies.mean():.4g} nats, far above "
                f"the {first:.4g} with which this `fit` began: a posterior of so many "
                f"weights is some {warmth:.4g} above its best ones. {remedy}"
            )


def _entries(model):
    """Some numbers of each trainable weight, a row for each chain."""
    rows = []
    for variable in model.trainable_variables:
        array = np.asarray(ops.convert_to_numpy(variable))
        chains = len(array) if isinstance(model, StackedModel) else 1
        row = array.reshape(chains, -1)
        row = row[:, :: max(row.shape[1] // _ENTRIES, 1)]
        rows.append(row.astype("float32"))
    return np.concatenate(rows, axis=1) if rows else np.zeros((1, 0), "float32")
