"""The mean training loss over all of the data, for a test that needs all of it."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._data import Batch as Data
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.watch import tell

# Examples that are evaluated at once, of data in arrays.
_BATCH_SIZE = 512


class FullLoss:
    """The mean loss of a model over all of its data, in inference mode."""

    def __init__(self) -> None:
        self._model: keras.Model | None = None
        self._key: Any = None  # of the loss that `_compiled` has
        self._compiled: Callable[..., Tensor]

    def mean(self, model: keras.Model, data: Data, train_size: int) -> float:
        """Return the mean loss at the current weights of `model`, in float64.

        Layers are in inference mode. What layers add to the loss counts, as in `fit`.
        """
        key = _backend.compile_key(model)
        if model is not self._model or key is not self._key:
            self._model, self._key = model, key
            self._compiled = _backend.compile_function(_loss_of(model))
        variables = _variables(model)
        values = list(_backend.read(variables))
        total, count, largest = 0.0, 0, 0
        for batch in batches(data):
            size = int(keras.tree.flatten(batch.x)[0].shape[0])
            loss = self._compiled(values, *batch)
            total += size * float(ops.convert_to_numpy(loss))
            count, largest = count + size, max(largest, size)
            if count >= train_size:  # a data set may repeat for ever
                break
        # A data set may leave out the last examples, which do not fill a mini-batch.
        if count == 0 or not -largest < count - train_size < 1:
            raise ValueError(
                "Argument `train_size` must be the number of examples in the data of "
                "`fit`, since the test of a path needs all of them. "
                f"Received: train_size={train_size}, and data of {count} "
                "examples or more"
            )
        return total / count


class OrderWatch:
    """Warn, once, if `fit` runs through arrays in the same order in each epoch."""

    def __init__(self) -> None:
        self._has_told = False

    def look(self, x: Any, shuffle: Any) -> None:
        """Look at the arguments `x` and `shuffle` of `fit`."""
        if self._has_told or _data.is_dataset(x):
            return
        if shuffle is False:
            reason, remedy = "`fit` has shuffle=False", "Leave out `shuffle`."
        elif _backend.repeats_shuffles():
            reason = (
                "a global seed, which `keras.utils.set_random_seed` sets, makes "
                "TensorFlow shuffle arrays into the same order in each epoch"
            )
            remedy = (
                "Pass a data set that shuffles anew: `tf.data.Dataset"
                ".from_tensor_slices((x, y)).shuffle(len(x)).batch(batch_size)`."
            )
        else:
            return
        self._has_told = True
        tell("order", reason=reason, remedy=remedy)


def batches(data: Data) -> Iterator[Data]:
    """Yield the mini-batches of the data in their own order, as tensors."""
    if isinstance(data.x, Iterator):
        raise ValueError(
            "Argument `x` of `fit` must be arrays, or a data set that can be read "
            "again, such as a `tf.data.Dataset`, a `DataLoader` or a "
            "`keras.utils.PyDataset`: the test of a path needs all examples. Pass one, "
            "or give the examples to the optimizer: `optimizer.use_data(x, y)`. "
            f"Received: x={_validate.shown(data.x)}"
        )

    def tensor(value: Any) -> Any:
        return None if value is None else ops.convert_to_tensor(value)

    for batch in _data.batches(*data, batch_size=_BATCH_SIZE):
        arrays = _data.in_floatx(tuple(batch))
        yield Data(*keras.tree.map_structure(tensor, arrays))


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.trainable_variables, *model.non_trainable_variables]


def _loss_of(model: keras.Model) -> Callable[..., Tensor]:
    """Return the loss of a mini-batch as a function of (values, x, y, sample weight).

    It changes no variable: what metrics and layers write stays in a scope.
    """

    def loss(values: Any, x: Any, y: Any, sample_weight: Any) -> Tensor:
        mapping = zip(_variables(model), values, strict=True)
        with keras.StatelessScope(mapping, collect_losses=True):
            outputs = _backend.step_outputs(model, x, training=False)
            value = model.compute_loss(x, y, outputs, sample_weight, training=False)
        return ops.cast(value, "float32")

    return loss
