"""Moving statistics of batch normalisation, estimated again for given weights."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate


def checked_inputs(x):
    """Arrays of finite inputs, with the same examples along their first axes."""
    x = keras.tree.map_structure(
        lambda part: _validate.array("Argument `x`", part, dtype=None), x
    )
    shapes = [array.shape for array in keras.tree.flatten(x)]
    lengths = {shape[0] if shape else 0 for shape in shapes}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            "Argument `x` must have at least one example, along the first axis, and as "
            f"many in each of its arrays. Received: shapes {shapes}"
        )
    for array in keras.tree.flatten(x):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(
                "Argument `x` must be finite. Drop or fill the examples that are not. "
                f"Received: {np.sum(~np.isfinite(array))} values that are NaN or "
                "infinite"
            )
    return x


def check_taken(x, model):
    """Raises unless `model` takes the first example of `x`, a structure of arrays."""
    first = keras.tree.map_structure(lambda a: ops.convert_to_tensor(a[:1]), x)
    try:
        model(first)
    except (KeyError, TypeError, ValueError) as error:
        shapes = keras.tree.map_structure(lambda a: a.shape, x)
        raise ValueError(
            "Argument `x` must be an array, or a structure of arrays, that the model "
            f"takes. Received: arrays of the shapes {shapes}"
        ) from error


def normalisations(model):
    """The layers of batch normalisation that have statistics to estimate.

    A frozen one keeps those that it was frozen with.

    Raises:
        ValueError: `model` has none, or one with batch renormalisation.
    """
    layers = [
        layer
        for layer in _backend.inner_layers(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]
    renormalised = [layer.name for layer in layers if layer.renorm]
    if not layers or renormalised:
        raise ValueError(
            "Argument `member` of the ensemble must have layers of batch "
            "normalisation, not frozen and with renorm=False, for moving statistics to "
            "be estimated. "
            f"Received: {len(layers)} such layers, {renormalised} with renorm=True"
        )
    return layers


def moving_statistics(model, members, x, batch_size):
    """Mean and variance of `x` in each layer of `normalisations`, for each member.

    The model runs as in training, so that each layer normalises by the batch, and
    dropout drops. The moments of all of `x` are those of the batches pooled: E[m] and
    E[v + m^2] - E[m]^2.

    Args:
        model: built `keras.Model`.
        members: iterable of lists of arrays, one for each of `model.weights`.
        x: inputs, N examples along the first axis, or a structure of such arrays.
        batch_size: largest number of examples that are normalised together.

    Yields:
        For each member a dict from positions in `model.weights` to arrays. It leaves
        out layers that the model calls in inference mode.

    Raises:
        ValueError: `model` calls all of them in inference mode.
    """
    layers = normalisations(model)
    moments = [(layer.moving_mean, layer.moving_variance) for layer in layers]
    places = {id(variable): i for i, variable in enumerate(model.weights)}
    # Such as the seeds of dropout.
    others = [v for v in model.non_trainable_variables if id(v) not in places]

    def of_batch(values, states, batch):
        given = zip([*model.weights, *others], values + states, strict=True)
        with keras.StatelessScope(given) as scope:
            _backend.step_outputs(model, batch, training=True)
        after = scope.get_current_value
        pairs = [(after(mean), after(variance)) for mean, variance in moments]
        return pairs, [after(v) for v in others]

    of_batch = _backend.compile_function(of_batch)
    examples = len(keras.tree.flatten(x)[0])
    # Equal sizes to within one example, so that each batch weighs the same.
    parts = np.array_split(np.arange(examples), -(-examples // batch_size))
    states = [ops.convert_to_tensor(v) for v in others]
    moving = None
    with _momentum_of_zero(layers):
        for values in members:
            values = [ops.convert_to_tensor(value) for value in values]
            if moving is None:
                batch = keras.tree.map_structure(
                    lambda array: ops.convert_to_tensor(array[parts[0]]), x
                )
                marked = [places[id(variance)] for _, variance in moments]
                moving = _which_move(of_batch, values, states, batch, marked)
            sums = [(0.0, 0.0)] * len(layers)
            for rows in parts:
                batch = keras.tree.map_structure(
                    lambda array, rows=rows: ops.convert_to_tensor(array[rows]), x
                )
                pairs, states = of_batch(values, states, batch)
                sums = [
                    _added(total, pair, len(rows) / examples)
                    for total, pair in zip(sums, pairs, strict=True)
                ]
            found = {}
            for moves, pair, totals in zip(moving, moments, sums, strict=True):
                if moves:
                    mean, variance = (places[id(variable)] for variable in pair)
                    first, second = totals
                    found[mean], found[variance] = first, second - first**2
            yield found


def _which_move(of_batch, values, states, batch, variances):
    """Of each layer, whether it normalises by the batch when the model trains.

    A layer that does overwrites the variance of -1 that it is given here; positions of
    variances in `values` are `variances`.
    """
    marked = list(values)
    for place in variances:
        marked[place] = -ops.ones_like(values[place])
    pairs, _ = of_batch(marked, states, batch)
    moves = [np.any(ops.convert_to_numpy(after) != -1.0) for _, after in pairs]
    if not any(moves):
        raise ValueError(
            "Argument `member` of the ensemble must be a model that runs its batch "
            "normalisation in training mode when it trains. This one runs it in "
            "inference mode in `fit`, too, as Keras does where a subclass has a `call` "
            "without `training`: its weights belong to the statistics that it has, and "
            "there are none to estimate. To train with those of the batch, write "
            "`call(self, x, training=None)` and pass `training` to the layers. "
            f"Received: {len(moves)} layers of batch normalisation in inference mode"
        )
    return moves


def _added(total, moments, share):
    """The sums of m and v + m^2 with those of one more batch."""
    mean, variance = (
        np.asarray(ops.convert_to_numpy(moment), "float64") for moment in moments
    )
    return total[0] + share * mean, total[1] + share * (variance + mean**2)


@contextlib.contextmanager
def _momentum_of_zero(layers):
    """The layers' moving statistics are those of the last batch."""
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
