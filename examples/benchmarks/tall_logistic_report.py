"""The tables of `tall_logistic.py`."""

CHAINS = 16
HEADS = (
    "rows",
    "kernel",
    "examples of a step",
    "acceptance",
    "examples of an accepted step",
    "smallest ESS",
    "ESS of a million examples",
    "shift of the means",
    "standard deviation",
)
EXACT = ("TunaMH", "PoissonMH", "SMH", "random walk", "HMC")
# The others stand in the second table.


def tables(rows):
    """Lines of each table, by name."""
    compared = [row for row in rows if "kernel" in row]
    exact = [row for row in compared if row["kernel"].startswith(EXACT)]
    others = [row for row in compared if not row["kernel"].startswith(EXACT)]
    return {
        "exact": of_kernels(exact),
        "approximate": of_kernels(others),
        "scaling": of_sizes([row for row in rows if "scaling" in row]),
        "digits": of_digits([row for row in rows if "digits" in row]),
    }


def table(heads, cells):
    """Lines of a table."""
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *cells)]


def count(value):
    """A number of examples."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def shown(value):
    """A number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def examples(row):
    """All examples that the chains evaluated after the burn-in."""
    kept = row["steps"] - row["steps"] // 10
    return CHAINS * kept * row["batch_size"]


def of_kernels(rows):
    """A line for each kernel."""
    cells = [
        [
            f"{row['rows']:,}",
            row["kernel"],
            count(row["batch_size"]),
            f"{row['acceptance']:.2f}",
            count(row["batch_size"] / row["acceptance"]),
            f"{row['ess']:,.0f}",
            shown(1e6 * row["ess"] / examples(row)),
            f"{row['shift']:.2f} (largest {row['largest_shift']:.1f})",
            f"{row['ratio']:.3f} ± {row['error']:.3f}",
        ]
        for row in sorted(rows, key=lambda row: (row["rows"], row["kernel"]))
    ]
    return table(HEADS, cells)


def of_sizes(rows):
    """A line for each number of rows, with both orders of SMH."""
    heads = ["rows"]
    names = sorted({row["scaling"] for row in rows})
    for name in names:
        heads += [f"{name.removeprefix('SMH of ')}: examples of a step", "acceptance"]
    cells = []
    for size in sorted({row["rows"] for row in rows}):
        line = [f"{size:,}"]
        for name in names:
            (row,) = (r for r in rows if (r["scaling"], r["rows"]) == (name, size))
            line.append(f"{row['batch_size']:.2f} ± {row['error']:.2f}")
            line.append(f"{row['acceptance']:.3f}")
        cells.append(line)
    return table(heads, cells)


def of_digits(rows):
    """A line for the digits 7 and 9."""
    heads = ["rows", "kernel", "examples of a step", "share of the rows", "acceptance"]
    cells = [
        [
            f"{row['rows']:,}",
            row["digits"],
            count(row["batch_size"]),
            f"{100 * row['batch_size'] / row['rows']:.1f}%",
            f"{row['acceptance']:.2f}",
        ]
        for row in rows
    ]
    return table(heads, cells)


def filled(text, tables):
    """A page with the lines of each table between its marks."""
    for name, lines in tables.items():
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("\n<!-- end -->")
        if not end or mark in after:
            raise ValueError(f"The page must have one place for {name!r}.")
        text = f"{before}{mark}\n" + "\n".join(lines) + f"\n{end}{after}"
    return text
