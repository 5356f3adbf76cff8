"""Tables of results: as text, and as a `pandas.DataFrame`."""

import numbers

from keras_mhmcmc import _validate


def checked_rows(rows, names):
    """`rows` as a list of dicts with the keys "model" and `names`, and others.

    All values but that of "model" are numbers, or a `ValueError` says which is not.
    """
    is_list = isinstance(rows, list | tuple) and len(rows) > 0
    if not is_list or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            "Argument `rows` must be a list of at least one dict of scores. "
            f"Received: rows={_validate.shown(rows)}"
        )
    for place, row in enumerate(rows):
        missing = [name for name in ("model", *names) if name not in row]
        if missing or row.keys() != rows[0].keys():
            raise ValueError(
                f"Argument `rows` must have dicts with the keys model, "
                f"{', '.join(names)}, and all the same ones. Received: rows[{place}] "
                f"with the keys {list(row)}"
            )
        for name, value in row.items():
            if name != "model" and not isinstance(value, numbers.Real):
                raise ValueError(
                    "Argument `rows` must have numbers as scores. Received: "
                    f"rows[{place}][{name!r}]={_validate.shown(value)}"
                )
    return list(rows)


def aligned(lines):
    """Lists of cells as lines of text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        " ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def number(value):
    """A score as text; — stands for none."""
    return "—" if value is None or value != value else f"{value:.4f}"


def data_frame(rows):
    """A `pandas.DataFrame` of a list of dicts, or an error that says what to do."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "`to_pandas` needs pandas, which is not installed: pip install pandas. "
            "Without it, take the attribute `rows`, a list of dicts."
        ) from error
    return pandas.DataFrame(rows)
