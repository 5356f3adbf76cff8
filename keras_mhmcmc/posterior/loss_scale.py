"""A warning about a loss of the user's own that is a sum over the mini-batch."""

import inspect
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.loss_terms import output_shape

_ROWS = 2  # enough to tell a sum from a mean


def warn_of_sum(model: keras.Model) -> None:
    """Warn if the compiled loss of `model` doubles when the examples are doubled.

    A function that returns one number for a mini-batch hides from Keras whether it is
    a mean or a sum. The check needs targets in an array, and one output of known shape.
    Losses of Keras give one number for each example, or `check_is_mean` refuses them.
    """
    losses, targets = _backend.compiled_losses(model), _first_targets(model)
    shape, given = output_shape(model), keras.tree.flatten(model.loss)
    if len(losses) != 1 or targets is None or shape is None or _is_of_keras(given[0]):
        return
    outputs = np.random.default_rng(0).uniform(0.1, 0.9, (_ROWS, *shape))
    loss = losses[0][0]
    try:
        once, twice = (
            _value(loss, np.repeat(targets, times, 0), np.repeat(outputs, times, 0))
            for times in (1, 2)
        )
    except Exception as error:  # a loss may take mini-batches of one size alone
        warn(
            "Nobody knows whether the loss is a mean over the mini-batch, as a sampler "
            "needs: it cannot be evaluated on two examples of a mini-batch. The error "
            f"was: {error}"
        )
        return
    if once != 0.0 and math.isclose(twice, 2.0 * once, rel_tol=1e-3):
        warn(
            f"The loss is a sum over the mini-batch: two examples give {once:.3g}, and "
            f"the same two taken twice give {twice:.3g}. The sampler multiplies the "
            "loss by `train_size`, so the loss must be a mean. With a sum the "
            "posterior is much too narrow. Return one number for each example, or use "
            "`ops.mean` in place of `ops.sum`."
        )


def _is_of_keras(given: Any) -> bool:
    """Return whether a loss as given to `compile` is one of Keras' or of ours."""
    kind = given if inspect.isfunction(given) else type(given)
    is_known = kind.__module__.partition(".")[0] in ("keras", "keras_mhmcmc")
    return isinstance(given, str) or is_known


def _value(loss: keras.losses.Loss, targets: Array, outputs: Array) -> float:
    """Return the loss of some examples."""
    y_pred = ops.convert_to_tensor(outputs.astype("float32"))
    return float(ops.convert_to_numpy(loss(ops.convert_to_tensor(targets), y_pred)))


def _first_targets(model: keras.Model) -> Array | None:
    """Return the targets of the first examples, None if `fit` has no such array."""
    data = _backend.fitted_data(model)
    y: Any = None if data is None else data["y"]
    if not isinstance(y, np.ndarray) and not ops.is_tensor(y):
        return None
    if len(y.shape) == 0 or y.shape[0] < _ROWS:
        return None
    first: Array = np.asarray(ops.convert_to_numpy(y[:_ROWS]))
    return first
