"""Tables and the picture of `examples/fidelity.py`."""

import math
import re

import numpy as np

BACKEND = "jax"  # of the tables; `backends` has all
GROUPS = (
    ("HMC", "MHBT, all data", "TunaMH", "SMH", "AMAGOLD"),
    (
        "Barker's test",
        "SGLD",
        "SGLD, control variates",
        "SGHMC",
        "SGHMC, BAOAB",
        "SGNHT",
        "SGMCLMC",
        "CSGLD",
        "CSGHMC",
        "PSGLD",
        "MCLMC",
    ),
    (
        "HMC, T = N/m",
        "MHBT, random walk",
        "MHBT, Langevin",
        "MINT",
        "RSGLD, normalized",
        "RSGLD",
    ),
    ("deep ensemble", "SWAG", "last-layer Laplace"),
)
ORDER = tuple(name for group in GROUPS for name in group)
TITLES = {
    "logistic": "logistic regression\n31 weights, 455 examples",
    "softmax": "softmax regression\n330 weights, 1,437 examples",
    "sine": "network 1-16-1\n49 weights, 40 examples",
    "yacht": "network 6-50-1\n401 weights, 277 examples",
    "digits": "network 64-16-10\n1,210 weights, 1,437 examples",
}
HEADS = (
    "sampler",
    "T",
    "rate",
    "passes",
    "accepted",
    "R-hat",
    "W1",
    "mean error",
    "if exact",
    "spread",
    "predicted",
    "seen",
)
LARGEST_R_HAT = 1.1
ERRORS = 3.0  # that a spread of 1 may be away
FACTOR = 1.5  # of the mean error that exact draws would have
DIAMOND = {
    "marker": "D",
    "markersize": 10,
    "markerfacecolor": "none",
    "color": "black",
}
COLORS = {"agrees": "tab:green", "narrow": "tab:blue", "wide": "tab:orange"}


def runs_of(rows, problem, sampler, backend=BACKEND):
    """The rows of a sampler, by group."""
    key = (problem, sampler, backend)
    names = ("problem", "sampler", "backend")
    found = [row for row in rows if tuple(row[name] for name in names) == key]
    return sorted(found, key=lambda row: row["group"])


def spread_of(runs):
    """Mean ratio of standard deviations, and its Monte Carlo error."""
    ratio = np.mean([run["sd_ratio"] for run in runs])
    own = np.mean([run["sd_ratio_error"] ** 2 for run in runs]) / len(runs)
    # All groups have the same reference.
    return ratio, math.sqrt(own + (ratio * runs[0]["reference_error"]) ** 2)


def mean_errors(runs):
    """Root mean squares of the mean error, and of that of exact draws."""
    names = ("mean_error", "mean_error_if_exact")
    return [math.sqrt(np.mean([run[name] ** 2 for run in runs])) for name in names]


def seen(runs):
    """The finding, in a word or two."""
    r_hats = [run["r_hat"] for run in runs if run["r_hat"] is not None]
    ratio, error = spread_of(runs)
    found = []
    if abs(ratio - 1.0) > ERRORS * error:
        percent = 100.0 * abs(ratio - 1.0)
        size = f"{percent:.0f}%" if percent >= 0.95 else f"{percent:.1f}%"
        found.append(f"{size} too {'wide' if ratio > 1.0 else 'narrow'}")
    error, exact = mean_errors(runs)
    if error > FACTOR * exact:
        found.append("mean shifted")
    if r_hats and max(r_hats) > LARGEST_R_HAT:
        found.append("not converged")
    return ", ".join(found) or "agrees"


def mean_and_error(values, digits):
    """The mean over groups with its standard error, or a dash."""
    if any(value is None for value in values):
        return "—"
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{mean} ± {error:.{digits}f}"


def mean_of(runs, name, digits):
    """The mean of a number over groups to some digits, or a dash."""
    values = [run[name] for run in runs]
    if any(value is None for value in values):
        return "—"
    return f"{np.mean(values):.{digits}g}"


def line(runs, name):
    """A line of a table."""
    columns = {key: [run[key] for run in runs] for key in runs[0]}
    error, exact = mean_errors(runs)
    spread, spread_error = spread_of(runs)
    r_hats = [value for value in columns["r_hat"] if value is not None]
    cells = [
        name,
        mean_of(runs, "temperature", 3),
        mean_of(runs, "rate", 2),
        f"{round(np.mean(columns['passes']), -1):,.0f}",
        mean_of(runs, "acceptance", 2),
        f"{max(r_hats):.3g}" if r_hats else "—",
        mean_and_error(columns["w1"], 4),
        f"{error:.1f}",
        f"{exact:.1f}",
        f"{spread:.3f} ± {spread_error:.3f}",
        mean_and_error(columns["predicted"][:1], 3),
        seen(runs),
    ]
    return "| " + " | ".join(cells) + " |"


def tables(rows):
    """Lines of all tables, by the name of their place in the page."""
    head = ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
    found = {}
    for problem in TITLES:
        runs = {name: runs_of(rows, problem, name) for name in ORDER}
        lines = [line(each, name) for name, each in runs.items() if each]
        if lines:
            found[problem] = head + lines
    lines = []
    names = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
    others = {(r["problem"], r["sampler"]) for r in rows if r["backend"] != BACKEND}
    for problem in TITLES:
        for sampler in ORDER:
            for backend, name in names.items():
                runs = runs_of(rows, problem, sampler, backend)
                if runs and (problem, sampler) in others:
                    lines.append(line(runs, f"{sampler}, {name}"))
    return found | ({"backends": head + lines} if lines else {})


def filled(text, tables):
    """A page with the lines of each table between its marks."""
    for name, lines in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end -->)"
        body = "\n" + "\n".join(lines) + "\n"
        text, count = re.subn(
            pattern, lambda m, body=body: m[1] + body + m[2], text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"The page must have one place for {name!r}, not {count}.")
    return text


def draw(rows, path):
    """Draw the spread of each sampler over the posterior's, a panel for each model."""
    from matplotlib import pyplot

    problems = [name for name in TITLES if any(r["problem"] == name for r in rows)]
    figure, axes = pyplot.subplots(
        1,
        len(problems),
        figsize=(3.7 * len(problems) + 1.3, 7.0),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    places = {name: -place for place, name in enumerate(ORDER)}
    for axis, problem in zip(axes[0], problems, strict=True):
        axis.axvline(1.0, color="black", linewidth=1.0)
        for name, place in places.items():
            runs = runs_of(rows, problem, name)
            if not runs:
                continue
            ratio, error = spread_of(runs)
            is_off = abs(ratio - 1.0) > ERRORS * error
            side = ("wide" if ratio > 1.0 else "narrow") if is_off else "agrees"
            lost = "not converged" in seen(runs)
            axis.errorbar(
                ratio,
                place,
                xerr=ERRORS * error,
                marker="o",
                markersize=6,
                color=COLORS[side],
                markerfacecolor="white" if lost else COLORS[side],
                capsize=3,
                zorder=3,
            )
            if runs[0]["predicted"] is not None:
                axis.plot(
                    runs[0]["predicted"],
                    place,
                    zorder=2,
                    **DIAMOND,
                )
        axis.set_title(TITLES[problem], fontsize=10)
        axis.set_xlabel("spread of predictions / posterior's")
        axis.grid(axis="x", alpha=0.3)
        for group in GROUPS[1:]:
            edge = places[group[0]] + 0.5
            axis.axhline(edge, color="gray", linewidth=0.8, linestyle=":")
    axes[0][0].set_xscale("log")
    low, high = axes[0][0].get_xlim()
    ticks = [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5) if low < tick < high]
    axes[0][0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0][0].minorticks_off()
    axes[0][0].set_yticks(list(places.values()), list(places))
    dot = {"marker": "o", "linestyle": "", "markersize": 6}
    kinds = [
        ("as wide as the posterior", dot | {"color": COLORS["agrees"]}),
        ("too narrow", dot | {"color": COLORS["narrow"]}),
        ("too wide", dot | {"color": COLORS["wide"]}),
        ("chains do not agree yet", dot | {"color": "gray", "markerfacecolor": "w"}),
        ("predicted by a formula", dot | DIAMOND),
    ]
    handles = [pyplot.Line2D([], [], label=name, **kind) for name, kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=9)
    figure.suptitle(
        "Standard deviation of the predictions, divided by the posterior's (NUTS).\n"
        "Bars: three Monte Carlo errors"
    )
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
