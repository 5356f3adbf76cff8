"""Moving statistics of batch normalisation, estimated again for given weights."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _inputs
from keras_mhmcmc._layer_calls import called
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor

# Mean and variance of one layer, tensors of shape (channels,).
Moments = tuple[Tensor, Tensor]
# Sums of m and v + m^2 over examples, arrays of shape (channels,).
Sums = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
# (weights, other states, batch) -> (moments of each layer, new other states).
BatchMoments = Callable[
    [list[Tensor], list[Tensor], Any], tuple[list[Moments], list[Tensor]]
]


def _normalisations(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the batch normalisation layers that are not frozen, or raise.

    A frozen layer keeps the statistics that it has.
    """
    kind, inner = keras.layers.BatchNormalization, _backend.inner_layers(model)
    layers = [each for each in inner if isinstance(each, kind) and each.trainable]
    # Keras 3.10 has no batch renormalisation.
    renormalised = [layer.name for layer in layers if getattr(layer, "renorm", False)]
    if not layers or renormalised:
        raise ValueError(
            "Argument `member` of the ensemble must have batch normalisation layers "
            "whose statistics can be estimated: layers that are not frozen, all with "
            f"renorm=False. Received: {len(layers)} layers that are not frozen, "
            f"{renormalised} with renorm=True"
        )
    return layers


def _refuse_shared(layers: Sequence[Any], model: keras.Model, x: Any) -> None:
    """Refuse layers that a model calls several times: each call has its moments."""
    with called(layers) as calls:
        _inputs.check_taken(x, model)
    shared = [layer.name for layer in layers if sum(one is layer for one in calls) > 1]
    if shared:
        raise ValueError(
            "Argument `member` of the ensemble must call each batch normalisation "
            "layer once: `recalibrate` would keep the statistics of the last call "
            "alone. Make a layer for each call. Received: a model with several calls "
            f"of {', '.join(shared)}"
        )


def moving_statistics(
    model: keras.Model, members: Sequence[Sequence[Array]], x: Any, batch_size: int
) -> list[dict[int, npt.NDArray[np.float64]]]:
    """Return the mean and variance of `x` in each normalisation layer, by member.

    The model runs as in training: each layer normalises by the batch, and dropout is
    active. With m and v the moments of a batch, the moments of all of `x` are E[m] and
    E[v + m^2] - E[m]^2, with a batch of n examples counted n times.

    `members` has one array for each of `model.weights` of each member, and the result
    a dict from positions in `model.weights` to arrays. Layers that the model calls in
    inference mode are left out. A data set `x` is read once; at most `batch_size`
    examples of arrays are normalised together.
    """
    layers = _normalisations(model)
    first, x = _data.peeked(x)
    first = _inputs.as_model_inputs("x", first, model)
    _refuse_shared(layers, model, first)
    if not _data.is_dataset(x):
        x, examples = first, len(keras.tree.flatten(first)[0])
        # Of nearly equal sizes: each batch gets nearly the same weight.
        batch_size = -(-examples // -(-examples // batch_size))
    moments = [(layer.moving_mean, layer.moving_variance) for layer in layers]
    places = {id(variable): i for i, variable in enumerate(model.weights)}
    # For example the generator states of dropout.
    others = [v for v in model.non_trainable_variables if id(v) not in places]

    def of_batch(
        values: list[Tensor], states: list[Tensor], batch: Any
    ) -> tuple[list[Moments], list[Tensor]]:
        given = zip([*model.weights, *others], values + states, strict=True)
        with keras.StatelessScope(given) as scope:
            _backend.step_outputs(model, batch, training=True)
        after = scope.get_current_value
        pairs = [(after(mean), after(variance)) for mean, variance in moments]
        return pairs, [after(v) for v in others]

    batch_moments: BatchMoments = _backend.compile_function(of_batch)
    states = [ops.convert_to_tensor(v) for v in others]
    moving: list[bool] | None = None
    start: Sums = (np.zeros(()), np.zeros(()))
    sums = [[start] * len(layers) for _ in members]
    count = 0
    with _momentum_of_zero(layers):
        for batch in _data.batches(x, batch_size=batch_size):
            inputs = _inputs.as_model_inputs("x", batch.x, model)
            size = len(keras.tree.flatten(inputs)[0])
            inputs, count = _inputs.tensors(inputs, slice(None)), count + size
            for member, arrays in enumerate(members):
                values = [ops.convert_to_tensor(array) for array in arrays]
                if moving is None:
                    marked = list(values)
                    for _, variance in moments:
                        place = places[id(variance)]
                        marked[place] = -ops.ones_like(values[place])
                    moving = _which_move(batch_moments(marked, states, inputs)[0])
                pairs, states = batch_moments(values, states, inputs)
                totals = zip(sums[member], pairs, strict=True)
                sums[member] = [_added(total, pair, size) for total, pair in totals]
    found = []
    for of_member in sums:
        means = {}
        for moves, pair, total in zip(moving or [], moments, of_member, strict=True):
            if moves:
                mean, variance = (places[id(variable)] for variable in pair)
                means[mean] = total[0] / count
                means[variance] = total[1] / count - means[mean] ** 2
        found.append(means)
    return found


def _which_move(moments: list[Moments]) -> list[bool]:
    """Return whether each layer normalises by the batch when the model trains.

    Such a layer replaces its moving variance, which was -1.
    """
    moves = [bool(np.any(ops.convert_to_numpy(v) != -1.0)) for _, v in moments]
    if not any(moves):
        raise ValueError(
            "Argument `member` of the ensemble must normalise by the batch in `fit`, "
            "but its batch normalisation runs in inference mode there. Write "
            "`call(self, x, training=None)`, pass `training` to the layers, and train "
            f"again. Received: {len(moves)} batch normalisation layers in inference "
            "mode"
        )
    return moves


def _added(total: Sums, moments: Moments, size: int) -> Sums:
    """Add the moments of one more batch of this size."""
    mean, variance = (
        np.asarray(ops.convert_to_numpy(moment), "float64") for moment in moments
    )
    return total[0] + size * mean, total[1] + size * (variance + mean**2)


@contextlib.contextmanager
def _momentum_of_zero(
    layers: Sequence[keras.layers.BatchNormalization],
) -> Iterator[None]:
    """Make the layers' moving statistics those of the last batch."""
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
