"""Tables of results, as text, as HTML in notebooks, and as a `pandas.DataFrame`."""

import abc
import html
import numbers
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]


class Printed(NamedTuple):
    lines: Sequence[Sequence[str]]  # of cells; the first cell names the line
    heads: Sequence[int] = (0,)  # which of the lines are heads
    above: str = ""  # a line of text
    below: Sequence[str] = ()  # lines of text


class PrintedTable(abc.ABC):
    """A table that prints as aligned text, and as HTML in a notebook."""

    rows: list[Row]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`. It needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "`to_pandas` needs pandas, which is not installed: pip install pandas. "
                "Without pandas, use the attribute `rows`, a list of dicts."
            ) from error
        return pandas.DataFrame(self.rows)

    @abc.abstractmethod
    def _printed(self) -> Printed:
        """Return what is printed."""

    def __repr__(self) -> str:
        lines, _, above, below = self._printed()
        width = max(len(line[0]) for line in lines)
        padded = [[line[0].ljust(width), *line[1:]] for line in lines]
        return "\n".join([*[above] * bool(above), aligned(padded), *below])

    def _repr_html_(self) -> str:
        lines, heads, above, below = self._printed()
        rows = []
        for number, (name, *cells) in enumerate(lines):
            tag = "th" if number in heads else "td"
            rest = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
            rows.append(f"<tr><th>{html.escape(name)}</th>{rest}</tr>")
        texts = [f"<p>{html.escape(text)}</p>" for text in below]
        caption = f"<caption>{html.escape(above)}</caption>" if above else ""
        return "\n".join(["<table>" + caption, *rows, "</table>", *texts])


class ColumnTable(PrintedTable):
    """A table whose columns are read by name."""

    def column(self, name: str) -> Array:
        """Return the values of a column, such as "nll", in the order of the rows.

        A `ValueError` tells if there is no such column.
        """
        _validate.choice("name", name, tuple(self.rows[0]))
        return np.array([row[name] for row in self.rows])


def by_model(
    titles: Mapping[str, str],
    heads: Sequence[float] | Array,
    models: Sequence[Any],
    column: Callable[[Any, str], Array],
    above: str,
    below: Sequence[str] = (),
) -> Printed:
    """Return a block of lines for each title, with a line for each model."""
    lines: list[list[str]] = []
    for name, title in titles.items():
        lines.append([title, *(f"{value:g}" for value in heads)])
        for model in models:
            lines.append([str(model), *map(number, column(model, name))])
    return Printed(lines, range(0, len(lines), len(models) + 1), above, below)


def checked_rows(
    rows: Any, names: Sequence[str], texts: Sequence[str] = ("model",)
) -> list[Row]:
    """Return the rows of a table as a list, or raise a `ValueError`.

    Each row is a dict with the keys `texts`, and `names` and others of numbers.
    """
    is_list = isinstance(rows, list | tuple) and len(rows) > 0
    if not is_list or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            "Argument `rows` must be a list of at least one dict of scores. "
            f"Received: rows={_validate.shown(rows)}"
        )
    for place, row in enumerate(rows):
        missing = [name for name in (*texts, *names) if name not in row]
        if missing or row.keys() != rows[0].keys():
            raise ValueError(
                f"Argument `rows` must have dicts with the keys "
                f"{', '.join((*texts, *names))}, and the same keys in all rows. "
                f"Received: rows[{place}] with the keys {list(row)}"
            )
        for name, value in row.items():
            if name not in texts and not isinstance(value, numbers.Real):
                raise ValueError(
                    "Argument `rows` must have numbers as scores. Received: "
                    f"rows[{place}][{name!r}]={_validate.shown(value)}"
                )
    return list(rows)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lists of cells as lines of text, with right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        " ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def number(value: float | None) -> str:
    """Return a score as text. A dash stands for None and NaN."""
    return "—" if value is None or value != value else f"{value:.4f}"
