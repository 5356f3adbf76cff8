"""`evaluate`: accuracy, calibration and uncertainty of several models."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import as_inputs
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import as_classifiers

if TYPE_CHECKING:
    import pandas

_HEADS = {
    "model": "",
    "members": "members",
    "accuracy": "accuracy",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "entropy": "entropy",
    "mutual_information": "MI",
}


def evaluate(
    models: Mapping[str, keras.Model | Classifier],
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    ood: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
    bins: int = 15,
    from_logits: bool | Mapping[str, bool] = False,
    batch_size: int = 256,
    verbose: Literal[0, 1] = 0,
) -> "EvaluationTable":
    """Compare the accuracy, calibration and uncertainty of models.

    With out-of-distribution inputs `ood` the table also shows how well a model's
    uncertainty separates them from `x`. The measure is the area under the ROC curve:
    1 is perfect, and 0.5 is no better than chance. One column uses the predictive
    entropy as the score, and for models with members another column uses their mutual
    information.

    Args:
        models: dict from names to models. A model is a built `keras.Model` that maps
            inputs to class probabilities, shape (N, C), or to the probability of class
            1 of two, shape (N, 1); for example an `mh.Ensemble` or an `mh.MCDropout`.
            It may also be an `mh.Classifier`.
        x: finite inputs, shape (N, ...).
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        ood: inputs of other data, shape (M, ...) with examples shaped like those of
            `x`; or a dict from names to such inputs. None leaves these columns out.
        bins: number of confidence bins of the calibration error, at least 1. Defaults
            to 15.
        from_logits: whether the models output logits instead of probabilities, a bool
            or a dict from the models' names to bools. Defaults to False.
        batch_size: number of examples computed at a time, at least 1. Memory use
            grows with it. Defaults to 256.
        verbose: 1 shows a progress bar that counts models, 0 shows nothing. Defaults
            to 0.

    Returns:
        An `EvaluationTable`. Print it, or use its `column`, `rows` or `to_pandas()`.

    Raises:
        ValueError: an argument is outside its range, or a model's outputs are not
            probabilities.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> model.set_weights([np.array([[-9.0, 9.0]]), np.array([4.5, -4.5])])
    >>> x = np.array([[0.0], [0.25], [0.75], [1.0]])
    >>> table = evaluate({"small": model}, x, [0, 0, 1, 1], ood=[[0.5], [0.45]])
    >>> table.column("accuracy"), table.column("auroc_ood")
    (array([1.]), array([1.]))

    Reference: Guo et al. (2017) for the calibration error; Depeweg et al. (2018) for
    the mutual information; Hendrycks and Gimpel (2017), "A baseline for detecting
    misclassified and out-of-distribution examples", for the area.
    """
    x = as_inputs("x", x)
    others = _others(ood, x.shape[1:])
    bins = _validate.integer("bins", bins, 1)
    _validate.choice("verbose", verbose, (0, 1))
    classifiers = as_classifiers(models, from_logits, batch_size)
    bar = keras.utils.Progbar(len(models), unit_name="model") if verbose else None
    rows = []
    for name, classifier in classifiers.items():
        probabilities, entropy, information = _uncertainty(classifier, x)
        labels = as_labels("y", y, *probabilities.shape)
        row = {
            "model": name,
            "members": classifier.model.num_members if classifier.has_members else 1,
            "accuracy": metrics.accuracy(probabilities, labels),
            "nll": metrics.nll(probabilities, labels),
            "brier": metrics.brier(probabilities, labels),
            "ece": metrics.ece(probabilities, labels, bins),
            "entropy": float(np.mean(entropy)),
            "mutual_information": float(np.mean(information)),
        }
        for other, inputs in others.items():
            _, outside, disagreement = _uncertainty(classifier, inputs)
            row[f"auroc_{other}"] = _area(entropy, outside)
            row[f"auroc_mi_{other}"] = _area(information, disagreement)
        rows.append(row)
        if bar is not None:
            bar.add(1)
    return EvaluationTable(rows)


class EvaluationTable:
    """Scores of models on one data set, with a row for each model.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `members` | number of networks or passes whose probabilities are averaged |
    | `accuracy` | share of correct predictions |
    | `nll` | mean negative log-likelihood, in nats |
    | `brier` | Brier score, between 0 and 2 |
    | `ece` | expected calibration error |
    | `entropy` | mean predictive entropy, in nats |
    | `mutual_information` | mean mutual information of label and member, in nats |
    | `auroc_<name>` | area under the ROC curve, with the entropy as the score |
    | `auroc_mi_<name>` | the same with the mutual information as the score |

    <name> is a set of `ood`, or "ood" for a single array. Scores that need members are
    NaN for a model without members. They are printed as a dash.

    Args:
        rows: list of at least one dict with these keys.

    Raises:
        ValueError: `rows` has another type or other keys.
    """

    def __init__(self, rows: Sequence[_table.Row]) -> None:
        names = [name for name in _HEADS if name != "model"]
        self.rows = _table.checked_rows(rows, names)

    def column(self, name: str) -> Array:
        """Return the values of a column, in the order of the models.

        Args:
            name: name of the column, such as "accuracy".

        Returns:
            An array with one value for each model.

        Raises:
            ValueError: there is no such column.
        """
        _validate.choice("name", name, tuple(self.rows[0]))
        return np.array([row[name] for row in self.rows])

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        return _table.data_frame(self.rows)

    def __repr__(self) -> str:
        first = ("model", "members")
        names = [name for name in self.rows[0] if name not in first]
        heads = [_HEADS.get(name) or _area_head(name) for name in ("members", *names)]
        width = max(len(str(row["model"])) for row in self.rows)
        lines = [[" " * width, *heads]]
        for row in self.rows:
            cells = [str(row["model"]).ljust(width), str(row["members"])]
            lines.append([*cells, *(_table.number(row[name]) for name in names)])
        return _table.aligned(lines)


def _area_head(name: str) -> str:
    """Return a column's head, such as "AUROC kmnist" or "AUROC MI kmnist"."""
    rest = name.removeprefix("auroc_")
    inner = rest.removeprefix("mi_")
    return f"AUROC {inner}" if inner == rest else f"AUROC MI {inner}"


def _others(ood: Any, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return the out-of-distribution inputs as a dict, or raise a `ValueError`."""
    if ood is None:
        return {}
    if not isinstance(ood, Mapping):
        ood = {"ood": ood}
    others = {name: as_inputs("ood", inputs) for name, inputs in ood.items()}
    for name, inputs in others.items():
        if inputs.shape[1:] != shape:
            raise ValueError(
                f"Argument `ood` must have examples shaped like those of `x`, {shape}. "
                f"Resize them first. Received: {name!r} with {inputs.shape[1:]}"
            )
    return others


def _uncertainty(classifier: Classifier, x: Array) -> tuple[Array, Array, Array]:
    """Return probabilities (N, C), entropy (N,) and mutual information or NaN (N,)."""
    probabilities, information = classifier.probabilities_and_information(x)
    if information is None:
        information = np.full(len(x), np.nan)
    return probabilities, metrics.predictive_entropy(probabilities), information


def _area(inside: Array, outside: Array) -> float:
    """Return the area under the ROC curve of a score, or NaN if there is no score."""
    scores = np.concatenate([inside, outside])
    if np.any(np.isnan(scores)):
        return float("nan")
    return metrics.auroc(scores, np.arange(len(scores)) >= len(inside))
