"""Cells and tables of `docs/performance.md`, from the rows of the benchmarks."""

from performance_bars import BACKENDS

NOT_MEASURED = "-"


def figure(value, places=2):
    """A figure with thousands separators, or a dash."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if 0 < abs(value) < 0.1:
        places = 3
    return f"{value:.{1 if abs(value) >= 10 else places}f}"


def table(headers, lines):
    """Lines of a Markdown table."""
    cells = [headers, ["---"] * len(headers), *lines]
    return ["| " + " | ".join(line) + " |" for line in cells] + [""]


def find(results, backend, name, wanted):
    """The first row of a file that has these values, or an empty one."""
    rows = results.get((backend, name), {"rows": []})["rows"]
    for row in rows:
        if all(row.get(key) == value for key, value in wanted.items()):
            return row
    return {}


def pivot(results, name, keys, columns):
    """A table with a line for each row of the files, the backends side by side.

    Args:
        results: what `load` returns.
        name: of the file.
        keys: dict from the keys that name a row to headers.
        columns: dict from the keys of figures to headers.
    """
    present = [backend for backend in BACKENDS if (backend, name) in results]
    rows = {}
    for backend in present:
        for row in results[backend, name]["rows"]:
            if all(key in row for key in keys):
                rows.setdefault(tuple(row[key] for key in keys), {})[backend] = row
    if not rows:
        return ["Not measured.", ""]
    headers = list(keys.values())
    for backend in present:
        headers += [f"{BACKENDS[backend]}, {header}" for header in columns.values()]
    lines = []
    for names, found in rows.items():
        line = [figure(value) for value in names]
        for backend in present:
            row = found.get(backend, {})
            line += [figure(row.get(key)) for key in columns]
        lines.append(line)
    return table(headers, lines)


def growth(results, size):
    """The table of the cost against one size."""
    return pivot(
        results,
        "scaling",
        {"optimizer": "optimizer", size: size},
        {"ms": "ms", "exponent": "exponent"},
    )
