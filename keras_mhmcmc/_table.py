"""Tables of results, as text and as a `pandas.DataFrame`."""

import numbers
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from keras_mhmcmc import _validate

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]


def checked_rows(
    rows: Any, names: Sequence[str], texts: Sequence[str] = ("model",)
) -> list[Row]:
    """Return the rows of a table as a list, or raise a `ValueError`.

    Each row is a dict with the keys `texts` and `names`. It may have more keys, the
    same ones in all rows. All values except those of `texts` are numbers.
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


def data_frame(rows: Sequence[Mapping[str, Any]]) -> "pandas.DataFrame":
    """Return a list of dicts as a `pandas.DataFrame`.

    If pandas is not installed, raise an `ImportError` with the remedy.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "`to_pandas` needs pandas, which is not installed: pip install pandas. "
            "Without pandas, use the attribute `rows`, a list of dicts."
        ) from error
    return pandas.DataFrame(rows)
