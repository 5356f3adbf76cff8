"""Prints what the suite found: each planted bug, with and without it."""

LINE = "{:42}{:30}{:28}{:>9}{:>9}{:>9}{:>9}"


def pytest_terminal_summary(terminalreporter):
    found = [
        (kind, values)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for kind, values in report.user_properties
        if kind in ("bug", "law")
    ]
    laws = {tuple(values[:3]): values[3:] for kind, values in found if kind == "law"}
    bugs = [values for kind, values in found if kind == "bug"]
    if not bugs:
        return
    terminalreporter.section("planted bugs")
    terminalreporter.line(
        "Largest deviation in standard errors, and independent draws of a chain; the\n"
        "suite fails above 4.5, and below 1.5."
    )
    header = ("deviation", "draws", "without", "draws")
    terminalreporter.line(LINE.format("bug", "planted in", "caught by", *header))
    for name, where, sampler, target, length, deviation, _, mixing in sorted(bugs):
        healthy = laws.get((sampler, target, length))
        columns = [_short(deviation), _short(mixing)]
        columns += [_short(healthy[0]), _short(healthy[2])] if healthy else ["-", "-"]
        cell = f"{sampler} x {target}"
        terminalreporter.line(LINE.format(name, where, cell, *columns))


def _short(value):
    return f"{value:.1f}" if value < 1e4 else f"{value:.0e}"
