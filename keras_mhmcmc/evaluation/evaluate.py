"""`evaluate` and `predict_distribution`: scores of several models, and predictions."""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import Literal

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _data
from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._inputs import Inputs
from keras_mhmcmc._inputs import example_shapes
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import Models
from keras_mhmcmc.evaluation.classifier import as_classifiers
from keras_mhmcmc.evaluation.classifier import of_each
from keras_mhmcmc.losses import GaussianNLL
from keras_mhmcmc.losses import Likelihood

# Outputs (N, columns), and the mutual information (N,) of a model with members.
Outputs = tuple[Array, Array | None]
LEVELS = (50, 90, 95)  # of the intervals in a `RegressionTable`, in percent
_REMEDY = (
    "Compile the model with one of `mh.losses`, such as `mh.losses.GaussianNLL`, or "
    "pass `noise_std`, the standard deviation of the noise in units of the target."
)


def evaluate(
    models: Models,
    x: DataLike,
    y: npt.ArrayLike | None = None,
    *,
    ood: DataLike | Mapping[str, DataLike] | None = None,
    bins: int = 15,
    from_logits: bool | Mapping[str, bool] = False,
    batch_size: int = 256,
    verbose: Literal[0, 1] = 0,
    noise_std: float | Mapping[str, float] | None = None,
) -> "EvaluationTable | RegressionTable":
    """Compare the accuracy, calibration and uncertainty of models.

    The models are classifiers or regressions. They are regressions if `noise_std` is
    given, or if all of them, or the members of the ensembles, were compiled with one of
    `mh.losses`. The prediction of a regression is that of `mh.predict_distribution`,
    and the result a `RegressionTable`. For classifiers it is an `EvaluationTable`.

    With out-of-distribution inputs `ood` the table also shows how well a model's
    uncertainty separates them from `x`: the area under the ROC curve of the predictive
    entropy, and of the mutual information for models with members. 1 is perfect, and
    0.5 is no better than chance.

    Args:
        models: a model, a list of models, whose names the table has, or a dict from
            names to models: built `keras.Model`s as in `mh.Classifier`, such as an
            `mh.Ensemble`, or `mh.Classifier`s. A regression outputs what its likelihood
            needs, such as means, shape (N, D).
        x: finite inputs, shape (N, ...), or a dict or list of them; or a data set that
            `fit` takes and that ends, of pairs (x, y). It is read once, a batch at a
            time. Its sample weights do not count.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            For a regression, finite targets of shape (N,) or (N, D). None for a data
            set.
        ood: inputs of other data, with examples shaped like those of `x`, or a data
            set, whose targets are left out; or a dict from names to such inputs. A dict
            with the keys of `x` is one set of inputs. A regression takes none.
        bins: number of bins of the calibration errors of classifiers, at least 1.
            Defaults to 15.
        from_logits: whether the models output logits, a bool or a dict from the models'
            names to bools. Defaults to False.
        batch_size: number of examples computed at a time. Defaults to 256.
        verbose: 1 shows a progress bar that counts predictions. Defaults to 0.
        noise_std: standard deviation of the noise of regressions, in units of `y`,
            greater than 0, or a dict of them. Defaults to None, the likelihood of each
            model's loss, or no regression.

    Raises:
        ValueError: an argument is outside its range, a classifier's outputs are not
            probabilities, or only some models are compiled for a regression.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> model.set_weights([np.array([[-9.0, 9.0]]), np.array([4.5, -4.5])])
    >>> x = np.array([[0.0], [0.25], [0.75], [1.0]])
    >>> table = evaluate(model, x, [0, 0, 1, 1], ood=[[0.5], [0.45]])
    >>> table.column("accuracy"), table.column("auroc_ood")
    (array([1.]), array([1.]))

    A regression:

    >>> layer = keras.layers.Dense(1, kernel_initializer="ones")
    >>> line = keras.Sequential([keras.Input((1,)), layer])
    >>> table = evaluate({"line": line}, x, [0.0, 0.5, 0.5, 1.0], noise_std=0.5)
    >>> table.column("rmse").round(4), table.column("crps").round(4)
    (array([0.1768]), array([0.1413]))

    Reference: Hendrycks and Gimpel (2017), "A baseline for detecting misclassified and
    out-of-distribution examples"; for the scores see `mh.metrics`.
    """
    _validate.choice("verbose", verbose, (0, 1))
    classifiers = as_classifiers(models, from_logits, batch_size)
    likelihoods = _likelihood_of_each(classifiers, noise_std)
    if likelihoods is not None and any(c.from_logits for c in classifiers.values()):
        raise ValueError(
            "Argument `from_logits` must be False for a regression: its outputs are "
            "means. Received: from_logits=True, and models with a likelihood"
        )
    if likelihoods is not None and ood is not None:
        raise ValueError(
            "Argument `ood` must be None for a regression. Compare the `member_std` of "
            "two `mh.predict_distribution` with `mh.metrics.auroc` instead. "
            f"Received: ood={_validate.shown(ood)}"
        )
    first = next(iter(classifiers.values()))
    example, x = _data.peeked(x, y, needs_targets=True)
    others = _others(ood, first.checked_inputs(example), first)
    count = None  # of a data set, nobody knows it
    if not any(map(_data.is_dataset, [x, *others.values()])):
        count = len(classifiers) * (1 + len(others))
    bar = keras.utils.Progbar(count, verbose=verbose, unit_name="prediction")

    def predict(inputs: Inputs) -> list[Any]:
        outputs: list[Any] = []
        for one in classifiers.values():
            is_one = likelihoods is None
            of = one.outputs_and_information if is_one else one.output_arrays
            outputs.append(of(inputs))
            bar.add(1)
        return outputs

    found, y = _data.predicted(predict, x, y)
    of_others = {
        other: _data.predicted(predict, inputs, needs_targets=False)[0]
        for other, inputs in others.items()
    }
    rows = []
    for place, (name, classifier) in enumerate(classifiers.items()):
        own = found[place]
        if likelihoods is None:
            outside = {other: each[place] for other, each in of_others.items()}
            rows.append(_scores(name, classifier, own, y, outside, bins))
        else:
            rows.append(
                _scores_of_regression(name, classifier, own, y, likelihoods[name])
            )
    return EvaluationTable(rows) if likelihoods is None else RegressionTable(rows)


def _scores(
    name: str,
    classifier: Classifier,
    outputs: Outputs,
    y: npt.ArrayLike,
    others: Mapping[str, Outputs],
    bins: int,
) -> _table.Row:
    probabilities = classifier.as_probabilities(outputs[0])
    own = _uncertainty(probabilities, outputs[1])
    hint = " If they are the targets of a regression, pass `noise_std`."
    labels = checks.as_labels("y", y, *probabilities.shape, hint=hint)
    row = {
        "model": name,
        "members": classifier.model.num_members if classifier.has_members else 1,
        "accuracy": metrics.accuracy(probabilities, labels),
        "nll": metrics.nll(probabilities, labels),
        "brier": metrics.brier(probabilities, labels),
        "ece": metrics.ece(probabilities, labels, bins),
        "adaptive_ece": metrics.adaptive_ece(probabilities, labels, bins),
        "classwise_ece": metrics.classwise_ece(probabilities, labels, bins),
        "aurc": metrics.aurc(probabilities, labels),
        "entropy": float(np.mean(own[""])),
        "mutual_information": float(np.mean(own["mi_"])),
    }
    for other, of_other in others.items():
        outside = _uncertainty(classifier.as_probabilities(of_other[0]), of_other[1])
        for area, measure in (("auroc", metrics.auroc), ("aupr", metrics.aupr)):
            for kind, scores in own.items():
                both = np.concatenate([scores, outside[kind]])
                is_outside = np.arange(len(both)) >= len(scores)
                is_known = not np.any(np.isnan(both))
                found = measure(both, is_outside) if is_known else math.nan
                row[f"{area}_{kind}{other}"] = found
    return row


def _uncertainty(probabilities: Array, information: Array | None) -> dict[str, Array]:
    """Return the entropy "" and mutual information "mi_", (N,)."""
    unknown = np.full(len(probabilities), np.nan)
    own = unknown if information is None else information
    return {"": metrics.predictive_entropy(probabilities), "mi_": own}


def _others(ood: Any, x: Inputs, classifier: Classifier) -> dict[str, Any]:
    """Return the out-of-distribution inputs as a dict, or raise a `ValueError`."""
    if ood is None:
        return {}
    is_one = isinstance(x, dict) and isinstance(ood, Mapping) and set(x) <= set(ood)
    if is_one or not isinstance(ood, Mapping):
        ood = {"ood": ood}
    others = {}
    for name, inputs in ood.items():
        example, others[name] = _data.peeked(inputs)
        found = example_shapes(classifier.checked_inputs(example, "ood"))
        if found != example_shapes(x):
            raise ValueError(
                "Argument `ood` must have examples shaped like those of `x`, "
                f"{example_shapes(x)}. Resize them first. Received: {name!r} with "
                f"{found}"
            )
    return others


class _ScoreTable(_table.ColumnTable):
    _heads: ClassVar[dict[str, str]]  # what is printed above each column

    def __init__(self, rows: Sequence[_table.Row]) -> None:
        self.rows = _table.checked_rows(rows, list(self._heads))

    def _head(self, name: str) -> str:
        """Return what is printed above a column, or nothing to leave it out."""
        for start, head in (("auroc_mi_", "AUROC MI"), ("auroc_", "AUROC")):
            if name.startswith(start):  # such as "AUROC MI kmnist"
                return f"{head} {name.removeprefix(start)}"
        return self._heads.get(name, "")

    def _printed(self) -> _table.Printed:
        shown = [name for name in self.rows[0] if self._head(name)]
        lines = [["", *map(self._head, shown)]]
        for row in self.rows:
            cells = [
                str(row[name]) if name == "members" else _table.number(row[name])
                for name in shown
            ]
            lines.append([str(row["model"]), *cells])
        return _table.Printed(lines)


class EvaluationTable(_ScoreTable):
    """Scores of classifiers on one data set, with a row for each model.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `members` | number of networks or passes whose probabilities are averaged |
    | `accuracy` | share of correct predictions |
    | `nll` | mean negative log-likelihood, in nats |
    | `brier` | Brier score, between 0 and 2 |
    | `ece` | expected calibration error, over bins of equal width |
    | `adaptive_ece` | the same over bins with equal numbers of examples |
    | `classwise_ece` | mean calibration error of the classes |
    | `aurc` | area under the risk-coverage curve |
    | `entropy` | mean predictive entropy, in nats |
    | `mutual_information` | mean mutual information of label and member, in nats |
    | `auroc_<name>` | area under the ROC curve, with the entropy as the score |
    | `auroc_mi_<name>` | the same with the mutual information as the score |
    | `aupr_<name>` | area under the precision-recall curve, with the entropy |
    | `aupr_mi_<name>` | the same with the mutual information as the score |

    <name> is a set of `ood`, or "ood" for a single array. Scores that need members are
    NaN for a model without members, printed as a dash. The printed table leaves out
    `adaptive_ece`, `classwise_ece` and `aupr_...`, to fit the line.
    """

    _heads: ClassVar[dict[str, str]] = {
        "members": "members",
        "accuracy": "accuracy",
        "nll": "NLL",
        "brier": "Brier",
        "ece": "ECE",
        "adaptive_ece": "",
        "classwise_ece": "",
        "aurc": "AURC",
        "entropy": "entropy",
        "mutual_information": "MI",
    }


class RegressionTable(_ScoreTable):
    """Scores of regressions on one data set, with a row for each model.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `members` | number of networks or passes in the predictive mixture |
    | `noise_std` | root mean square of the noise's deviation, in units of the target |
    | `member_std` | root mean square of the deviation between members, in these units |
    | `rmse` | root mean squared error of the mean prediction, in these units |
    | `nll` | mean negative log density of the targets, in nats per example |
    | `crps` | continuous ranked probability score, in units of the target |
    | `calibration_error` | mean gap of expected and observed share, 19 intervals |
    | `coverage_50`, `coverage_90`, `coverage_95` | share of targets in the intervals |
    | `width_50`, `width_90`, `width_95` | mean width of the central intervals |

    `member_std` is NaN for a model without members, and printed as a dash.
    """

    _heads: ClassVar[dict[str, str]] = {
        "members": "members",
        "noise_std": "noise",
        "member_std": "spread",
        "rmse": "RMSE",
        "nll": "NLL",
        "crps": "CRPS",
        "calibration_error": "cal. error",
        **{f"coverage_{level}": f"in {level}%" for level in LEVELS},
        **{f"width_{level}": f"width {level}%" for level in LEVELS},
    }


def predict_distribution(
    model: keras.Model,
    x: DataLike,
    *,
    likelihood: Likelihood | None = None,
    noise_std: float | None = None,
    batch_size: int = BATCH_SIZE,
) -> metrics.PredictiveMixture:
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
) -> metrics.PredictiveMixture:
    """Return the predictive distribution of a compiled model's `output_arrays`."""
    outputs = checks.finite_outputs(classifier.subject, outputs, "numbers")
    weights = classifier.model.averaging_weights if classifier.has_members else None
    return metrics.PredictiveMixture(
        likelihood.mixture(np.moveaxis(outputs, 1, 0)), weights
    )


def given_likelihood(likelihood: Any, model: keras.Model) -> Likelihood | None:
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


def _likelihood_of_each(
    classifiers: Mapping[str, Classifier],
    noise_std: float | Mapping[str, float] | None,
) -> dict[str, Likelihood] | None:
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
    check, interval = _validate.number, _validate.POSITIVE
    return {n: GaussianNLL(check("noise_std", stds[n], interval)) for n in classifiers}


def _scores_of_regression(
    name: str,
    classifier: Classifier,
    outputs: Array,
    y: npt.ArrayLike,
    likelihood: Likelihood,
) -> _table.Row:
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
