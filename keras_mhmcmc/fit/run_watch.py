"""What the callback that keeps samples watches: the data of a `fit`, and its chains.

Samples of chains that ran away, stood still or drifted are none of the posterior.

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
from keras_mhmcmc import _data
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.fit.watch import Once
from keras_mhmcmc.fit.watch import tell
from keras_mhmcmc.fit.watch import text_of
from keras_mhmcmc.losses import Likelihood
from keras_mhmcmc.priors import Prior

_IN_A_ROW = 3  # samples above the limit that are told while `fit` runs
_BELOW = 0.02  # of the constant loss: below it by so much is no constant prediction
# The loss in inference may be larger by this factor, and by so many nats.
_FACTOR, _NATS = 1.5, 0.1
# The prior's energy may rise by so many times what equilibrium and likelihood explain.
_TIMES = 10.0
# What rounding to float32 may take from an energy, as a share of it.
_ROUNDING = 1e-6

# Drift: the energy rose from the first third of the epochs to the last by more than
# this many standard errors of their means, if epochs were independent, and by more than
# this share of itself, since epochs are not. Fewer epochs show no trend. An energy that
# falls is usual while few samples are kept early, and has to fall more.
_ENERGY_ERRORS, _RISE, _FALL, _FEWEST_EPOCHS = 5.0, 0.2, 0.5, 9
# A rate that ends near 0: it never rose over the samples, and the last one has at most
# this share of the first one's rate, or of the rate at which the run began.
_LAST_RATE, _LEAST_RATE, _FEWEST_SAMPLES = 0.01, 1e-6, 4
_DESCENT = 0.05  # a fall in each of fewer epochs of a new chain, as a share of it

# Smallest last mini-batch of an epoch, as a share of the others. A smaller one widens
# what a Metropolis-Hastings sampler samples (`docs/gotchas.md`).
_FULL = 0.75
_TOLERANCE = 0.05  # of the mean weight, which is 1 if the data count once
_WEIGHT_ERRORS = 4.0  # standard errors of the mean over the first mini-batches


class SampleWatch:
    """The samples of a `fit` with a sampler, and the energies of its epochs."""

    def __init__(self) -> None:
        # Losses, (chains,): of the first mini-batch of the chain, the lowest of an
        # epoch, and that of the newest sample.
        self._first: Array | None = None
        self._lowest: Array | None = None
        self._last: Array | None = None
        self._first_prior: Any = None  # nats, (chains,)
        self._has_fled: Any = False  # of each chain, and it has not come back
        self._constant: float | None = None  # the loss of a constant prediction
        self._looks_at_data = False
        self.restart()

    def restart(self) -> None:
        self._once = Once()
        self._is_unburnt = False  # a new chain, and no burn-in was asked for
        self._energies: list[float] = []  # means of the epochs with a sample
        self._rates: list[float] = []  # of the first step, and of the samples

    def open(self, model: keras.Model, sampler: Sampler) -> None:
        """Look at the weights before the first step of a `fit`, if there are any."""
        weights = model.trainable_variables
        if self._first is None and weights:
            self._first_prior = _prior_energies(sampler, weights)

    def begin(
        self, model: keras.Model, sampler: Sampler, is_new: bool, is_unburnt: bool
    ) -> None:
        """Look at the first mini-batch of a `fit`, and of the chain if `is_new`."""
        self._looks_at_data, self._is_unburnt = True, is_unburnt
        self._rates = [rate_of(sampler)]
        if self._first_prior is None:  # TensorFlow builds a model in its first step
            self._first_prior = _prior_energies(sampler)
        if is_new or self._first is None:
            self._first, self._lowest = _mean_losses(model, sampler), None
            self._has_fled = False

    def excess(
        self, model: keras.Model, sampler: Sampler, is_sample: bool = True
    ) -> list[float] | None:
        """Return how far each chain is above the limits, nats an example, if known."""
        if is_sample:
            self._rates.append(rate_of(sampler))
        if self._looks_at_data:
            self._looks_at_data = False
            batches = compiled_loss.first_batches(model)
            check_weights(model, batches)
            self._constant = compiled_loss.constant_loss(model, batches)
        losses = _mean_losses(model, sampler)
        if losses is None or self._first is None:
            return None
        if is_sample and self._last is None:
            _warn_of_lag(model, float(losses[0]))
        before = losses if self._lowest is None else self._lowest
        self._lowest = np.fmin(before, losses)
        if is_sample:
            self._last = losses
        takes_prior = sampler.algorithm.traits.takes_prior
        slack = _slack(model, sampler)
        base: Any = self._constant
        limit: Any
        if base is None:  # far above the start
            base, limit = self._first, np.maximum(slack, np.abs(self._first))
        elif not takes_prior:  # the noise is learned
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
        if is_sample and takes_prior:
            rise = (_prior_energies(sampler) - self._first_prior) / sampler.train_size
            gain = np.maximum(np.fmax(self._first, base) - self._lowest, 0.0)
            weights = _num_weights(sampler) / sampler.train_size
            explained = gain + 0.5 * sampler.temperature_now() * weights
            excess = np.fmax(excess, rise - _TIMES * explained)
        return [float(x) for x in excess]

    def end_epoch(
        self,
        diagnostics: Mapping[str, float],
        records: Sequence[Any],
        is_kept: bool,
    ) -> None:
        """Look at an epoch: `is_kept` says whether it has one of the kept samples."""
        energy = diagnostics.get("energy", math.nan)
        if is_kept and np.isfinite(energy):
            self._energies.append(energy)
        newest = [record.excess or [-math.inf] for record in records[-_IN_A_ROW:]]
        if len(newest) == _IN_A_ROW and min(map(min, newest)) > 0.0:
            self._tell_of_runaways(records)

    def end(self, model: keras.Model, sampler: Sampler, records: Sequence[Any]) -> None:
        """Warn of samples above the limits; otherwise if they drifted."""
        if self._tell_of_runaways(records):
            return
        if self._constant is not None and self._last is not None and records:
            now = float(np.mean(self._last))
            if sampler.algorithm.traits.compares_batches:
                # Its energies are those of mini-batches that favoured the states.
                now = compiled_loss.loss_of_state(model)
            if now > self._constant:
                tell("high", now=now, constant=self._constant)
        is_weighted = any(record.log_rate for record in records)
        if not is_weighted and not sampler.algorithm.traits.draws_afresh:
            self._check_rates()
        if not sampler.lost_chains().any():  # the means are over the same chains
            self._check_energies(rate_of(sampler))

    def _tell_of_runaways(self, records: Sequence[Any]) -> bool:
        """Warn of samples above the limits, and return whether there are any."""
        if self._last is None or self._first is None or not records:
            return False
        is_above = are_above(records, len(self._last))
        if not is_above.any():
            return False
        now, first = float(np.mean(self._last)), float(np.mean(self._first))
        than = f"it was {first:.4g} at the start of this `fit`"
        if self._constant is not None:
            than = f"a constant prediction has {self._constant:.4g}, and {than}"
        counts = {"above": is_above.sum(), "samples": is_above.size}
        self._once.tell("runaway", now=now, than=than, **counts)
        return True

    def _check_rates(self) -> None:
        """Warn if the last samples hardly moved."""
        start, *rates = self._rates
        if len(rates) < _FEWEST_SAMPLES or (np.diff(rates) > 0.0).any():
            return
        first, last = rates[0], rates[-1]
        if last <= max(_LAST_RATE * first, _LEAST_RATE * start):
            tell("late", first=first, last=last, start=start, kept=len(rates))

    def _check_energies(self, rate: float) -> None:
        """Warn if the energy rose or fell while samples were kept."""
        energies, epochs = np.array(self._energies), len(self._energies)
        facts = {"epochs": epochs, "rate": rate}
        if epochs < _FEWEST_EPOCHS:
            falls = epochs > 1 and self._is_unburnt and (np.diff(energies) < 0.0).all()
            if falls and energies[-1] < energies[0] - _DESCENT * abs(energies[0]):
                tell("fall", early=energies[0], late=energies[-1], **facts)
            return
        third = epochs // 3
        early, late = energies[:third], energies[-third:]
        start, rise = early.mean(), late.mean() - early.mean()
        # Of differences of neighbours, which a trend hardly changes.
        noise = _ENERGY_ERRORS * np.std(np.diff(energies)) / third**0.5
        facts |= {"early": start, "late": late.mean()}
        if rise > max(noise, _RISE * abs(start)) and late.min() > early.max():
            tell("rise", **facts)
        elif -rise > max(noise, _FALL * abs(start)) and late.max() < early.min():
            tell("fall", **facts)


def rate_of(sampler: keras.optimizers.Optimizer) -> float:
    return float(ops.convert_to_numpy(sampler.learning_rate))


def _num_weights(sampler: Sampler) -> float:
    weights = sum(math.prod(v.shape) for v in sampler.sampled_variables)
    return weights / (sampler.num_chains or 1)


class NoSampleError(ValueError):
    """All samples are of chains that ran away, or that have not come down."""


def are_above(records: Sequence[Any], chains: int) -> npt.NDArray[np.bool_]:
    """Return which samples an ensemble leaves out, shape (samples, chains).

    They are all of a chain if most of its last third is above the limit.
    """
    unknown = [-math.inf] * chains
    rows = [unknown if record.excess is None else record.excess for record in records]
    above = np.array(rows, "float64").reshape(len(rows), chains) > 0.0
    late = above[-max(len(above) // 3, 1) :]
    return above | (late.mean(axis=0) > 0.5)


def tell_of_left_out(is_above: npt.NDArray[np.bool_], what: str) -> None:
    """Warn of samples or chains that are left out, or raise: none is left."""
    if not is_above.any():
        return
    found = text_of("left out", above=is_above.sum(), count=is_above.size, what=what)
    if is_above.all():
        raise NoSampleError(f"There is no sample of a posterior: {found}")
    warn(found)


def _mean_losses(model: keras.Model, sampler: Sampler) -> Array | None:
    """Return the mean loss of each chain in this epoch so far, shape (chains,)."""
    # Keras averages the losses of proposals, too. The energies are those of states.
    if sampler.algorithm.traits.compares_batches:
        energy = sampler.chain_diagnostics().get("energy")
        if energy is None:
            return None
        loss = energy - _prior_energies(sampler)
        # An upper bound: of weights that ran away the difference is rounding alone.
        return (loss + _ROUNDING * np.abs(energy)) / sampler.train_size
    if isinstance(model, StackedModel):
        losses = model.chain_results().get("loss")
    else:
        losses = model.get_metrics_result().get("loss")
    if losses is None:
        return None
    return np.asarray(ops.convert_to_numpy(losses), "float64").reshape(-1)


def _prior_energies(sampler: Sampler, weights: Sequence[keras.Variable] = ()) -> Array:
    """Return -log prior, nats, (chains,), of the states or the `weights` of a model."""
    energies = np.zeros(sampler.num_chains or 1)
    if not isinstance(sampler.prior, Prior):
        return energies
    values = [v.value for v in weights] or sampler.state_values()
    bound = sampler.prior.bind(weights or sampler.sampled_variables)
    like = ops.zeros(() if sampler.num_chains is None else sampler.num_chains)
    found = ops.convert_to_numpy(bound.energy(values, like))
    return np.reshape(found, -1) + energies


def _slack(model: keras.Model, sampler: Sampler) -> float:
    """Return what equilibrium may add to the mean loss, in nats."""
    directions = _num_weights(sampler) / sampler.train_size
    shape = compiled_loss.output_shape(model)
    if shape is not None:
        directions = min(directions, math.prod(shape))
    return 0.5 * sampler.temperature_now() * directions


def _warn_of_lag(model: keras.Model, training: float) -> None:
    """Warn if the moving statistics of batch normalisation lag behind the weights.

    Several chains, several losses and data that can be read only once are left alone.
    """
    kind = keras.layers.BatchNormalization
    layers = _backend.inner_layers(model)
    layers = [x.name for x in layers if isinstance(x, kind) and x.trainable]
    is_one = len(_backend.compiled_losses(model)) == 1
    if not layers or not is_one or isinstance(model, StackedModel):
        return
    for x, y, _ in compiled_loss.first_batches(model, 1):
        inference = compiled_loss.mean_loss(model, model(x, training=False), y)
        if inference > _FACTOR * training + _NATS:
            losses = {"training": training, "inference": inference}
            tell("lag", layers=", ".join(layers[:5]), **losses)


class FitSizes(Once):
    """A comparison of the sizes of a sampler with the examples that `fit` uses."""

    def __init__(self) -> None:
        super().__init__()
        self._batch: int | None = None  # examples in a mini-batch of this `fit`

    def check_batch(self, model: keras.Model, batches: int) -> None:
        """Look at the loss, and at the size of the first `batches` of an epoch."""
        if self.is_first("loss"):
            compiled_loss.warn_of_sum(model)
            _warn_of_grid(model)
        seen = _examples_seen(model)
        # Otherwise Keras counts no examples, or counts mini-batches.
        is_counted = seen > batches and seen % batches == 0
        self._batch = seen // batches if is_counted else None

    def check_epoch(self, model: keras.Model, steps: int) -> None:
        """Compare the number of examples, after an epoch of `steps` mini-batches."""
        seen, batch, sampler = _examples_seen(model), self._batch, model.optimizer
        if batch is None:
            return
        factors, expected = compiled_loss.terms_of_an_example(model), sampler.batch_size
        if expected is not None and batch != expected:
            if batch < expected and math.ceil(seen / expected) == steps:
                batch = expected  # the short mini-batch came first
            elif expected not in _sizes(batch, factors, expected):
                self.tell("batch_size", batch=batch, expected=expected)
        if steps == 1 and sampler.algorithm.traits.needs_batches:
            self.tell("whole batch", examples=seen)
        expected, length = sampler.train_size, _length_of_arrays(model)
        exact = seen if length is None else length
        sizes, terms = _sizes(exact, factors, expected), ""
        if factors is not None and len(factors) == 1 and 1 not in factors:
            terms = f", and the loss is a mean over {min(factors)} terms of each, "
            terms += f"{min(sizes)} in all"
        # A pipeline may drop a part of a mini-batch, and arrays are seen whole.
        slack = batch if length is None else 0.5
        if min(abs(expected - size) / size * exact for size in sizes) >= slack:
            self.tell("train_size", examples=exact, terms=terms, expected=expected)
        last = seen - (steps - 1) * batch
        if sampler.batch_size is not None and 0 < last < _FULL * batch:
            self.tell("last", last=last, batch=batch, examples=seen)


def _sizes(examples: int, factors: set[int] | None, expected: int) -> set[int]:
    """Return all numbers that may stand for the terms of these examples in the loss."""
    if factors is None:  # any multiple may be right
        factors = {max(1, round(expected / examples))}
    return {examples * factor for factor in factors}


def _examples_seen(model: keras.Model) -> int:
    """Return the examples in this epoch so far, or 0 if Keras counts none."""
    # Keras counts those of this process, which has an equal part of each mini-batch.
    processes = model.optimizer.processes
    if isinstance(model, StackedModel):
        return processes * model.examples_seen()
    for metric in model.metrics:
        if type(metric) is keras.metrics.Mean and metric.name == "loss":
            return processes * round(float(ops.convert_to_numpy(metric.count)))
    return 0


def _length_of_arrays(model: keras.Model) -> int | None:
    """Return the number of examples that `fit` has as arrays in all, or None."""
    data = _backend.fitted_data(model)
    if data is None or model.optimizer.processes > 1 or _data.is_dataset(data["x"]):
        return None
    return _backend.count_examples(data["x"])


def _warn_of_grid(model: keras.Model) -> None:
    """Warn of targets with few distinct values under a density, if `fit` has arrays."""
    losses, y = keras.tree.flatten(model.loss), compiled_loss.fitted_targets(model)
    if y is not None and len(losses) == 1 and isinstance(losses[0], Likelihood):
        losses[0].warn_of_grid(np.asarray(ops.convert_to_numpy(y)))


def check_weights(model: keras.Model, batches: Sequence[_data.Batch]) -> None:
    """Warn of weights of the examples in `fit` whose mean is not 1.

    The mean multiplies the likelihood, unless Keras divides by the sum of the weights.
    Weights of 0 leave examples out. `batches` are the first ones of a data set.
    """
    data = _backend.fitted_data(model)
    reductions = {loss.reduction for loss, _ in _backend.compiled_losses(model)}
    if data is None or "mean_with_sample_weight" in reductions:
        return
    classes, is_dataset = data["class_weight"], _data.is_dataset(data["x"])
    name = "third element of the data" if is_dataset else "argument `sample_weight`"
    if not is_dataset:
        batches = [_data.Batch(data["x"], data["y"], data["sample_weight"])]
    if classes is not None:
        name = "argument `class_weight`"
        batches = [b._replace(sample_weight=_of_classes(classes, b.y)) for b in batches]
    rows = [keras.tree.flatten(batch.sample_weight) for batch in batches]
    found = set()
    for column in zip(*rows, strict=True):  # of each output
        if not all(map(_is_array, column)):
            continue
        used = np.concatenate([ops.convert_to_numpy(x) for x in column], dtype=float)
        used = used[used != 0.0]
        mean = float(np.mean(used)) if used.size else 1.0
        seen, slack = "", 0.0
        if is_dataset:
            seen = f" (over the first {used.size})"
            slack = _WEIGHT_ERRORS * float(np.std(used)) / max(used.size, 1) ** 0.5
        if abs(mean - 1.0) > _TOLERANCE + slack:
            width = "narrower" if mean > 1.0 else "wider"
            facts = {"mean": mean, "seen": seen, "width": width}
            found.add(text_of("weights", name=name, **facts))
    for text in sorted(found):
        warn(text)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or ops.is_tensor(x)


def _of_classes(given: Any, y: Any) -> Array | None:
    """Return the weight of each example's class, None if it is not known."""
    if not isinstance(given, dict) or not _is_array(y) or len(y.shape) == 0:
        return None
    labels = np.asarray(ops.convert_to_numpy(y))
    if labels.ndim > 1 and labels.shape[-1] > 1:  # one column for each class
        labels = np.argmax(labels, axis=-1)
    weights = {kind: given.get(int(kind), 1.0) for kind in np.unique(labels)}
    return np.array([weights[label] for label in labels.ravel()], "float64")
