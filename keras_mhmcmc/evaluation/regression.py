"""Predictive distributions of models with a Gaussian likelihood, and their scores."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import InputsLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.metrics import NormalMixture
from keras_mhmcmc.evaluation.tables import LEVELS
from keras_mhmcmc.losses import GaussianNLL

_REMEDY = (
    "Pass `noise_std`, the standard deviation of the noise in units of the target, or "
    "compile the model with `mh.losses.GaussianNLL(noise_std)`."
)


def predict_distribution(
    model: keras.Model,
    x: InputsLike,
    *,
    noise_std: float | None = None,
    batch_size: int = BATCH_SIZE,
) -> NormalMixture:
    """Return the predictive distribution of a regression with normal noise.

    It is a mixture of normals: each member of an ensemble gives a mean, and the noise
    gives the standard deviation. The members have their weights in the ensemble. A
    model without members gives a normal distribution.

    Args:
        model: built `keras.Model` that maps inputs to means, shape (N, D); for example
            an `mh.Ensemble` or an `mh.MCDropout`.
        x: finite inputs, shape (N, ...), or a dict or list of them.
        noise_std: standard deviation of the noise, in units of the target, greater
            than 0. Defaults to None: it comes from the `mh.losses.GaussianNLL` that
            the model, or the member of an ensemble, was compiled with.
        batch_size: number of examples computed at a time, at least 1. Defaults to 256.

    Returns:
        An `mh.metrics.NormalMixture` for N examples, or for (N, D) numbers if D > 1.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            finite, or the noise is not known.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(1, kernel_initializer="ones")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> prediction = predict_distribution(model, [[1.0], [2.0]], noise_std=0.5)
    >>> prediction.mean, prediction.interval(0.95)[0].round(2)
    (array([1., 2.]), array([0.02, 1.02]))
    """
    classifier = Classifier(model, batch_size=batch_size)
    if noise_std is None:
        noise_std = compiled_noise(model)
    if noise_std is None:
        raise ValueError(
            f"Argument `noise_std` must be a number for this model. {_REMEDY} "
            f"Received: noise_std=None, model={model!r}"
        )
    noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)
    return distribution(classifier, x, noise_std)


def distribution(
    classifier: Classifier, x: InputsLike, noise_std: float
) -> NormalMixture:
    """Return the predictive distribution of a compiled model."""
    means, weights = member_means(classifier, x)
    return NormalMixture(means, noise_std, weights)


def member_means(classifier: Classifier, x: InputsLike) -> tuple[Array, Array]:
    """Return the members' outputs (S, N) or (S, N, D), and their weights (S,)."""
    means = classifier.output_arrays(x)  # (S, N, columns)
    if not np.all(np.isfinite(means)):
        raise ValueError(
            f"{classifier.subject} must output finite means. Check its weights. "
            f"Received: {np.sum(~np.isfinite(means))} outputs that are NaN or infinite"
        )
    if means.shape[2] == 1:
        means = means[:, :, 0]
    if not classifier.has_members:
        return means, np.ones(1)
    return means, classifier.model.averaging_weights


def compiled_noise(model: keras.Model) -> float | None:
    """Return the noise of the `GaussianNLL` of a model or its members, or None."""
    parts = [model]
    if isinstance(model, Ensemble):
        parts.append(model.member)
    elif isinstance(model, MCDropout):
        parts.append(model.model)
    for part in parts:
        losses = keras.tree.flatten(part.loss) if part.compiled else []
        if len(losses) == 1 and isinstance(losses[0], GaussianNLL):
            return float(losses[0].noise_std)
    return None


def noise_of_each(
    classifiers: Mapping[str, Classifier],
    noise_std: float | Mapping[str, float] | None,
) -> dict[str, float] | None:
    """Return the noise of each model of a regression, or None for a classification.

    Raises:
        ValueError: `noise_std` is outside its range, or only some models have a noise.
    """
    if noise_std is None:
        found = {n: compiled_noise(one.model) for n, one in classifiers.items()}
        known = {n: noise for n, noise in found.items() if noise is not None}
        if known and len(known) < len(found):
            raise ValueError(
                "Argument `noise_std` must be given if only some of the models are "
                f"compiled for a regression. {_REMEDY} Received: noise_std=None, and "
                f"no noise for {[name for name in found if name not in known]}"
            )
        return known or None
    if not isinstance(noise_std, Mapping):
        noise_std = dict.fromkeys(classifiers, noise_std)
    if noise_std.keys() != classifiers.keys():
        raise ValueError(
            "Argument `noise_std` must be a number, or a dict with the names of "
            f"`models`, {list(classifiers)}. Received: noise_std="
            f"{_validate.shown(noise_std)}"
        )
    interval = _validate.POSITIVE
    return {
        n: _validate.number("noise_std", noise_std[n], interval) for n in classifiers
    }


def refuse_options(classifiers: Mapping[str, Classifier], ood: Any) -> None:
    """Raise a `ValueError` for options that only a classification has."""
    if any(classifier.from_logits for classifier in classifiers.values()):
        raise ValueError(
            "Argument `from_logits` must be False for a regression: its outputs are "
            "means. Received: from_logits=True, and models with a known `noise_std`"
        )
    if ood is not None:
        raise ValueError(
            "Argument `ood` must be None for a regression. Compare the `member_std` of "
            "two `mh.predict_distribution` with `mh.metrics.auroc` instead. "
            f"Received: ood={_validate.shown(ood)}"
        )


def scores(
    name: str, classifier: Classifier, x: InputsLike, y: npt.ArrayLike, noise_std: float
) -> _table.Row:
    """Return the row of a `RegressionTable`."""
    prediction = distribution(classifier, x, noise_std)
    spread = math.sqrt(np.mean(np.square(prediction.member_std)))
    row = {
        "model": name,
        "members": len(prediction.means),
        "noise_std": noise_std,
        "member_std": spread if classifier.has_members else float("nan"),
        "rmse": prediction.rmse(y),
        "nll": prediction.nll(y),
        "crps": prediction.crps(y),
        "calibration_error": prediction.calibration_error(y),
    }
    for level in LEVELS:
        row[f"coverage_{level}"] = prediction.coverage(y, level / 100)
    for level in LEVELS:
        low, high = prediction.interval(level / 100)
        row[f"width_{level}"] = float(np.mean(high - low))
    return row
