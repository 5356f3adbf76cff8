"""Checks of the samples and weights that an ensemble is filled with."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import ERRORS
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble.compile import is_unknown
from keras_mhmcmc.losses import Likelihood
from keras_mhmcmc.samplers.parts import importance

_OWN_STEPS = ("compute_loss", "compute_metrics", "train_step")


def checked_weights(weights: Any, num_members: int) -> npt.NDArray[np.float64]:
    """Return the members' weights as an array (members,), or raise a `ValueError`."""
    weights = _validate.array("Argument `weights`", weights)
    with np.errstate(over="ignore"):
        total = weights.sum()  # NaN or infinite if a weight is
    is_valid = np.isfinite(total) and total > 0 and (weights >= 0).all()
    if weights.shape != (num_members,) or not is_valid:
        raise ValueError(
            f"Argument `weights` must be {num_members} numbers, one for each member: "
            "finite, at least 0, and not all 0. Equal ones are np.ones. "
            f"Received: weights={_validate.shown(weights)}"
        )
    return weights


def copy_of_sampled(
    changed: keras.Model,
    known: Sequence[keras.Variable],
    make: Callable[..., keras.Model],
) -> keras.Model:
    """Return a new model with weights like the `known` ones, or raise a `ValueError`.

    `changed` is the model that had them, and `make` gives one as it was then.
    """
    cause = None
    if _backend.is_eager():
        try:
            copy = make()
            if [w.shape for w in copy.weights] == [w.shape for w in known]:
                return copy
        except ERRORS as error:
            cause = error
    raise ValueError(
        "The model of an ensemble must keep its weights where Keras cannot copy it: "
        "call `enable_lora` or `quantize` of another model of the same class. Make the "
        "model again as it was sampled, and call `posterior.ensemble` with it. "
        f"Received: a model with {len(changed.weights)} weights, which had "
        f"{len(known)} when the ensemble was made"
    ) from cause


def checked_values(
    stacked: Any, member: keras.Model, num_members: int, shared: Collection[int]
) -> list[Array]:
    """Return the values of the ensemble's variables, or raise a `ValueError`.

    `stacked` has one array (members, ...) for each of `member.weights`. Weights at the
    positions `shared` take the value of the first member.
    """
    names = [variable.path for variable in member.weights]
    if not isinstance(stacked, list | tuple) or len(stacked) != len(names):
        raise ValueError(
            "Argument `stacked` must be a list with one array for each weight of "
            f"`member`, which has {len(names)}. "
            f"Received: stacked={_validate.shown(stacked)}"
        )
    values = []
    for i, (name, value) in enumerate(zip(names, stacked, strict=True)):
        subject = f"Argument `stacked`, entry {i} ({name!r}),"
        value = _validate.array(subject, value, dtype=None)
        shape = (num_members, *member.weights[i].shape)
        if value.shape != shape:
            raise ValueError(
                f"{subject} must have the shape {shape}, with one row for each member. "
                f"Received: shape {value.shape}"
            )
        if i in shared:
            value = value[0]
        # Integers, such as the states of random generators, are never NaN.
        if value.dtype.kind in "fV" and np.isnan(value).any():
            raise ValueError(
                f"{subject} must not be NaN: the predictions would be NaN, too. The "
                "run may have diverged: lower its learning rate, and sample again. "
                f"Received: {np.sum(np.isnan(value))} values that are NaN"
            )
        values.append(value)
    return values


def mean_of_parameters(ensemble: Any, y: Any, y_pred: Any) -> str | None:
    """Return what to say if a loss takes a mean of what may be parameters, or None.

    Targets that are real numbers, with more outputs than targets, have outputs other
    than means, such as a log variance. `y` and `y_pred` are those of a mini-batch.
    """
    losses, targets, outputs = map(keras.tree.flatten, (ensemble.loss, y, y_pred))
    losses = losses * len(outputs) if len(losses) == 1 else losses
    functions = activations.of_each(ensemble.activation, len(outputs))
    for loss, function, target, output in zip(
        losses, functions, targets, outputs, strict=False
    ):
        is_doubtful = is_unknown(loss) or isinstance(loss, Likelihood)
        if not is_doubtful or function is not keras.activations.linear:
            continue
        columns = target.shape[-1] if len(target.shape) == len(output.shape) else 1
        if output.shape[-1] > columns and keras.backend.is_float_dtype(target.dtype):
            return (
                "The loss of the ensemble is that of the mean of its members' outputs, "
                f"{output.shape[-1]} for each {columns} of the targets. If some, such "
                "as a log variance, are no targets, compile the model with one of "
                "`mh.losses`, and score it with `mh.evaluate`, or use "
                "`predict_members`. "
                f"Received: loss={loss!r}"
            )
    return None


def warn_of_few(weights: Array) -> None:
    """Warn if the weights leave hardly more than one of several samples."""
    ess = importance.effective_sample_size(weights)
    # Two samples of nearly equal weight have an effective size just below two.
    if ess < min(2.0, 0.75 * np.size(weights)):
        warn(
            f"The importance weights of the {np.size(weights)} samples have an "
            f"effective sample size of {ess:.2f}: the ensemble is hardly more than one "
            "sample. Keep more samples after a longer burn-in, or use a wider "
            "`energy_gap` or a smaller `zeta`."
        )


def check_trains_as_keras(model: keras.Model) -> None:
    """Refuse a model that the usual training step does not train."""
    _validate.instance("model", model, keras.Model, "a `keras.Model`")
    own = _validate.own_methods(model, _OWN_STEPS)
    if own:
        raise ValueError(
            "Argument `model` must be a model that Keras' own training step trains. "
            "Write a loss of your own as a `keras.losses.Loss` or with `add_loss`, and "
            "leave the step to Keras. Received: a "
            f"{type(model).__name__}, whose class has {', '.join(own)}"
        )
    if model.built and not model.trainable_variables:
        raise ValueError(
            "Argument `model` must have trainable weights. Train the network before "
            "you make an ensemble of it, or make its layers trainable. "
            f"Received: model={model!r}"
        )
