"""`TransferTable`: scores of models under attacks that were made on other models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

if TYPE_CHECKING:
    import pandas

_LABELS = ("source", "target")
_SCORES = ("accuracy", "nll", "clean_accuracy")


class TransferTable(_table.PrintedTable):
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
        self.rows = _table.checked_rows(rows, _SCORES, _LABELS)
        self.attack = _validate.instance("attack", attack, str, "the attack's name")
        self.caption = _validate.instance("caption", caption, str, "a string")
        self.sources = list(dict.fromkeys(row["source"] for row in self.rows))
        self.targets = list(dict.fromkeys(row["target"] for row in self.rows))
        pairs = [(row["source"], row["target"]) for row in self.rows]
        if pairs != [(s, t) for s in self.sources for t in self.targets]:
            raise ValueError(
                "Argument `rows` must have one dict for each pair of a source and a "
                f"target, source by source. Received: the pairs {pairs}"
            )

    def matrix(self, name: str = "accuracy") -> Array:
        """Return a column as a matrix.

        Args:
            name: name of the column, such as "nll". Defaults to "accuracy".

        Returns:
            An array of shape (sources, targets), in the order of `sources` and
            `targets`.

        Raises:
            ValueError: there is no such column of numbers.
        """
        _validate.choice("name", name, [k for k in self.rows[0] if k not in _LABELS])
        values = np.array([row[name] for row in self.rows])
        return values.reshape(len(self.sources), len(self.targets))

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        return _table.data_frame(self.rows)

    def _printed(self) -> _table.Printed:
        heads = ["clean", *(f"on {source}" for source in self.sources)]
        scores = [self.matrix("clean_accuracy")[0], *self.matrix()]
        lines = [["attack", *map(str, self.targets)]]
        for head, values in zip(heads, scores, strict=True):
            lines.append([head, *map(_table.number, values)])
        return _table.Printed(lines, above=self.caption)
