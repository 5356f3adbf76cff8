"""Tables of results: as text, and as a `pandas.DataFrame`."""


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
