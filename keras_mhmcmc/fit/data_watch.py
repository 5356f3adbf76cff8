"""Warnings about sizes and weights in `fit` that differ from what the sampler takes."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc.fit import loss_terms
from keras_mhmcmc.fit.watch import tell
from keras_mhmcmc.losses import Likelihood

# Smallest last mini-batch of an epoch, as a share of the others. A smaller one widens
# what a Metropolis-Hastings sampler samples (`docs/gotchas.md`).
_FULL = 0.75
_TOLERANCE = 0.05  # of the mean weight, which is 1 if the data count once
_ERRORS = 4.0  # standard errors of the mean over the first mini-batches


class FitSizes:
    """A comparison of `batch_size` and `train_size` with the examples that `fit` uses.

    Each warning comes once. Keras gives a callback only the number of steps, but its
    mean of the loss counts the examples of an epoch.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()
        self.weights = ExampleWeights()
        self._batch: int | None = None  # examples in a mini-batch of this `fit`

    def check_batch(self, model: keras.Model, batches: int) -> None:
        """Compare the size of a mini-batch, after the first `batches` of an epoch."""
        if "sum" not in self._told:
            self._told.add("sum")
            loss_terms.warn_of_sum(model)
            self.weights.check_first(model)
            _warn_of_grid(model)
        expected, seen = model.optimizer.batch_size, _examples_seen(model)
        self._batch = None
        if seen <= batches or seen % batches:
            return  # Keras counts no examples, or counts mini-batches
        self._batch = seen // batches
        # A smaller one may be the short last one: `check_epoch` can tell.
        if expected is not None and self._batch > expected:
            self._check_batch(model, self._batch, expected)

    def _check_batch(self, model: keras.Model, batch: int, expected: int) -> None:
        if expected not in _possible_sizes(model, batch, expected):
            self.tell("batch_size", batch=batch, expected=expected)

    def check_epoch(self, model: keras.Model, steps: int) -> None:
        """Compare the number of examples, after an epoch of `steps` mini-batches."""
        self.weights.check(is_whole=True)
        seen, batch, sampler = _examples_seen(model), self._batch, model.optimizer
        if batch is None:
            return
        expected = sampler.batch_size
        if expected is not None and batch < expected:
            if math.ceil(seen / expected) == steps:
                batch = expected
            else:
                self._check_batch(model, batch, expected)
        if steps == 1 and sampler.algorithm.traits.needs_batches:
            self.tell("whole batch", name=type(sampler).__name__, examples=seen)
        expected, length = sampler.train_size, _length_of_arrays(model)
        exact = seen if length is None else length
        factor, terms = loss_terms.terms_of_an_example(model), ""
        sizes = _possible_sizes(model, exact, expected)
        if factor is not None:
            sizes = {factor * exact}
        if factor not in (1, None):
            terms = f", and the loss is a mean over {factor} terms of each, "
            terms += f"{factor * exact} in all"
        # A pipeline may drop a part of a mini-batch, and arrays are seen whole.
        slack = batch if length is None else 0.5
        if min(abs(expected - size) / size * exact for size in sizes) >= slack:
            self.tell("train_size", examples=exact, terms=terms, expected=expected)
        last = seen - (steps - 1) * batch
        if sampler.batch_size is not None and 0 < last < _FULL * batch:
            better = _better_size(seen, batch)
            self.tell("last", last=last, batch=batch, examples=seen, better=better)

    def tell(self, row: str, **facts: Any) -> None:
        """Warn, unless there was a warning of this row."""
        if row not in self._told:
            self._told.add(row)
            tell(row, **facts)


def _possible_sizes(model: keras.Model, examples: int, expected: int) -> set[int]:
    """Return all sizes that may stand for these examples and their positions."""
    factors = loss_terms.positions_of_an_example(model)
    if factors is None:  # any multiple may be right
        factors = {max(1, round(expected / examples))}
    return {examples * factor for factor in factors}


def _examples_seen(model: keras.Model) -> int:
    """Return the number of examples in this epoch so far, or 0 if Keras counts none.

    Keras counts those of this process, which has an equal part of each mini-batch.
    """
    processes = model.optimizer.processes
    if isinstance(model, StackedModel):
        return processes * model.examples_seen()
    for metric in model.metrics:
        if type(metric) is keras.metrics.Mean and metric.name == "loss":
            return processes * round(float(ops.convert_to_numpy(metric.count)))
    return 0


def _length_of_arrays(model: keras.Model) -> int | None:
    """Return the number of examples that `fit` was given as arrays, or None.

    In one of several processes, the others may have other examples.
    """
    data = _backend.fitted_data(model)
    if data is None or model.optimizer.processes > 1 or _data.is_dataset(data["x"]):
        return None
    return _backend.count_examples(data["x"])


def _warn_of_grid(model: keras.Model) -> None:
    """Warn of targets with few distinct values under a density, if `fit` has arrays."""
    losses, y = keras.tree.flatten(model.loss), loss_terms.fitted_targets(model)
    if y is not None and len(losses) == 1 and isinstance(losses[0], Likelihood):
        losses[0].warn_of_grid(np.asarray(ops.convert_to_numpy(y)))


def _better_size(examples: int, batch: int) -> int:
    """Return the size nearest to `batch` that leaves no short last mini-batch."""
    for distance in range(batch):
        for size in (batch - distance, batch + distance):
            rest = examples % size
            if rest == 0 or rest >= _FULL * size:
                return size
    return 1


class ExampleWeights:
    """A look at the weights of the examples in `fit`, whose mean should be 1.

    Keras divides the weighted sum of the losses by the number of examples. So the mean
    of the weights multiplies the likelihood. Weights of 0 leave examples out, and may
    stay: the others count once. With the reduction "mean_with_sample_weight" Keras
    divides by the sum of the weights, and their mean does not matter.

    Weights that are arrays are known before the first step. Those of a pipeline are
    noted as `fit` reads them, until their mean is certain, or for one epoch.
    """

    def __init__(self) -> None:
        self._is_finished = False
        self._name = ""
        self._arrays: dict[str, list[Array]] = {}
        self._sums: dict[int, Array] = {}  # count, sum and squares, for each output

    def begin(self, model: keras.Model) -> None:
        """Read arrays of weights, or begin to note those of a pipeline."""
        data, batches = _backend.fitted_data(model), _backend.fitted_batches(model)
        if data is None or self._is_finished:
            return
        given, self._sums = data["class_weight"], {}
        samples = keras.tree.flatten(data["sample_weight"])
        self._arrays = {
            "argument `sample_weight`": [_array(x) for x in samples if _is_array(x)],
            "argument `class_weight`": _class_weights(given, data["y"]),
        }
        self._name = list(self._arrays)[1] if given else "third element of the data"
        if batches is not None and not any(self._arrays.values()):
            _backend.wrap_batches(batches, self._noted)

    def _noted(self, batches: Any) -> Any:
        if self._is_finished:
            return batches
        return _backend.noted_weights(batches, self._note)

    def _note(self, weights: Any) -> None:
        parts = [] if self._is_finished else keras.tree.flatten(weights)
        for i, part in enumerate(parts):
            if part is not None:
                used = _array(part)
                used = used[used != 0.0]
                moments = np.array([used.size, np.sum(used), np.sum(used**2)])
                self._sums[i] = self._sums.get(i, 0.0) + moments

    def check_first(self, model: keras.Model) -> None:
        """Warn of weights that are arrays, after the first mini-batch."""
        reductions = {loss.reduction for loss, _ in _backend.compiled_losses(model)}
        self._is_finished |= "mean_with_sample_weight" in reductions
        if self._is_finished:
            return
        for name, weights in self._arrays.items():
            used = [one[one != 0.0] for one in weights if np.any(one)]
            for mean in {float(np.mean(one)) for one in used}:
                _check_mean(name, mean)
            self._is_finished |= bool(weights)
        self._arrays = {}

    def check(self, is_whole: bool) -> None:
        """Warn of the weights of a pipeline, if their mean is certain by now.

        `is_whole`: all of an epoch has been seen.
        """
        if self._is_finished:
            return
        self._is_finished = is_whole
        for count, total, squares in [sums for sums in self._sums.values() if sums[0]]:
            mean = total / count
            variance = max(squares / count - mean**2, 0.0)
            slack = 0.0 if is_whole else _ERRORS * float(np.sqrt(variance / count))
            seen = f" (over the first {count:.0f})"
            self._is_finished |= _check_mean(self._name, mean, seen, slack)


def _check_mean(name: str, mean: float, seen: str = "", slack: float = 0.0) -> bool:
    """Warn of weights whose mean is not 1, and return whether it is so."""
    is_other = abs(mean - 1.0) > _TOLERANCE + slack
    if is_other:
        width = "narrower" if mean > 1.0 else "wider"
        tell("weights", name=name, mean=mean, seen=seen, width=width)
    return is_other


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or ops.is_tensor(x)


def _array(x: Any) -> Array:
    return np.asarray(ops.convert_to_numpy(x), "float64")


def _class_weights(given: Any, y: Any) -> list[Array]:
    """Return the weight of each example's class, or none if it is not known."""
    if not isinstance(given, dict) or not _is_array(y) or len(y.shape) == 0:
        return []
    labels = np.asarray(ops.convert_to_numpy(y))
    if labels.ndim > 1 and labels.shape[-1] > 1:  # one column for each class
        labels = np.argmax(labels, axis=-1)
    kinds, counts = np.unique(labels, return_counts=True)
    weights = [float(given.get(int(kind), 1.0)) for kind in kinds]
    return [np.repeat(np.array(weights, "float64"), counts)]
