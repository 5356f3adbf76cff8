"""Tables and the picture of `examples/robustness.py`."""

import math

import numpy as np
from matplotlib import pyplot

ATTACKS = ("transfer", "FGSM", "Square", "PGD", "APGD", "APGD margin", "strongest")
TITLES = {
    "mnist": "MNIST, perceptron",
    "fashion": "Fashion-MNIST, two convolutions",
    "mnist_cnn": "MNIST, two convolutions",
    "fashion_mlp": "Fashion-MNIST, perceptron",
    "digits": "digits, perceptron",
}


def runs_of(rows, problem, method):
    """The rows of a method, by seed."""
    return {
        row["seed"]: row
        for row in rows
        if (row["problem"], row["method"]) == (problem, method)
    }


def table(rows, problem, epsilon, methods):
    """Lines of a table: means over seeds, and paired differences to SGD."""
    base = runs_of(rows, problem, "SGD")
    if not base:
        return []
    heads = ["method", "members", "clean", "NLL", *ATTACKS, "strongest minus SGD's"]
    # SGD's row has the seeds of the others, once another method has run.
    common = set.union(*(set(runs_of(rows, problem, m)) for m in methods if m != "SGD"))
    base = {seed: row for seed, row in base.items() if seed in common or not common}
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for method in methods:
        runs = runs_of(rows, problem, method)
        seeds = sorted(runs.keys() & base.keys())
        if not seeds:
            continue
        cells = [method, str(runs[seeds[0]]["members"])]
        under = {s: runs[s]["attacks"][epsilon] for s in seeds}
        cells.append(f"{np.mean([under[s]['clean'] for s in seeds]):.3f}")
        cells.append(f"{np.mean([runs[s]['nll'] for s in seeds]):.3f}")
        cells += [f"{np.mean([under[s][name] for s in seeds]):.3f}" for name in ATTACKS]
        less = np.array(
            [
                under[s]["strongest"] - base[s]["attacks"][epsilon]["strongest"]
                for s in seeds
            ]
        )
        cells.append("—" if method == "SGD" else paired(less))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def paired(less):
    """The mean of differences, with its standard error."""
    if len(less) == 1:
        return f"{less[0]:+.3f} (one seed)".replace("-", "−")
    error = less.std(ddof=1) / math.sqrt(len(less))
    return f"{less.mean():+.3f} ± {error:.3f}".replace("-", "−")


def draw(rows, methods, problems, path):
    """Draw accuracy minus that of SGD against the attack, a panel for each problem."""
    names = [name for name in TITLES if runs_of(rows, name, "SGD")]
    columns = min(len(names), 2)
    rows_of_panels = -(-len(names) // columns)
    figure, axes = pyplot.subplots(
        rows_of_panels,
        columns,
        figsize=(5.5 * columns, 4.0 * rows_of_panels + 0.3),
        squeeze=False,
        layout="constrained",
    )
    places = np.arange(len(ATTACKS) + 1)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, problem in zip(axes.flat, names, strict=False):
        epsilon = f"{problems[problem].strengths[0]:g}"
        base = runs_of(rows, problem, "SGD")
        others = [method for method in methods if method != "SGD"]
        # A method has one colour and place, whatever is missing in a panel.
        for number, method in enumerate(others):
            runs = runs_of(rows, problem, method)
            if not runs:
                continue
            seeds = sorted(runs.keys() & base.keys())
            less = np.array(
                [
                    [
                        runs[s]["attacks"][epsilon][name]
                        - base[s]["attacks"][epsilon][name]
                        for name in ("clean", *ATTACKS)
                    ]
                    for s in seeds
                ]
            )
            error = (
                less.std(axis=0, ddof=1) / len(seeds) ** 0.5 if len(seeds) > 1 else 0
            )
            axis.errorbar(
                places + 0.05 * (number - len(others) / 2),
                less.mean(axis=0),
                np.broadcast_to(error, places.shape),
                color=f"C{number}",
                marker="o",
                markersize=4,
                linewidth=1.2,
                capsize=2,
                label=method,
            )
        axis.axhline(0.0, color="black", linewidth=1.0)
        axis.set_xticks(places, ("no attack", *ATTACKS), rotation=35, ha="right")
        axis.set_title(f"{TITLES[problem]}, strength {epsilon}")
        axis.set_ylabel("accuracy minus that of SGD")
        axis.grid(alpha=0.3)
    handles = {}
    for axis in axes.flat:
        found, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    shown = [method for method in methods if method in handles]
    figure.legend(
        [handles[method] for method in shown],
        shown,
        loc="outside lower center",
        ncols=4,
        fontsize=9,
    )
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
