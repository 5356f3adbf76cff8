"""Predictive distributions of models with a likelihood, and their scores."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.evaluation.checks import finite_outputs
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import of_each
from keras_mhmcmc.evaluation.metrics import PredictiveMixture
from keras_mhmcmc.losses import GaussianNLL
from keras_mhmcmc.losses import Likelihood

LEVELS = (50, 90, 95)  # of the intervals in a `RegressionTable`, in percent
_REMEDY = (
    "Compile the model with one of `mh.losses`, such as `mh.losses.GaussianNLL`, or "
    "pass `noise_std`, the standard deviation of the noise in units of the target."
)


def predict_distribution(
    model: keras.Model,
    x: DataLike,
    *,
    likelihood: Likelihood | None = None,
    noise_std: float | None = None,
    batch_size: int = BATCH_SIZE,
) -> PredictiveMixture:
    """Return the predictive distribution of a regression, a `PredictiveMixture`.

    Each member of an ensemble predicts the law that the likelihood makes of its
    outputs, such as a normal distribution. The members have their weights in the
    ensemble. A model without members predicts one law. Methods of the result, such as
    `mean()`, `std()`, `interval(0.9)` and `log_prob(y)`, return arrays.

    Args:
        model: built `keras.Model` whose outputs, shape (N, columns), are those that
            the likelihood needs; for example an `mh.Ensemble` or an `mh.MCDropout`.
        x: finite inputs, shape (N, ...), a dict or list of them, or a data set.
        likelihood: one of `mh.losses`. Defaults to None: the loss that the model, or
            the member of an ensemble, was compiled with.
        noise_std: standard deviation of the noise, in units of the target, greater
            than 0: short for `likelihood=mh.losses.GaussianNLL(noise_std)`. Defaults
            to None.
        batch_size: number of examples computed at a time, at least 1. Defaults to 256.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            finite or too few, or the likelihood is not known.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(1, kernel_initializer="ones")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> prediction = predict_distribution(model, [[1.0], [2.0]], noise_std=0.5)
    >>> prediction.mean()[:, 0], prediction.interval(0.95)[0].round(2)[:, 0]
    (array([1., 2.]), array([0.02, 1.02]))
    """
    classifier = Classifier(model, batch_size=batch_size)
    if likelihood is not None and noise_std is not None:
        raise ValueError(
            "Argument `noise_std` must be None if there is a `likelihood`, which "
            f"knows its noise. Received: noise_std={_validate.shown(noise_std)}, "
            f"likelihood={likelihood!r}"
        )
    if noise_std is not None:
        likelihood = GaussianNLL(noise_std)
    likelihood = given_likelihood(likelihood, model)
    outputs = classifier.output_arrays(x)  # refuses several outputs
    if likelihood is None:
        raise ValueError(
            f"Argument `likelihood` must be given for this model. {_REMEDY} "
            f"Received: likelihood=None, noise_std=None, model={model!r}"
        )
    return distribution(classifier, outputs, likelihood)


def distribution(
    classifier: Classifier, outputs: Array, likelihood: Likelihood
) -> PredictiveMixture:
    """Return the predictive distribution of a compiled model's `output_arrays`."""
    outputs = finite_outputs(classifier.subject, outputs, "numbers")
    weights = classifier.model.averaging_weights if classifier.has_members else None
    return PredictiveMixture(likelihood.mixture(np.moveaxis(outputs, 1, 0)), weights)


def given_likelihood(likelihood: Any, model: keras.Model) -> Likelihood | None:
    """Return a given likelihood, or else that of the model, or None."""
    hint = "one of `mh.losses`, such as `mh.losses.GaussianNLL()`, or None"
    _validate.instance("likelihood", likelihood, (Likelihood, type(None)), hint)
    return likelihood or compiled_likelihood(model)


def compiled_likelihood(model: keras.Model) -> Likelihood | None:
    """Return the likelihood of a model or its members, or None."""
    parts = [model]
    if isinstance(model, Ensemble):
        parts.append(model.member)
    elif isinstance(model, MCDropout):
        parts.append(model.model)
    for part in parts:
        losses = keras.tree.flatten(part.loss) if part.compiled else []
        if len(losses) == 1 and isinstance(losses[0], Likelihood):
            return losses[0]
    return None


def compiled_noise(model: keras.Model) -> float | None:
    """Return the known noise of the likelihood of a model or its members, or None."""
    found = compiled_likelihood(model)
    return None if found is None else found.noise_std


def likelihood_of_each(
    classifiers: Mapping[str, Classifier],
    noise_std: float | Mapping[str, float] | None,
) -> dict[str, Likelihood] | None:
    """Return the likelihood of each regression, or None for a classification."""
    if noise_std is None:
        found = {n: compiled_likelihood(one.model) for n, one in classifiers.items()}
        known = {n: one for n, one in found.items() if one is not None}
        if known and len(known) < len(found):
            raise ValueError(
                "Argument `noise_std` must be given if only some of the models are "
                f"compiled for a regression. {_REMEDY} Received: noise_std=None, and "
                f"no likelihood for {[name for name in found if name not in known]}"
            )
        return known or None
    stds = of_each("noise_std", noise_std, classifiers, "a number", "models")
    interval = _validate.POSITIVE
    return {
        n: GaussianNLL(_validate.number("noise_std", stds[n], interval))
        for n in classifiers
    }


def refuse_options(classifiers: Mapping[str, Classifier], ood: Any) -> None:
    """Raise a `ValueError` for options that only a classification has."""
    if any(classifier.from_logits for classifier in classifiers.values()):
        raise ValueError(
            "Argument `from_logits` must be False for a regression: its outputs are "
            "means. Received: from_logits=True, and models with a likelihood"
        )
    if ood is not None:
        raise ValueError(
            "Argument `ood` must be None for a regression. Compare the `member_std` of "
            "two `mh.predict_distribution` with `mh.metrics.auroc` instead. "
            f"Received: ood={_validate.shown(ood)}"
        )


def scores(
    name: str,
    classifier: Classifier,
    outputs: Array,
    y: npt.ArrayLike,
    likelihood: Likelihood,
) -> _table.Row:
    """Return the row of a `RegressionTable`."""
    prediction = distribution(classifier, outputs, likelihood)
    ends = [prediction.interval(level / 100) for level in LEVELS]
    deviations = prediction.noise_std(), prediction.member_std()
    noise, spread = (math.sqrt(np.mean(np.square(std))) for std in deviations)
    row = {
        "model": name,
        "members": len(prediction.means),
        "noise_std": noise,
        "member_std": spread if classifier.has_members else math.nan,
        "rmse": prediction.rmse(y),
        "nll": prediction.nll(y),
        "crps": float(np.mean(prediction.crps(y))),
        "calibration_error": prediction.calibration_error(y),
        **{f"coverage_{p}": prediction.coverage(y, p / 100) for p in LEVELS},
        **{
            f"width_{level}": float(np.mean(high - low))
            for level, (low, high) in zip(LEVELS, ends, strict=True)
        },
    }
    likelihood.warn_of_grid(np.asarray(y))
    return row
