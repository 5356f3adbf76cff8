"""Checks of inputs, labels and class probabilities."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._inputs import as_inputs
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble.checks import checked_weights

Limits = tuple[float, float] | None  # smallest and largest valid input
SMALLEST = float(np.finfo(np.float32).tiny)  # smaller probabilities count as this
ROUNDED = 2.0**-25  # 1 - p may be so large if p is 1 in float32
_CHANNELS = (1, 3, 4)  # of most images
_REMEDY = "Apply a softmax to logits first, or a sigmoid if there is one column."
SEVERAL_LABELS = (
    "score each column k of several yes-or-no labels with `mh.metrics`, such as "
    "`mh.metrics.nll(p[:, k], y[:, k])`."
)
SEVERAL_MODELS = (
    'For several models pass a dict, such as {"network": True, "ensemble": False}.'
)


def check_built(subject: str, model: Any) -> None:
    """Raise a `ValueError` unless a model is built."""
    if not isinstance(model, keras.Model) or not model.built:
        raise ValueError(
            f"{subject} must be a `keras.Model` that is built. Call it on a batch of "
            f"inputs, or train it, first. Received: {model!r}"
        )


def finite_outputs(subject: str, outputs: Array, kind: str) -> Array:
    is_finite = np.isfinite(outputs)
    if not np.all(is_finite):
        raise ValueError(
            f"{subject} must output finite {kind}. Check its weights. Received: "
            f"{np.sum(~is_finite)} outputs that are NaN or infinite"
        )
    return outputs.astype("float64")


def as_outputs(subject: str, result: Any, rank: int) -> Tensor:
    """Return a model's outputs in float32; `rank` is 3 with an axis of members."""
    if not ops.is_tensor(result) or len(result.shape) != rank:
        shapes = keras.tree.map_structure(lambda y: tuple(y.shape), result)
        first = repr(next(iter(result))) if isinstance(result, dict) else 0
        raise ValueError(
            f"{subject} must output one tensor of shape (examples, columns). Take one "
            "of several outputs, `keras.Model(model.inputs, model.outputs[0])`, or "
            f"score rows of the predictions, such as `ensemble.predict(x)[{first}]`, "
            f"with `mh.metrics`. Received: outputs of shape {shapes}"
        )
    return ops.cast(result, "float32")


def as_limits(clip: Any, is_bounded: bool = False) -> Limits:
    """Return the limits, which may be infinite or None unless they `is_bounded`."""
    if clip is None and not is_bounded:
        return None
    try:
        ends = _validate.array("Argument `clip`", clip, "float32")
    except ValueError:
        ends = np.zeros(0)  # refused below, with a better message
    is_pair = ends.shape == (2,) and ends[0] < ends[1]
    if not is_pair or (is_bounded and not np.all(np.isfinite(ends))):
        kind = "finite numbers" if is_bounded else "numbers"
        rest = "" if is_bounded else ", or None for no limits"
        raise ValueError(
            f"Argument `clip` must be a pair of {kind} in increasing order{rest}. "
            f"Received: clip={_validate.shown(clip)}"
        )
    return float(ends[0]), float(ends[1])


def inputs_and_limits(
    x: Any, clip: Any, is_bounded: bool = False
) -> tuple[Array, Limits]:
    """Return inputs in float32 that lie in the limits, and these, or raise."""
    x = as_inputs("x", x)
    limits = as_limits(clip, is_bounded)
    if limits is not None and (np.min(x) < limits[0] or np.max(x) > limits[1]):
        rest = "" if is_bounded else ", or clip=None"
        raise ValueError(
            f"Argument `x` must lie in `clip`, here [{limits[0]:g}, {limits[1]:g}]. "
            f"Scale `x` to this range, or pass the range of your inputs as `clip`{rest}"
            f". Received: values between {np.min(x):g} and {np.max(x):g}"
        )
    return x, limits


def as_probabilities(
    subject: str, values: Any, tolerance: float = 1e-3, remedy: str = _REMEDY
) -> Array:
    """Return probabilities of shape (N, C), C >= 2, or raise with a remedy."""
    values = _validate.array(subject, values)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            f"{subject} must have the shape (examples, classes), or (examples,) or "
            "(examples, 1) for class 1 of two, with at least one example. "
            f"Received: shape {values.shape}"
        )
    low, high = np.min(values), np.max(values)
    if not (low >= 0.0 and high <= 1.0 + tolerance):  # NaN fails this, too
        raise ValueError(
            f"{subject} must be numbers in [0, 1], without NaN. {remedy} "
            f"Received: values between {low:g} and {high:g}"
        )
    if values.shape[1] == 1:
        values = np.minimum(values, 1.0)
        others = np.where(values == 1.0, ROUNDED, 1.0 - values)
        return np.concatenate([others, values], axis=1)
    sums = np.sum(values, axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > tolerance:
        if abs(sums[worst] - 1.0) <= 1e-2:
            remedy = "Divide numbers in half precision by their sum."
        raise ValueError(
            f"{subject} must have rows that sum to 1 within {tolerance:g}. "
            f"{remedy} Received: a sum of {sums[worst]:.6g} in row {worst}"
        )
    return values


def are_lost(probabilities: Array) -> npt.NDArray[np.bool_]:
    """Return which probabilities have underflowed, or stand in for a rounded 0."""
    is_rounded = np.isclose(probabilities, ROUNDED, rtol=1e-6, atol=0.0)
    return (probabilities < SMALLEST) | is_rounded


def warn_of_channels(x: Array) -> None:
    """Warn if images seem to have their channels first, and are read as if last."""
    if x.ndim != 4 or keras.config.image_data_format() == "channels_first":
        return
    if x.shape[1] in _CHANNELS and x.shape[3] not in _CHANNELS:
        warn(
            f"Images of shape {x.shape[1:]} are read as {x.shape[1]} rows of "
            f"{x.shape[2]} pixels with {x.shape[3]} channels. If the channels come "
            'first, call keras.config.set_image_data_format("channels_first") before.'
        )


def as_labels(
    name: str, labels: Any, examples: int, classes: int, hint: str = ""
) -> Array:
    """Return labels, integers or one-hot rows, as integers of shape (examples,)."""
    labels = _validate.array(f"Argument `{name}`", labels)
    if labels.shape not in ((examples,), (examples, 1), (examples, classes)):
        raise ValueError(
            f"Argument `{name}` must have one label for each of {examples} examples, "
            f"in the shape ({examples},) or ({examples}, 1), or be one-hot of shape "
            f"({examples}, {classes}). Received: shape {labels.shape}"
        )
    if labels.shape == (examples, classes):
        if not np.all(np.isin(labels, (0.0, 1.0)) & (labels.sum(1) == 1.0)[:, None]):
            raise ValueError(
                f"Argument `{name}` must be one-hot if it has a column for each class: "
                "each row has a single 1 and zeros. Pass the argmax of soft labels, or "
                f"{SEVERAL_LABELS} Received: {name}={_validate.shown(labels)}"
            )
        return np.argmax(labels, axis=1)
    labels = labels.reshape(examples)
    wrong = ~((labels >= 0) & (labels < classes) & (labels == np.floor(labels)))
    if np.any(wrong):
        raise ValueError(
            f"Argument `{name}` must be integers in [0, {classes}), for {classes} "
            f"classes numbered from 0.{hint} "
            f"Received: {labels[wrong][0]:g} at position {int(np.argmax(wrong))}"
        )
    return labels.astype("int64")


def as_finite(name: str, values: Any, ranks: Sequence[int], axes: str) -> Array:
    """Return a float64 array of one of these ranks, finite in float32, or raise."""
    values = _validate.array(f"Argument `{name}`", values)
    if values.ndim not in ranks or values.size == 0:
        raise ValueError(
            f"Argument `{name}` must have the shape {axes}"
            f"{', or one axis more for several outputs' if len(ranks) > 1 else ''}, "
            f"with no length of 0. Received: shape {values.shape}"
        )
    wrong = ~(np.abs(values) <= _validate.LARGEST_NUMBER)  # NaN is wrong, too
    if np.any(wrong):
        raise ValueError(
            f"Argument `{name}` must be finite numbers of at most 3e38 in absolute "
            "value. Remove or repair the others. "
            f"Received: {np.sum(wrong)} other values, such as {values[wrong][0]:g}"
        )
    return values


def as_targets(name: str, values: Any, shape: tuple[int, ...]) -> Array:
    """Return finite targets in the shape of the predictions, or raise."""
    values = _validate.array(f"Argument `{name}`", values)
    fits = [values.shape, (*values.shape, 1)]
    if values.shape[-1:] == (1,):
        fits.append(values.shape[:-1])
    if shape not in fits:
        raise ValueError(
            f"Argument `{name}` must have one target for each predicted mean, in the "
            f"shape {shape}, apart from a last axis of length 1. If some outputs are "
            "no means, such as a log variance, compile the model with one of "
            "`mh.losses`, which knows them. "
            f"Received: shape {values.shape}"
        )
    ranks = (values.ndim,)
    return as_finite(name, values, ranks, "of the predictions").reshape(shape)


def as_scored(probabilities: Any, labels: Any) -> tuple[Array, Array]:
    """Return probabilities (N, C) and integer labels (N,), or raise a `ValueError`."""
    rows = as_probabilities("Argument `probabilities`", probabilities)
    return rows, as_labels("labels", labels, *rows.shape)


def as_shares(weights: Any, members: int) -> Array:
    """Return weights, or equal ones for None, divided by their sum."""
    if weights is None:
        return np.full(members, 1.0 / members)
    values = checked_weights(weights, members)
    return values / np.sum(values)
