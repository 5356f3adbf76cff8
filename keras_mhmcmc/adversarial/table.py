"""`RobustnessTable`: scores of models under attacks of growing strength."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

if TYPE_CHECKING:
    import pandas

CONFIDENCE = _validate.Interval(0.0, 1.0, low_open=True)
_SCORES = ("epsilon", "accuracy", "nll", "entropy")
_ABSTENTION = ("abstained", "kept_accuracy")


class RobustnessTable(_table.PrintedTable):
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
        names: tuple[str, ...] = _SCORES
        if abstain_below is not None:
            abstain_below = _validate.number("abstain_below", abstain_below, CONFIDENCE)
            names = _SCORES + _ABSTENTION
        self.rows = _table.checked_rows(rows, names)
        self.attack = _validate.instance("attack", attack, str, "the attack's name")
        self.caption = _validate.instance("caption", caption, str, "a string")
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
        """Return a model's values of a column, in the order of the strengths.

        Args:
            model: name of the model.
            name: name of the column, such as "accuracy".

        Returns:
            An array with one value for each strength.

        Raises:
            ValueError: there is no such model or column.
        """
        _validate.choice("model", model, self._models)
        _validate.choice("name", name, tuple(self.rows[0]))
        return np.array([row[name] for row in self.rows if row["model"] == model])

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`, with the warnings in its `attrs`.

        Raises:
            ImportError: pandas is not installed.
        """
        frame = _table.data_frame(self.rows)
        frame.attrs["warnings"] = list(self.warnings)
        return frame

    def _printed(self) -> _table.Printed:
        titles = {"accuracy": "accuracy"}
        if self.abstain_below is not None:
            titles["abstained"] = f"confidence < {self.abstain_below:g}"
            titles["kept_accuracy"] = "accuracy if not"
        strengths = [f"{value:g}" for value in self.column(self._models[0], "epsilon")]
        lines: list[list[str]] = []
        for name, title in titles.items():
            lines.append([title, *strengths])
            for model in self._models:
                cells = map(_table.number, self.column(model, name))
                lines.append([str(model), *cells])
        heads = range(0, len(lines), len(self._models) + 1)
        below = [f"Warning: {text}" for text in self.warnings]
        return _table.Printed(lines, heads, self.caption, below)
