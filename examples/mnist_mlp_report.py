"""Tables and pictures of `examples/mnist_mlp.py`."""

import os

import numpy as np
from matplotlib import pyplot
from matplotlib import ticker

from keras_mhmcmc import plots


def table1_text(rows):
    """A line for each learning rate."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    head = ["rate"]
    for name in methods:
        head += [f"{name} mean (sd)", "lowest"]
    lines = [[*head, "acceptance", "beta"]]
    for rate in dict.fromkeys(row["rate"] for row in rows):
        cells = [f"{rate:g}"]
        here = {row["method"]: row for row in rows if row["rate"] == rate}
        for name in methods:
            last = here[name]["errors"][-1]
            sd = f"{np.std(last, ddof=1):.2f}" if len(last) > 1 else "—"
            cells += [f"{np.mean(last):.2f} ({sd})", f"{np.min(last):.2f}"]
        rsgld = here["RSGLD"]
        lines.append([*cells, f"{rsgld['acceptance']:.2f}", f"{rsgld['beta']:.2f}"])
    return aligned(lines)


TABLE1_LEGEND = """\
Test error in % after the last epoch: mean and standard deviation over the chains, and
the lowest of them (the paper's table has the median of 30).
acceptance  share of RSGLD's forward proposals that were accepted, last epoch
beta        factor of the backward proposal's noise, which the sampler adapts
A chain of RSGLD all of whose proposals are rejected stands still, at a high error.
All chains of a method see the same batches; the paper's rounds have their own."""


def fig3_text(rows):
    """A line for each method."""
    lines = [["method", "test error", "held-out error", "acceptance"]]
    for row in rows:
        rate = "—" if row["acceptance"] is None else f"{row['acceptance']:.2f}"
        numbers = [f"{row['errors'][-1]:.2f}", f"{row['held_out']:.2f}"]
        lines.append([row["method"], *numbers, rate])
    return aligned(lines)


FIG3_LEGEND = """\
Errors in % after the last epoch, of the mean prediction over the second half of the
epochs' samples for SGLD, SGHMC and MINT, over ten rounds for CMINT, of the last
iterate for SGD and SGD-M.
acceptance  share of forward proposals that were accepted, mean over the epochs
MINT and CMINT have reversible Langevin proposals. The paper's plain ones are hardly
ever accepted with this many weights: after 6 epochs the held-out error is 66%."""


def aligned(lines):
    """Cells as an aligned table; the first line is the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def draw(results, title, path):
    """Saves the picture and says where."""
    count = 2 * ("table1" in results) + ("fig3" in results)
    figure, axes = pyplot.subplots(
        1, count, figsize=(5 * count, 4.2), squeeze=False, layout="constrained"
    )
    axes = list(axes[0])
    if "table1" in results:
        draw_table1(results["table1"], axes.pop(0), axes.pop(0))
    if "fig3" in results:
        draw_fig3(results["fig3"], axes.pop(0))
    figure.suptitle(title)
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    print(f"saved {path}")


def line_style(index, points):
    """Colour, marker and dashes of a line."""
    return {
        "markevery": max(points // 10, 1),
        "color": plots.style.COLOURS[index % len(plots.style.COLOURS)],
        "marker": plots.style.MARKERS[index % len(plots.style.MARKERS)],
        "linestyle": plots.style.DASHES[index % len(plots.style.DASHES)],
        "markersize": 5,
    }


def draw_table1(rows, lowest, examples):
    """Lowest error against the rate; a chain's error by epoch at its best rate."""
    for index, name in enumerate(dict.fromkeys(row["method"] for row in rows)):
        mine = [row for row in rows if row["method"] == name]
        rates = [row["rate"] for row in mine]
        best = [row["errors"][-1].min() for row in mine]
        lowest.plot(rates, best, label=name, **line_style(index, len(rates)))
        chosen = min(mine, key=lambda row: row["held_out"])
        by_epoch = chosen["errors"][:, 0]
        examples.plot(
            np.arange(1, len(by_epoch) + 1),
            by_epoch,
            label=f"{name}, rate {chosen['rate']:g}",
            **line_style(index, len(by_epoch)),
        )
    lowest.set(xlabel="learning rate", ylabel="lowest test error, %", xscale="log")
    lowest.set_xticks(rates, [f"{rate:g}" for rate in rates])
    lowest.xaxis.set_minor_locator(ticker.NullLocator())
    lowest.set_title("Best of the chains")
    lowest.grid(alpha=0.3)
    lowest.legend()
    by_epoch_axes(examples, "One chain, rate of the best held-out error")


def draw_fig3(rows, ax):
    """Test error by epoch, and the last one of CMINT as a dashed line."""
    for index, row in enumerate(rows):
        if row["method"] == "CMINT":
            last = row["errors"][-1]
            ax.axhline(last, color="black", linestyle="--", label="CMINT, at the end")
        else:
            style = line_style(index, len(row["epochs"]))
            ax.plot(row["epochs"], row["errors"], label=row["method"], **style)
    by_epoch_axes(ax, "Perceptron with 200 hidden units")


def by_epoch_axes(ax, title):
    """Names and ticks of errors, on a logarithmic scale, against epochs."""
    ax.set(xlabel="epoch", ylabel="test error, %", yscale="log", title=title)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    ax.yaxis.set_minor_locator(ticker.NullLocator())
    ax.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    ax.grid(alpha=0.3)
    ax.legend()
