"""Tables of scores of models under attacks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

if TYPE_CHECKING:
    import pandas

CONFIDENCE = _validate.Interval(0.0, 1.0, low_open=True)


class _AttackTable(_table.PrintedTable):
    """A table that names the attack, with a caption."""

    def _set_names(self, attack: str, caption: str) -> None:
        self.attack = _validate.instance("attack", attack, str, "the attack's name")
        self.caption = _validate.instance("caption", caption, str, "a string")


class RobustnessTable(_AttackTable):
    """Scores of models under attack, with a row for each model and strength.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `epsilon` | strength of the attack, in units of the input |
    | `accuracy` | share of correct predictions |
    | `nll` | mean negative log-likelihood of the labels, in nats |
    | `entropy` | mean predictive entropy, in nats |
    | `abstained` | share of examples whose confidence is below the threshold |
    | `kept_accuracy` | accuracy of the other examples, NaN if there are none |

    The last two columns exist only with abstention. `print` shows the accuracies and
    these two columns, with a line for each model, and then the warnings.

    Args:
        rows: list of at least one dict with these keys. All models have the same
            strengths, in the same order.
        attack: name of the attack, such as "PGD". Defaults to "FGSM".
        caption: a description of the attack, the first line of the printed table.
        abstain_below: threshold of the confidence, between 0 and 1, or None.
        warnings: sentences with reasons to doubt the scores. They are the attribute
            `warnings`, a tuple. Defaults to none.

    Raises:
        ValueError: an argument has another type, or the models differ in their
            strengths.
    """

    def __init__(
        self,
        rows: Sequence[_table.Row],
        attack: str = "FGSM",
        caption: str = "",
        abstain_below: float | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        names = ["epsilon", "accuracy", "nll", "entropy"]
        if abstain_below is not None:
            abstain_below = _validate.number("abstain_below", abstain_below, CONFIDENCE)
            names += ["abstained", "kept_accuracy"]
        self.rows = _table.checked_rows(rows, names)
        self._set_names(attack, caption)
        self.abstain_below = abstain_below
        is_list = isinstance(warnings, list | tuple)
        if not is_list or not all(isinstance(text, str) for text in warnings):
            raise ValueError(
                "Argument `warnings` must be a list or tuple of strings. "
                f"Received: warnings={_validate.shown(warnings)}"
            )
        self.warnings = tuple(warnings)
        self._models = list(dict.fromkeys(row["model"] for row in self.rows))
        strengths = {tuple(self.column(name, "epsilon")) for name in self._models}
        if len(strengths) > 1:
            raise ValueError(
                "Argument `rows` must have the same strengths for each model, in the "
                f"same order. Received: {sorted(strengths)}"
            )

    def column(self, model: str, name: str) -> Array:
        """Return a model's values of a column, such as "nll", one for each strength.

        A `ValueError` tells if there is no such model or column.
        """
        _validate.choice("model", model, self._models)
        _validate.choice("name", name, tuple(self.rows[0]))
        return np.array([row[name] for row in self.rows if row["model"] == model])

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`, with the warnings in its `attrs`."""
        frame = super().to_pandas()
        frame.attrs["warnings"] = list(self.warnings)
        return frame

    def _printed(self) -> _table.Printed:
        titles = {"accuracy": "accuracy"}
        if self.abstain_below is not None:
            titles["abstained"] = f"confidence < {self.abstain_below:g}"
            titles["kept_accuracy"] = "accuracy if not"
        below = [f"Warning: {text}" for text in self.warnings]
        shown = self.column(self._models[0], "epsilon"), self._models, self.column
        return _table.by_model(titles, *shown, self.caption, below)


class TransferTable(_AttackTable):
    """Scores of targets for attacks on sources, with a row for each pair.

    | column | holds |
    |---|---|
    | `source` | name of the model on which the attack was made |
    | `target` | name of the model that is scored |
    | `accuracy` | share of correct predictions of the target under the attack |
    | `nll` | mean negative log-likelihood of the labels, in nats |
    | `clean_accuracy` | accuracy of the target for the clean inputs |

    `print` shows the accuracies as a matrix: a line for each source, a column for each
    target, and a first line for the clean inputs.

    Args:
        rows: list of at least one dict with these keys, one for each pair of a source
            and a target, source by source.
        attack: name of the attack, such as "PGD". Defaults to "PGD".
        caption: a description of the attack, the first line of the printed table.

    Raises:
        ValueError: an argument has another type, or pairs are missing.
    """

    def __init__(
        self, rows: Sequence[_table.Row], attack: str = "PGD", caption: str = ""
    ) -> None:
        names = "accuracy", "nll", "clean_accuracy"
        self.rows = _table.checked_rows(rows, names, ("source", "target"))
        self._set_names(attack, caption)
        self.sources = list(dict.fromkeys(row["source"] for row in self.rows))
        self.targets = list(dict.fromkeys(row["target"] for row in self.rows))
        pairs = [(row["source"], row["target"]) for row in self.rows]
        if pairs != [(s, t) for s in self.sources for t in self.targets]:
            raise ValueError(
                "Argument `rows` must have one dict for each pair of a source and a "
                f"target, source by source. Received: the pairs {pairs}"
            )

    def matrix(self, name: str = "accuracy") -> Array:
        """Return a column of numbers as a matrix, shape (sources, targets).

        Args:
            name: name of the column, such as "nll". Defaults to "accuracy".

        Raises:
            ValueError: there is no such column of numbers.
        """
        numbers = [key for key in self.rows[0] if key not in ("source", "target")]
        _validate.choice("name", name, numbers)
        values = np.array([row[name] for row in self.rows])
        return values.reshape(len(self.sources), len(self.targets))

    def _printed(self) -> _table.Printed:
        heads = ["clean", *(f"on {source}" for source in self.sources)]
        scores = [self.matrix("clean_accuracy")[0], *self.matrix()]
        lines = [["attack", *map(str, self.targets)]]
        for head, values in zip(heads, scores, strict=True):
            lines.append([head, *map(_table.number, values)])
        return _table.Printed(lines, above=self.caption)
