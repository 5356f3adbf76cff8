"""Warnings about sizes in `fit` that differ from the sampler's arguments."""

import math

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.loss_terms import positions_of_an_example
from keras_mhmcmc.fit.loss_terms import terms_of_an_example
from keras_mhmcmc.losses import Likelihood
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.posterior.example_weights import ExampleWeights
from keras_mhmcmc.posterior.loss_scale import warn_of_sum

# Smallest last mini-batch of an epoch, as a share of the others. A smaller one widens
# what a Metropolis-Hastings sampler samples (`docs/gotchas.md`).
_FULL = 0.75


class FitSizes:
    """A comparison of `batch_size` and `train_size` with the examples that `fit` uses.

    Each warning comes once. Keras gives a callback only the number of steps, but its
    mean of the loss counts the examples of an epoch.
    """

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self.weights = ExampleWeights()
        self._batch: int | None = None  # examples in a mini-batch of this `fit`

    def check_batch(self, model: keras.Model, batches: int) -> None:
        """Compare the size of a mini-batch, after the first `batches` of an epoch."""
        if "sum" not in self._warned:
            self._warned.add("sum")
            warn_of_sum(model)
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
        if expected not in self._possible_sizes(model, batch, expected):
            self._warn(
                "batch_size",
                f"`fit` uses mini-batches of {batch} examples, but the sampler has "
                f"batch_size={expected}, from which its temperature follows. Pass the "
                "same `batch_size` to both. The default of `fit` is 32.",
            )

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
        expected = sampler.train_size
        length = _length_of_arrays(model)
        exact = seen if length is None else length
        factor = terms_of_an_example(model)
        sizes = self._possible_sizes(model, exact, expected)
        if factor is not None:
            sizes = {factor * exact}
        # A pipeline may drop a part of a mini-batch, and arrays are seen whole.
        slack = batch if length is None else 0.5
        if min(abs(expected - size) / size * exact for size in sizes) >= slack:
            self._warn(
                "train_size",
                f"An epoch of `fit` has {exact} examples{_with_terms(exact, factor)}, "
                f"but the sampler has train_size={expected}, which sets the width of "
                "the posterior. Pass the number of training examples. With "
                "`validation_split`, count the examples that are left for training; "
                "with augmentation, count them before it. If the loss is a mean over "
                "several positions of each example, multiply by the number of "
                "positions. If `steps_per_epoch` makes an epoch a part or a multiple "
                "of the data, ignore this warning.",
            )
        last = seen - (steps - 1) * batch
        if sampler.batch_size is not None and 0 < last < _FULL * batch:
            self._warn(
                "last",
                f"The last mini-batch of an epoch has {last} examples, and the others "
                f"have {batch}. The sampler uses the temperature of a full mini-batch "
                "for all, which makes the sampled distribution wider. Drop the last "
                "mini-batch (`dataset.batch(..., drop_remainder=True)`), or use a size "
                f"that divides {seen} nearly: {_better_size(seen, batch)}.",
            )

    def _possible_sizes(
        self, model: keras.Model, examples: int, expected: int
    ) -> set[int]:
        """Return all sizes that may stand for these examples and their positions."""
        factors = positions_of_an_example(model)
        if factors is None:  # any multiple may be right
            factors = {max(1, round(expected / examples))}
        return {examples * factor for factor in factors}

    def _warn(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warn(message)


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


def _with_terms(examples: int, factor: int | None) -> str:
    """Return what the number of terms of the loss adds to the number of examples."""
    if factor in (1, None):
        return ""
    return (
        f", and the loss is a mean over {factor} terms of each, {factor * examples} in "
        "all"
    )


def _warn_of_grid(model: keras.Model) -> None:
    """Warn of targets with few distinct values under a density, if `fit` has arrays."""
    data, losses = _backend.fitted_data(model), keras.tree.flatten(model.loss)
    if data is None or len(losses) != 1 or not isinstance(losses[0], Likelihood):
        return
    if isinstance(data["y"], np.ndarray) or ops.is_tensor(data["y"]):
        losses[0].warn_of_grid(np.asarray(ops.convert_to_numpy(data["y"])))


def _better_size(examples: int, batch: int) -> int:
    """Return the size nearest to `batch` that leaves no short last mini-batch."""
    for distance in range(batch):
        for size in (batch - distance, batch + distance):
            rest = examples % size
            if rest == 0 or rest >= _FULL * size:
                return size
    return 1
