"""Whether the sizes that a sampler was given are those of `fit`."""

import math

import keras
from keras import ops

from keras_mhmcmc._warn import warn
from keras_mhmcmc.stacked import StackedModel

# Share of a mini-batch that the last one of an epoch must have. With less, the variance
# of what a Metropolis-Hastings sampler samples grows (`docs/gotchas.md`).
_FULL = 0.75


class FitSizes:
    """Compares a sampler's `batch_size` and `train_size` with `fit`, and warns once.

    Keras tells a callback the number of steps alone. But its mean of the loss counts
    the examples of an epoch.
    """

    def __init__(self):
        self._warned = set()

    def check_batch(self, model, batches):
        """Compares the size of a mini-batch, after the first `batches` of an epoch."""
        told, seen = model.optimizer.batch_size, _examples_seen(model)
        if told is None or seen == 0 or seen % batches:
            return
        if seen // batches != told:
            self._warn(
                "batch_size",
                f"`fit` takes mini-batches of {seen // batches} examples, and the "
                f"sampler was made with batch_size={told}. Its temperature follows "
                "from the size that it was given. Pass the same `batch_size` to both. "
                "Keras takes 32 where `fit` is given none.",
            )

    def check_epoch(self, model, steps):
        """Compares the number of examples, after an epoch of `steps` mini-batches."""
        seen, sampler = _examples_seen(model), model.optimizer
        if seen == 0:  # a training step of the user's own does not count them
            return
        told = sampler.train_size
        batch = sampler.batch_size or math.ceil(seen / max(steps, 1))
        # The loss may be a mean over positions or outputs as well.
        counts = {seen * factor for factor in _targets_of_an_example(model)}
        if min(abs(told - count) / count * seen for count in counts) >= batch:
            self._warn(
                "train_size",
                f"An epoch of `fit` has {seen} examples, and the sampler was made with "
                f"train_size={told}, which says how narrow the posterior is. Pass "
                f"train_size={seen}: with `validation_split` the examples that are "
                "left, with augmentation those before it. If `steps_per_epoch` makes "
                "an epoch a part of the data, ignore this warning.",
            )
        last = seen - (steps - 1) * batch
        if sampler.batch_size is not None and 0 < last < _FULL * batch:
            self._warn(
                "last",
                f"The last mini-batch of an epoch has {last} examples, and the others "
                f"have {batch}. The sampler judges all at the temperature of a full "
                "one, which widens what it samples. Leave the last one away "
                "(`dataset.batch(..., drop_remainder=True)`), or take a size that "
                f"divides {seen} nearly: {_better_size(seen, batch)}.",
            )

    def _warn(self, what, message):
        if what not in self._warned:
            self._warned.add(what)
            warn(message)


def _examples_seen(model):
    """The examples of this epoch so far, or 0 if nobody counts them."""
    if isinstance(model, StackedModel):
        return model.examples_seen()
    for metric in model.metrics:
        if type(metric) is keras.metrics.Mean and metric.name == "loss":
            return round(float(ops.convert_to_numpy(metric.count)))
    return 0


def _targets_of_an_example(model):
    """How many numbers of an example the loss may be a mean over: 1, and others."""
    if isinstance(model, StackedModel):
        model = model.template
    factors = {1}
    if isinstance(model, keras.Sequential | keras.Function) and model.built:
        for output in model.outputs:
            sizes = [size for size in output.shape[1:] if size is not None]
            factors |= {math.prod(sizes), math.prod(sizes[:-1])}
    return factors - {0}


def _better_size(examples, batch):
    """The size next to `batch` that leaves no short last mini-batch."""
    for distance in range(batch):
        for size in (batch - distance, batch + distance):
            rest = examples % size
            if rest == 0 or rest >= _FULL * size:
                return size
    return 1
