"""Signs in the samples of a run that the chain did not sample."""

import numpy as np
from keras import ops

from keras_mhmcmc._warn import warn
from keras_mhmcmc.stacked import StackedModel

_FEWEST = 5  # epochs from which a trend can be told
_FEWEST_SAMPLES = 4  # from which copies are no chance
_ERRORS = 5.0  # standard errors by which the energy must have risen
_ENTRIES = 256  # numbers of a weight that tell one state from another


class ChainWatch:
    """Looks at kept states and at energies of epochs; warns at the end of a run."""

    def __init__(self):
        self._states = []  # of each chain, those that differ from the one before
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

    def end_epoch(self, energy, is_kept):
        """Takes note of the mean energy of an epoch, and whether it gave samples."""
        if energy is not None and np.isfinite(energy):
            if self._first_energy is None:
                self._first_energy = energy
            if is_kept:
                self._energies.append(energy)

    def end(self, sampler):
        """Warns of samples that are copies, and of an energy that rises."""
        self._check_states()
        self._check_energies(float(ops.convert_to_numpy(sampler.learning_rate)))

    def _check_states(self):
        is_still = np.asarray(self._states) <= 0.1 * self._kept
        is_still |= np.asarray(self._states) == 1
        if self._kept < _FEWEST_SAMPLES or not is_still.any():
            return
        where = "the chain"
        if len(is_still) > 1:
            where = f"each of the chains {np.flatnonzero(is_still).tolist()}"
        fewest = int(np.min(self._states))
        warn(
            f"Of the {self._kept} samples of {where}, {fewest} "
            f"{'is' if fewest == 1 else 'are'} different from the one before, or the "
            "first: the others are copies, and an ensemble of them is hardly more than "
            "one network. Look at `acceptance`; lower the learning rate, raise the "
            "temperature, or keep samples less often (`every`)."
        )

    def _check_energies(self, rate):
        energies = np.array(self._energies)
        if len(energies) < _FEWEST:
            return
        half = len(energies) // 2
        early, late = energies[:half].mean(), energies[-half:].mean()
        # Of the differences of neighbours, which a trend hardly touches.
        noise = np.std(np.diff(energies)) / half**0.5
        remedy = (
            "Keep samples later (`burn_in`) and train longer. If the loss is worse "
            f"than before training, lower the learning rate (now {rate:.3g}), or look "
            "whether `train_size` is the number of training examples."
        )
        if late - early > _ERRORS * noise and late > early:
            warn(
                f"The energy rose from {early:.4g} to {late:.4g} nats over the "
                f"{len(energies)} epochs whose samples were kept: the chain has not "
                f"settled. {remedy}"
            )
        elif energies.mean() - self._first_energy > _ERRORS * noise:
            warn(
                f"The energy of the samples is {energies.mean():.4g} nats, above the "
                f"{self._first_energy:.4g} of the first epoch. From weights that "
                "were trained before, a posterior rises so, and a lower temperature or "
                f"a tighter prior keeps it nearer. Otherwise: {remedy}"
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
