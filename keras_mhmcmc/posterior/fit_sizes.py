"""Whether the sizes that a sampler was given are those of `fit`."""

import math

import keras
from keras import ops

from keras_mhmcmc._warn import warn
from keras_mhmcmc.parallel.stacked_model import StackedModel

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
        self._batch = None  # examples in a mini-batch of this `fit`

    def check_batch(self, model, batches):
        """Compares the size of a mini-batch, after the first `batches` of an epoch."""
        told, seen = model.optimizer.batch_size, _examples_seen(model)
        self._batch = None
        if seen <= batches or seen % batches:
            return  # nobody counts, or mini-batches instead of examples
        self._batch = seen // batches
        # A smaller one may be the last, where `fit` shuffles the mini-batches.
        if told is not None and self._batch > told:
            self._check_batch(model, told)

    def _check_batch(self, model, told):
        if told not in self._counts(model, self._batch, told):
            self._warn(
                "batch_size",
                f"`fit` takes mini-batches of {self._batch} examples, and the sampler "
                f"was made with batch_size={told}. Its temperature follows from the "
                "size that it was given. Pass the same `batch_size` to both. Keras "
                "takes 32 where `fit` is given none.",
            )

    def check_epoch(self, model, steps):
        """Compares the number of examples, after an epoch of `steps` mini-batches."""
        seen, batch, sampler = _examples_seen(model), self._batch, model.optimizer
        if batch is None:
            return
        told = sampler.batch_size
        if told is not None and batch < told:
            if math.ceil(seen / told) == steps:
                batch = told
            else:
                self._check_batch(model, told)
        told = sampler.train_size
        counts = self._counts(model, seen, told)
        if min(abs(told - count) / count * seen for count in counts) >= batch:
            self._warn(
                "train_size",
                f"An epoch of `fit` has {seen} examples, and the sampler was made with "
                f"train_size={told}, which says how narrow the posterior is. It must "
                "be the number of training examples: with `validation_split` those "
                "that are left, with augmentation those before it; times the positions "
                "of each, if the loss is a mean over positions. If `steps_per_epoch` "
                "makes an epoch a part or a multiple of the data, ignore this warning.",
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

    def _counts(self, model, examples, told):
        """What `told` may be for so many examples, of several positions each."""
        factors = _targets_of_an_example(model)
        if factors is None:  # not known: any multiple may be right
            factors = {max(1, round(told / examples))}
        return {examples * factor for factor in factors}

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
    """How many numbers of an example the loss may be a mean over; None: not known."""
    if isinstance(model, StackedModel):
        model = model.template
    if not isinstance(model, keras.Sequential | keras.Function) or not model.built:
        return None
    shapes = [output.shape[1:] for output in model.outputs]
    if any(None in shape for shape in shapes):
        return None
    positions = {math.prod(shape[:-1]) for shape in shapes}
    outputs = {math.prod(shape) for shape in shapes}
    # No cross-entropy of several classes is a mean over the classes.
    names = [_name(loss) for loss in keras.tree.flatten(model.loss)]
    is_categorical = all("categorical" in name.lower() for name in names)
    return {1} | positions - {0} | (set() if is_categorical else outputs - {0})


def _name(loss):
    if isinstance(loss, str):
        return loss
    return getattr(loss, "__name__", type(loss).__name__)


def _better_size(examples, batch):
    """The size next to `batch` that leaves no short last mini-batch."""
    for distance in range(batch):
        for size in (batch - distance, batch + distance):
            rest = examples % size
            if rest == 0 or rest >= _FULL * size:
                return size
    return 1
