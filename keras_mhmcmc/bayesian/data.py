"""Examples of a `BayesianEnsemble`: checked before they are divided."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._data import rows
from keras_mhmcmc._inputs import check_finite
from keras_mhmcmc._types import Array
from keras_mhmcmc.losses.likelihood import Likelihood

tree = keras.tree

_LEAST_HELD_OUT = 10  # examples, or half of all
_LEAST = 4  # examples: two are held out, one for each half of the scores


def divided(
    x: Any,
    y: Any,
    weights: Any,
    class_weight: Any,
    split: float | None,
    held_out: Any,
    seed: int,
    most: int,
) -> tuple[tuple[Any, Any, Any], Array, tuple[Any, Any]]:
    """Return the data, which of their examples are for training, and those held out.

    Args:
        x: inputs, or a loader of pairs.
        y: targets.
        weights: of the examples, or None.
        class_weight: weight of each class, or None.
        split: part that is held out. None: a tenth; and up to `most`, a third at most.
        held_out: `(x, y)` in its place, or None.
        seed: of the division.
        most: examples.
    """
    if y is None and not _data.is_dataset(x):
        raise ValueError(
            "Argument `x` must be given with `y`, or be a loader whose batches are "
            f"pairs (x, y). Received: x={_validate.shown(x)}, y=None"
        )
    read = functools.partial(_data.read, needs_targets=True)
    x, y, weights = _arrays(read(x, y, weights))
    size = _checked_size((x, y))
    for name, value in (("x", x), ("y", y), ("sample_weight", weights)):
        for array in tree.flatten(value):
            if array is not None:
                check_finite(name, array)
    if weights is not None:
        weights = checked_weights(weights, size)
    if class_weight is not None:
        weights = _of_classes(y, class_weight) * (1.0 if weights is None else weights)
    is_training = np.ones(size, bool)
    if held_out is None:
        if split is None:
            split = max(0.1, min(1 / 3, most / size))
        interval = _validate.Interval(0.0, 1.0, low_open=True)
        split = _validate.number("validation_split", split, interval)
        count = min(max(_LEAST_HELD_OUT, round(split * size)), size // 2)
        order = np.random.default_rng(seed).permutation(size)
        is_training[order[:count]] = False
        held_out = rows((x, y), ~is_training)
    elif _data.is_dataset(held_out):
        held_out = read(held_out)
    held_x, held_y = _arrays(held_out[:2])
    return (x, y, weights), is_training, (held_x, held_y)


def _arrays(parts: Any) -> Any:
    """Return arrays, several ones in a tuple: TensorFlow takes a list for one array."""
    parts = tuple(tuple(x) if isinstance(x, list) else x for x in parts)
    return _data.as_arrays(parts)


def checked_weights(weights: Any, size: int) -> Array:
    """Return the weights of examples, (N,): 1 where None are given."""
    if weights is None:
        return np.ones(size, "float32")
    if tree.is_nested(weights) or weights.size != size:
        raise ValueError(
            "Argument `sample_weight` must have one number for each example, the times "
            "that it counts. Leave out positions with a mask. Received: sample_weight="
            f"{_validate.shown(weights)} for {size} examples"
        )
    return weights.reshape(size)


def weights_of_outputs(weights: Array, losses: Sequence[Any], outputs: Any) -> Any:
    """Return weights in the shape of the values of each loss.

    Keras takes (N,) for weights of positions if a batch has as many, and with a mask
    no shape but that of the values.
    """
    shaped = []
    for loss, output in zip(losses, tree.flatten(outputs), strict=True):
        shape = () if isinstance(loss, Likelihood) else tuple(output.shape[1:-1])
        each = weights.reshape(-1, *[1] * len(shape))
        shaped.append(np.broadcast_to(each, (len(weights), *shape)))
    packed = tree.pack_sequence_as(outputs, shaped)
    return tuple(packed) if isinstance(packed, list) else packed


def _of_classes(y: Any, class_weight: Any) -> Array:
    """Return the weight of each example, that of its class, (N,)."""
    hint = "a dict with the weight of each class, such as {0: 1.0, 1: 3.0}"
    _validate.instance("class_weight", class_weight, dict, hint)
    labels = y
    if not tree.is_nested(y) and y.ndim == 2 and y.shape[1] > 1:
        labels = y.argmax(axis=1)
        if np.any((y != 0).sum(axis=1) != 1):
            labels = y  # several
    if tree.is_nested(labels) or labels.size != len(labels):
        raise ValueError(
            "Argument `class_weight` must be None if an example has several labels. "
            "Weigh the outputs with `loss_weights` of `compile`, or examples with "
            f"`sample_weight`. Received: class_weight={class_weight}, and targets "
            f"{_validate.shown(y)}"
        )
    found, places = np.unique(labels.reshape(-1), return_inverse=True)
    each = [float(class_weight.get(int(label), 1.0)) for label in found]
    return np.array(each, "float32")[places]


def _checked_size(data: Any) -> int:
    sizes = {len(array) if array.ndim else 0 for array in tree.flatten(data)}
    if len(sizes) != 1 or min(sizes) < _LEAST:
        raise ValueError(
            "Arguments `x` and `y` must have as many examples as one another, at "
            f"least {_LEAST}. Received: {sorted(sizes)}"
        )
    return sizes.pop()


class Shuffled(keras.utils.PyDataset):
    """Mini-batches in an order that `seed` alone decides, a new one each epoch.

    Args:
        data: `(x, y, sample_weight)` arrays; the last may be None.
        batch_size: examples of a batch; the last batch may be short.
        seed: of the order.
    """

    def __init__(self, data: tuple[Any, Any, Any], batch_size: int, seed: int) -> None:
        super().__init__()
        self._data = data if data[2] is not None else data[:2]
        self._size = len(tree.flatten(data)[0])
        self._batch_size, self._rng = batch_size, np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self) -> int:
        return -(-self._size // self._batch_size)

    def __getitem__(self, place: int) -> Any:
        first = place * self._batch_size
        return rows(self._data, self._order[first : first + self._batch_size])

    def on_epoch_end(self) -> None:
        """Draw a new order."""
        self._order = self._rng.permutation(self._size)
