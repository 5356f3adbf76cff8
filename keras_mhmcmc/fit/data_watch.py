"""Warnings about sizes and weights in `fit` that differ from what the sampler takes."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.fit.watch import Once
from keras_mhmcmc.fit.watch import text_of
from keras_mhmcmc.losses import Likelihood

# Smallest last mini-batch of an epoch, as a share of the others. A smaller one widens
# what a Metropolis-Hastings sampler samples (`docs/gotchas.md`).
_FULL = 0.75
_TOLERANCE = 0.05  # of the mean weight, which is 1 if the data count once
_ERRORS = 4.0  # standard errors of the mean over the first mini-batches


class FitSizes(Once):
    """A comparison of `batch_size` and `train_size` with the examples that `fit` uses.

    Each warning comes once. Keras gives a callback only the number of steps, but its
    mean of the loss counts the examples of an epoch.
    """

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
    losses, y = keras.tree.flatten(model.loss), compiled_loss.fitted_targets(model)
    if y is not None and len(losses) == 1 and isinstance(losses[0], Likelihood):
        losses[0].warn_of_grid(np.asarray(ops.convert_to_numpy(y)))


def check_weights(model: keras.Model, batches: Sequence[_data.Batch]) -> None:
    """Warn of weights of the examples in `fit` whose mean is not 1.

    Keras divides the weighted sum of the losses by the number of examples. So the mean
    of the weights multiplies the likelihood. Weights of 0 leave examples out, and may
    stay: the others count once. With the reduction "mean_with_sample_weight" Keras
    divides by the sum of the weights, and their mean does not matter.

    `batches` are the first ones of a data set. Arrays are known as a whole.
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
            slack = _ERRORS * float(np.std(used)) / max(used.size, 1) ** 0.5
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
