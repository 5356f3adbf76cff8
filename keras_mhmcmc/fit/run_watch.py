"""Chains whose samples are none of the posterior: they ran away, stood still, drifted.

A network that ignores its inputs can predict the mean of the targets, or the
frequencies of the classes. A chain with a larger loss has run away, or has not come
down yet. At equilibrium a chain may be above the best fit, by T/2 for each direction
that the data determine: at most one for each weight, and one for each output of each
example. So a chain must be above the constant prediction by more than this.

A chain that ran away may come back to a low loss with weights that are much too large.
The prior's energy tells these: at equilibrium it exceeds that of the start by at most
T/2 for each weight, and by what the likelihood has gained for it.
"""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit import loss_terms
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.fit.watch import tell
from keras_mhmcmc.fit.watch import text_of

_IN_A_ROW = 3  # samples above the limit that are told while `fit` runs
_BELOW = 0.02  # of the constant loss: below it by so much is no constant prediction
# The loss in inference may be larger by this factor, and by so many nats.
_FACTOR, _NATS = 1.5, 0.1
# The prior's energy may rise by so many times what equilibrium and likelihood explain.
_TIMES = 10.0
# What rounding to float32 may take from an energy, as a share of it.
_ROUNDING = 1e-6

# Copies: samples are too alike if at most this share of them, and at most this number,
# differs from the sample before. Fewer samples than the last number prove nothing.
_DISTINCT_SHARE, _DISTINCT, _FEWEST_SAMPLES = 0.1, 10, 4
# A rate that ends near 0: it never rose over the samples, and the last one has at most
# this share of the first one's rate, or of the rate at which the run began.
_LAST_RATE, _LEAST_RATE = 0.01, 1e-6
# Few acceptances: their share in the epochs with samples, if there were so many epochs.
_ACCEPTED, _ACCEPTED_EPOCHS = 0.05, 3
# Drift: the energy rose from the first third of the epochs to the last by more than
# this many standard errors of their means, if epochs were independent, and by more than
# this share of itself, since epochs are not. Fewer epochs show no trend. An energy that
# falls is usual while few samples are kept early, and has to fall more.
_ERRORS, _RISE, _FALL, _FEWEST_EPOCHS = 5.0, 0.2, 0.5, 9
_DESCENT = 0.05  # a fall of the energy on all data in fewer epochs, as a share of it
# A start that was better: the mean energy exceeds the first energy by more than this
# many standard deviations of an epoch, and by more than this share of it.
_DEVIATIONS, _ABOVE = 2.0, 0.25


class ChainWatch:
    """A record of kept states and of the epochs' energies, for warnings after `fit`."""

    def __init__(self) -> None:
        # Samples of each chain that differ from the sample before, shape (chains,).
        self._distinct = np.zeros(1, int)
        self._kept = 0
        self._last: npt.NDArray[np.float32] | None = None
        self._rates: list[float] = []  # of the samples
        self._first_rate, self._is_new = math.nan, False
        self._first_energy: float | None = None
        # On all data at the start, of a chain whose mini-batches favour its states.
        self._start: float | None = None
        # Means of the epochs with a sample.
        self._means: dict[str, list[float]] = {"energy": [], "acceptance": []}

    def keep(self, state: npt.NDArray[np.float32], rate: float) -> None:
        """Record a sample: numbers of the weights, (chains, numbers), and the rate."""
        self._rates.append(rate)
        if self._last is None or self._last.shape != state.shape:
            self._distinct, self._kept = np.ones(len(state), int), 0
        else:
            self._distinct += (state != self._last).any(axis=1)
        self._kept, self._last = self._kept + 1, state

    def open(self, model: keras.Model, sampler: Sampler, epochs: int) -> None:
        """Look at a chain before its first step, if it has few epochs."""
        if epochs >= _FEWEST_EPOCHS or not sampler.algorithm.traits.compares_batches:
            return
        if loss_terms.constant_loss(model) is not None:
            self._start = _energy_of_state(model, sampler)

    def begin(self, sampler: Sampler, is_new: bool) -> None:
        """Record the energy of the first mini-batch of a run, and the rate.

        `is_new`: the chain begins, and no burn-in was asked for.
        """
        self._first_energy = sampler.diagnostics().get("energy")
        self._first_rate, self._is_new = _rate_of(sampler), is_new

    def end_epoch(self, diagnostics: Mapping[str, float], is_kept: bool) -> None:
        """Record the mean energy and acceptance of an epoch with a kept sample."""
        for name, values in self._means.items():
            value = diagnostics.get(name, math.nan)
            if is_kept and np.isfinite(value):
                values.append(value)

    def end(self, model: keras.Model, sampler: Sampler, is_weighted: bool) -> None:
        """Warn if samples are nearly copies, or if the energy drifted.

        `is_weighted`: the samples are weighted by their rates.
        """
        is_lost = np.reshape(sampler.lost_chains(), -1)
        if not self._check_states(is_lost):
            self._check_acceptances()
            if not is_weighted and not sampler.algorithm.traits.draws_afresh:
                self._check_rates()
        if not is_lost.any():  # otherwise the means are over different chains
            # At equilibrium each weight has the energy T/2 above the minimum.
            excess = 0.5 * sampler.temperature_now() * _num_weights(sampler)
            end = None
            if self._start is not None:
                end = _energy_of_state(model, sampler)
            self._check_energies(_rate_of(sampler), excess, end)

    def _check_rates(self) -> None:
        if self._kept < _FEWEST_SAMPLES or (np.diff(self._rates) > 0.0).any():
            return
        first, last, start = self._rates[0], self._rates[-1], self._first_rate
        if last <= max(_LAST_RATE * first, _LEAST_RATE * start):
            tell("late", first=first, last=last, start=start, kept=self._kept)

    def _check_acceptances(self) -> None:
        accepted = self._means["acceptance"]
        if len(accepted) >= _ACCEPTED_EPOCHS and np.mean(accepted) < _ACCEPTED:
            tell("slow", mean=np.mean(accepted))

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
        distinct = f"{fewest} {'is' if fewest == 1 else 'are'}"
        tell("copies", kept=self._kept, where=where, distinct=distinct)
        return True

    def _check_energies(
        self, rate: float, excess: float, end: float | None = None
    ) -> None:
        energies, first = np.array(self._means["energy"]), self._first_energy
        epochs = len(energies)
        if epochs < _FEWEST_EPOCHS:
            if epochs < 2 or not self._is_new or first is None:
                return
            falls = bool((np.diff(energies) < 0.0).all())
            first, last = energies[[0, -1]]
            if end is not None and self._start is not None:
                falls, first, last = True, self._start, end
            if falls and last < first - _DESCENT * abs(first):
                tell("descent", kept=self._kept, epochs=epochs, first=first, last=last)
            return
        third = epochs // 3
        early, late = energies[:third], energies[-third:]
        start, rise = early.mean(), late.mean() - early.mean()
        # Of differences of neighbours, which a trend hardly changes.
        noise = _ERRORS * np.std(np.diff(energies)) / third**0.5
        facts = {"early": start, "late": late.mean(), "epochs": epochs, "rate": rate}
        if rise > max(noise, _RISE * abs(start)) and late.min() > early.max():
            tell("rise", **facts)
        elif -rise > max(noise, _FALL * abs(start)) and late.max() < early.min():
            tell("fall", **facts)
        elif first is not None:
            mean, spread = energies.mean(), _DEVIATIONS * energies.std()
            if mean - first > max(spread, _ABOVE * abs(first)) + excess:
                tell("above", mean=mean, first=first, excess=excess, rate=rate)


def _energy_of_state(model: keras.Model, sampler: Sampler) -> float:
    """Return the mean energy of the weights on all data, nats."""
    prior = sampler.prior_energies(model.trainable_variables).mean()
    return sampler.train_size * loss_terms.loss_of_state(model) + float(prior)


def _rate_of(sampler: Sampler) -> float:
    return float(ops.convert_to_numpy(sampler.learning_rate))


def _num_weights(sampler: Sampler) -> float:
    """Return the number of weights that each chain samples."""
    weights = sum(math.prod(v.shape) for v in sampler.sampled_variables)
    return weights / (sampler.num_chains or 1)


class Runaway:
    """The losses of the samples of a `fit`, beside that of a constant prediction."""

    def __init__(self) -> None:
        # Losses, (chains,): of the first mini-batch of the chain, the lowest of an
        # epoch, and that of the newest sample.
        self._first: Array | None = None
        self._lowest: Array | None = None
        self._last: Array | None = None
        self._first_prior: Any = 0.0  # nats, (chains,)
        self._has_fled: Any = False  # of each chain, and it has not come back
        self._constant: float | None = None
        self._is_known = self._is_told = False

    def open(self, model: keras.Model, sampler: Sampler) -> None:
        """Look at the weights before the first step of a `fit`."""
        if self._first is None:
            self._first_prior = sampler.prior_energies(model.trainable_variables)

    def begin(self, model: keras.Model, sampler: Sampler, is_new: bool) -> None:
        """Look at the loss of the first mini-batch of a `fit`.

        `is_new`: the chain begins.
        """
        self._is_known = self._is_told = False
        if is_new or self._first is None:
            self._first, self._lowest = _mean_losses(model, sampler), None
            self._has_fled = False

    def excess(
        self, model: keras.Model, sampler: Sampler, is_sample: bool = True
    ) -> list[float] | None:
        """Return how far each chain is above the limits, nats an example.

        The loss is the mean over the epoch so far. None: the loss is not known.
        """
        if not self._is_known:
            self._constant, self._is_known = loss_terms.constant_loss(model), True
        losses = _mean_losses(model, sampler)
        if losses is None or self._first is None:
            return None
        if is_sample and self._last is None:
            _warn_of_lag(model, float(losses[0]))
        before = losses if self._lowest is None else self._lowest
        self._lowest = np.fmin(before, losses)
        if is_sample:
            self._last = losses
        slack = _slack(model, sampler)
        base: Any = self._constant
        limit: Any
        if base is None:  # far above the start
            base, limit = self._first, np.maximum(slack, np.abs(self._first))
        elif not sampler.algorithm.traits.takes_prior:  # the noise is learned
            limit = max(slack, abs(base))
        else:
            # A chain that never was below has not come down yet: it may stay near its
            # start, whose loss one mini-batch shows.
            scale = max(abs(base), 1.0)
            far = 2.0 * np.maximum(self._first - base, 0.0) + scale
            limit = slack + np.where(self._lowest < base, 0.0, far)
            # A chain that runs away on its way down, and whose units die, falls to the
            # constant. It has come down once it is clearly below.
            is_below = self._lowest < base - _BELOW * scale
            is_far = losses > base + slack + far
            self._has_fled = (self._has_fled | is_far) & ~is_below
            limit = np.where(self._has_fled, -_BELOW * scale, limit)
        # A chain whose loss is not finite is lost, and gives no sample.
        excess = np.where(np.isfinite(losses), losses - base - limit, -math.inf)
        if is_sample and sampler.algorithm.traits.takes_prior:
            rise = (sampler.prior_energies() - self._first_prior) / sampler.train_size
            gain = np.maximum(np.fmax(self._first, base) - self._lowest, 0.0)
            weights = _num_weights(sampler) / sampler.train_size
            explained = gain + 0.5 * sampler.temperature_now() * weights
            excess = np.fmax(excess, rise - _TIMES * explained)
        return [float(x) for x in excess]

    def tell(
        self, model: keras.Model, records: Sequence[Any], is_over: bool = False
    ) -> bool:
        """Warn, once, of samples above the limit, and return whether there are any.

        `records` are those of all samples. Before `fit` is over several in a row are
        needed.
        """
        if self._last is None or self._first is None or not records:
            return False
        is_above, constant = are_above(records, len(self._last)), self._constant
        now, first = float(np.mean(self._last)), float(np.mean(self._first))
        if not is_above.any():
            if is_over and constant is not None:
                if model.optimizer.algorithm.traits.compares_batches:
                    # Its energies are those of mini-batches that favoured the states.
                    now = loss_terms.loss_of_state(model)
                if now > constant:
                    tell("high", now=now, constant=constant)
            return False
        newest = [record.excess or [-math.inf] for record in records[-_IN_A_ROW:]]
        is_lasting = len(newest) == _IN_A_ROW and min(map(min, newest)) > 0.0
        if not self._is_told and (is_over or is_lasting):
            self._is_told = True
            than = f"it was {first:.4g} at the start of this `fit`"
            if constant is not None:
                than = f"a constant prediction has {constant:.4g}, and {than}"
            counts = {"above": is_above.sum(), "samples": is_above.size}
            tell("runaway", now=now, than=than, **counts)
        return True


class NoSampleError(ValueError):
    """All samples are of chains that ran away, or that have not come down."""


def are_above(records: Sequence[Any], chains: int) -> npt.NDArray[np.bool_]:
    """Return which samples an ensemble leaves out, shape (samples, chains).

    If most of the last third of a chain is above the limit, all of the chain is left
    out. A burst that comes down again costs its own samples alone.
    """
    unknown = [-math.inf] * chains
    rows = [unknown if record.excess is None else record.excess for record in records]
    above = np.array(rows, "float64").reshape(len(rows), chains) > 0.0
    late = above[-max(len(above) // 3, 1) :]
    return above | (late.mean(axis=0) > 0.5)


def tell_of_left_out(is_above: npt.NDArray[np.bool_], what: str) -> None:
    """Warn of samples, or of chains, that are left out.

    Raises:
        NoSampleError: none is left.
    """
    if not is_above.any():
        return
    found = text_of("left out", above=is_above.sum(), count=is_above.size, what=what)
    if is_above.all():
        raise NoSampleError(f"There is no sample of a posterior: {found}")
    warn(f"{found} They are left out.")


def _mean_losses(model: keras.Model, sampler: Sampler) -> Array | None:
    """Return the mean loss of each chain in this epoch so far, shape (chains,).

    Between its steps a Metropolis-Hastings sampler evaluates proposals, and Keras
    averages their losses. The energies are those of the states.
    """
    if sampler.algorithm.traits.compares_batches:
        energy = sampler.chain_diagnostics().get("energy")
        if energy is None:
            return None
        loss = energy - sampler.prior_energies()
        # An upper bound: of weights that ran away the difference is rounding alone.
        return (loss + _ROUNDING * np.abs(energy)) / sampler.train_size
    if isinstance(model, StackedModel):
        losses = model.chain_results().get("loss")
    else:
        losses = model.get_metrics_result().get("loss")
    if losses is None:
        return None
    return np.asarray(ops.convert_to_numpy(losses), "float64").reshape(-1)


def _slack(model: keras.Model, sampler: Sampler) -> float:
    """Return what equilibrium may add to the mean loss, in nats."""
    directions = _num_weights(sampler) / sampler.train_size
    shape = loss_terms.output_shape(model)
    if shape is not None:
        directions = min(directions, math.prod(shape))
    return 0.5 * sampler.temperature_now() * directions


def _warn_of_lag(model: keras.Model, training: float) -> None:
    """Warn if a model has a much larger loss in inference than in training, nats.

    The moving statistics of batch normalisation may lag behind the weights. Several
    chains, several losses and data that can be read only once are left alone.
    """
    kind = keras.layers.BatchNormalization
    layers = _backend.inner_layers(model)
    layers = [x.name for x in layers if isinstance(x, kind) and x.trainable]
    is_one = len(_backend.compiled_losses(model)) == 1
    if not layers or not is_one or isinstance(model, StackedModel):
        return
    for x, y, _ in loss_terms.first_batches(model, 1):
        inference = loss_terms.mean_loss(model, model(x, training=False), y)
        if inference > _FACTOR * training + _NATS:
            losses = {"training": training, "inference": inference}
            tell("lag", layers=", ".join(layers[:5]), **losses)
