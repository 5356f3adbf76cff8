"""How many terms of the loss an example has, and so what a sampler takes for N."""

import math
from typing import Any

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc.fit.compiled_loss import OF_LABELS
from keras_mhmcmc.fit.compiled_loss import OF_MEAN_SQUARES
from keras_mhmcmc.fit.compiled_loss import name_of
from keras_mhmcmc.losses import Likelihood


def found_size(model: keras.Model | None, x: Any, *, is_of_examples: bool) -> int:
    """Return N for the data `x` that `model` is fitted to.

    N counts the terms of the loss: with a mean over the positions of an example, it is
    a multiple of the number of examples.
    """
    count = _backend.count_examples(x)
    reason = "no data tell the number of examples"
    if model is not None and count:
        terms = terms_of_an_example(model)
        factors = {terms} if terms else positions_of_an_example(model) or {1}
        if factors == {1} or (len(factors) == 1 and not is_of_examples):
            return count * factors.pop()
        reason = "the loss may be a mean over several terms of each example"
    raise ValueError(
        f"Argument `train_size` must be given here: {reason}. Pass "
        "`train_size=<number of training examples>`, times the number of terms in a "
        "mean over the positions of an example. For a `tf.data.Dataset` of unknown "
        "length, `dataset.apply(tf.data.experimental.assert_cardinality(n))` before "
        f"`batch` will do. Received: train_size='auto', x={_validate.shown(x)}"
    )


def terms_of_an_example(model: keras.Model) -> int | None:
    """Return the number of terms of one example in the loss, None if it is unknown.

    It is known for cross-entropies, the mean squared error and the `mh.losses`
    of one output. With a mask it depends on the data.
    """
    losses, shape = keras.tree.flatten(model.loss), output_shape(model)
    if shape is None or len(losses) != 1 or _backend.makes_masks(_network_of(model)):
        return None
    name = name_of(losses[0])
    if name in ("categoricalcrossentropy", "sparsecategoricalcrossentropy"):
        return math.prod(shape[:-1])
    if name in (OF_LABELS, *OF_MEAN_SQUARES):
        return math.prod(shape)
    return 1 if isinstance(losses[0], Likelihood) else None


def positions_of_an_example(model: keras.Model) -> set[int] | None:
    """Return the numbers of terms that the loss of one example may be a mean over.

    None stands for an unknown number.
    """
    shapes = _output_shapes(model)
    if shapes is None:
        return None
    positions = {math.prod(shape[:-1]) for shape in shapes}
    outputs = {math.prod(shape) for shape in shapes}
    # A cross-entropy of several classes is never a mean over the classes.
    names = [name_of(loss) for loss in keras.tree.flatten(model.loss)]
    is_categorical = all("categorical" in name for name in names)
    return {1} | positions - {0} | (set() if is_categorical else outputs - {0})


def output_shape(model: keras.Model) -> tuple[int, ...] | None:
    """Return the shape of the only output for one example, None if it is not known."""
    shapes = _output_shapes(model)
    return shapes[0] if shapes is not None and len(shapes) == 1 else None


def _output_shapes(model: keras.Model) -> list[tuple[int, ...]] | None:
    """Return the shapes of the outputs for one example, None if they are not known."""
    model = _network_of(model)
    if not isinstance(model, keras.Sequential | keras.Function) or not model.built:
        return None
    shapes = [tuple(output.shape[1:]) for output in model.outputs]
    return None if any(None in shape for shape in shapes) else shapes


def _network_of(model: keras.Model) -> keras.Model:
    """Return the network of chains side by side, or of a wrapper, or the model."""
    model = _backend.network_of(model)
    return model.model if isinstance(model, WrapperModel) else model
