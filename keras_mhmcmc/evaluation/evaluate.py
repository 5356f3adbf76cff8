"""`evaluate`: how good predictions are, and whether they know what they do not know."""

import keras
import numpy as np

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.classifier import as_classifiers
from keras_mhmcmc.evaluation.classifier import as_inputs

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
    models, x, y, *, ood=None, bins=15, from_logits=False, batch_size=256, verbose=0
):
    """Accuracy, calibration and uncertainty of models, side by side.

    With inputs `ood` from elsewhere it also tells how well a model's uncertainty
    separates them from `x`: the area under the ROC curve with the predictive entropy
    as the score and, for models with members, with their mutual information. 1 is
    perfect, 0.5 is no better than chance.

    Args:
        models: dict from names to built `keras.Model`s from inputs to class
            probabilities of shape (N, C), or to the probability of class 1 of two;
            `mh.Ensemble`, `mh.MCDropout` and `mh.Classifier`, too.
        x: inputs, finite, N examples along the first axis.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        ood: inputs like `x` of other data; an array, or a dict from names to arrays.
        bins: number of bins of confidence of the calibration error, at least 1.
        from_logits: whether the models output logits; a bool or a dict from the names.
        batch_size: number of examples computed at a time, at least 1. Memory grows
            with it.
        verbose: 1 shows a progress bar that counts models; 0 nothing.

    Returns:
        An `EvaluationTable`; print it, or take its `column`, `rows` or `to_pandas()`.

    Raises:
        ValueError: an argument is outside its range, or a model's outputs are no
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
        labels = metrics.as_labels("y", y, *probabilities.shape)
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
    """Scores of models on one data set: a row for each model.

    The columns are `model`; `members`, the number of networks or passes that are
    averaged; `accuracy`; `nll`, in nats; `brier`, between 0 and 2; `ece`; the means of
    the predictive `entropy` and of the members' `mutual_information`, in nats; and for
    each set of other data `auroc_<name>`, by entropy, and `auroc_mi_<name>`, by mutual
    information; <name> is "ood" for a single array. What needs members is NaN for a
    model without, and printed as —.

    Args:
        rows: list of at least one dict with these keys.

    Raises:
        ValueError: `rows` is something else.
    """

    def __init__(self, rows):
        names = [name for name in _HEADS if name != "model"]
        self.rows = _table.checked_rows(rows, names)

    def column(self, name):
        """Array of a column's values, in the order of the models.

        Args:
            name: name of the column, such as "accuracy".

        Raises:
            ValueError: there is no such column.
        """
        _validate.choice("name", name, tuple(self.rows[0]))
        return np.array([row[name] for row in self.rows])

    def to_pandas(self):
        """A `pandas.DataFrame` of the rows.

        Raises:
            ImportError: pandas is not installed.
        """
        return _table.data_frame(self.rows)

    def __repr__(self):
        first = ("model", "members")
        names = [name for name in self.rows[0] if name not in first]
        heads = [_HEADS.get(name) or _area_head(name) for name in ("members", *names)]
        width = max(len(str(row["model"])) for row in self.rows)
        lines = [[" " * width, *heads]]
        for row in self.rows:
            cells = [str(row["model"]).ljust(width), str(row["members"])]
            lines.append([*cells, *(_table.number(row[name]) for name in names)])
        return _table.aligned(lines)


def _area_head(name):
    """Such as "AUROC kmnist", or "AUROC MI kmnist"."""
    rest = name.removeprefix("auroc_")
    inner = rest.removeprefix("mi_")
    return f"AUROC {inner}" if inner == rest else f"AUROC MI {inner}"


def _others(ood, shape):
    """A dict from names to inputs of other data."""
    if ood is None:
        return {}
    if not isinstance(ood, dict):
        ood = {"ood": ood}
    others = {name: as_inputs("ood", inputs) for name, inputs in ood.items()}
    for name, inputs in others.items():
        if inputs.shape[1:] != shape:
            raise ValueError(
                f"Argument `ood` must have examples shaped like those of `x`, {shape}. "
                f"Resize them first. Received: {name!r} with {inputs.shape[1:]}"
            )
    return others


def _uncertainty(classifier, x):
    """Probabilities, and of each example entropy and mutual information (or NaN)."""
    probabilities, information = classifier.probabilities_and_information(x)
    if information is None:
        information = np.full(len(x), np.nan)
    return probabilities, metrics.predictive_entropy(probabilities), information


def _area(inside, outside):
    """How well a score tells what is outside; NaN where there is no score."""
    scores = np.concatenate([inside, outside])
    if np.any(np.isnan(scores)):
        return float("nan")
    return metrics.auroc(scores, np.arange(len(scores)) >= len(inside))
