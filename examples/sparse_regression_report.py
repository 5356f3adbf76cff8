"""Tables, progress and pictures of `examples/sparse_regression.py`."""

import os
import time

import keras
import numpy as np
from matplotlib import pyplot
from scipy import special

from keras_mhmcmc import plots

SECONDS = 20  # between two lines of progress
STYLES = {
    "SGLD-SA": {"color": plots.style.COLOURS[0], "marker": "o"},
    "EMVS": {"color": plots.style.COLOURS[2], "marker": "s"},
    "ESM": {"color": plots.style.COLOURS[2], "marker": "s"},
    "SGLD": {"color": plots.style.WRONG, "marker": "^"},
}
LEGEND = {
    "linear": """\
MAE, MSE   mean absolute and mean squared error of the mean prediction on the test set
paper      the paper's MAE and MSE, one data set
beta 1-3   probability that a true predictor is in the slab, the lowest of the three
others     how many of the 997 others have a probability above 0.5, and above 0.9
ridge      the exact mean of SGLD's target: prior N(0, 1), the true noise
With several data sets: mean ± standard deviation of MAE and MSE, means of the rest.""",
    "logistic": """\
MAE, MSE   mean absolute and mean squared difference between the mean predicted
           probability and the label, 0 or 1, on the test set
plug-in    the same with the probability that the mean weights predict; most probably
           what the paper reports
paper      the paper's MAE and MSE, one data set; SGLD's is the mean of four cells
beta 1-3   probability that a true predictor is in the slab, the lowest of the three
others     how many of the 997 others have a probability above 0.5, and above 0.9
With several data sets: mean ± standard deviation of MAE and MSE, means of the rest.""",
}


class Progress(keras.callbacks.Callback):
    """A line now and then, with steps a second and the time left of this fit."""

    def __init__(self, name, steps, epoch_steps):
        super().__init__()
        self._name, self._steps, self._epoch_steps = name, steps, epoch_steps

    def on_train_begin(self, logs=None):
        self._shown = time.perf_counter()
        self._begin = None

    def on_epoch_end(self, epoch, logs=None):
        now, done = time.perf_counter(), (epoch + 1) * self._epoch_steps
        if self._begin is None:  # what came before was compiling, mostly
            self._begin, self._first = now, done
        elif now - self._shown >= SECONDS:
            self._shown = now
            rate = (done - self._first) / (now - self._begin)
            print(
                f"  {self._name}: {done:,} of {self._steps:,} steps, {rate:.0f} steps/s"
                f", {(self._steps - done) / rate:.0f} s left",
                flush=True,
            )


def scale_text(data, problem):
    """The errors between which a method's error should lie."""
    logits = data.x_test @ data.beta
    if problem.name == "logistic":
        perfect, nothing = special.expit(logits), np.full(len(logits), 0.5)
    else:
        perfect, nothing = logits, np.zeros(len(logits))
    texts = []
    for name, values in (("the true weights", perfect), ("zero weights", nothing)):
        error = values - data.y_test
        mae, mse = np.abs(error).mean(), np.square(error).mean()
        texts.append(f"{name} have a test MAE / MSE of {mae:.3g} / {mse:.3g}")
    return ", ".join(texts)


def pair_text(pair):
    """v0 and sigma, or a dash for a method without them."""
    return "—" if pair is None else f"{pair[0]:g}, {pair[1]:g}"


def counts(row):
    """Lowest probability of the true ones; how many others exceed 0.5 and 0.9."""
    true = len(row["beta_mean"])
    others = row["rho"][true:]
    return row["rho"][:true].min(), np.sum(others > 0.5), np.sum(others > 0.9)


def row_text(row):
    """One run as a line."""
    text = f"  {row['method']} ({pair_text(row['pair'])})"
    text += f": MAE {row['mae']:.3f}, MSE {row['mse']:.3f}"
    if row["rho"] is not None:
        lowest, half, most = counts(row)
        text += f"; true ones at least {lowest:.3f}, others above 0.5: {half}"
        text += f", above 0.9: {most}"
    return f"{text}; {row['seconds']:.0f} s"


def table(rows, problem):
    """A line for each pair and method."""
    is_logistic = problem.name == "logistic"
    lines = [["v0, sigma", "method", "MAE", "MSE", *["plug-in"] * is_logistic]]
    lines[0] += ["paper", "beta 1-3", "others", "seconds"]
    keys = list(dict.fromkeys((row["pair"], row["method"]) for row in rows))
    for pair, method in keys:
        mine = [r for r in rows if (r["pair"], r["method"]) == (pair, method)]
        cells = [pair_text(pair), method, spread(mine, "mae"), spread(mine, "mse")]
        if is_logistic:
            plug_in = [np.mean([r[f"plug_in_{e}"] for r in mine]) for e in MAE_MSE]
            cells.append(" / ".join(f"{error:.3f}" for error in plug_in))
        paper = problem.paper.get(pair, {}).get(method)
        cells.append("—" if paper is None else f"{paper[0]:.3g} / {paper[1]:.3g}")
        if mine[0]["rho"] is None:
            cells += ["—", "—"]
        else:
            lowest, half, most = np.mean([counts(row) for row in mine], axis=0)
            cells += [f"{lowest:.3f}", f"{half:.3g}, {most:.3g}"]
        cells.append(f"{np.mean([row['seconds'] for row in mine]):.0f}")
        lines.append(cells)
    return aligned(lines, left=2)


MAE_MSE = ("mae", "mse")


def spread(rows, key):
    """The mean of an error, and its standard deviation over data sets."""
    values = [row[key] for row in rows]
    text = f"{np.mean(values):.3g}"
    return text if len(values) == 1 else f"{text} ± {np.std(values, ddof=1):.2g}"


def estimates(rows, data):
    """The weights of the true predictors: the truth, and what each method says."""
    true = range(len(rows[0]["beta_mean"]))
    lines = [["first data set", *(f"beta {j + 1}" for j in true)]]
    lines.append(["truth", *(f"{data.beta[j]:.2f}" for j in true)])
    for row in rows:
        cells = [row["method"]]
        for mean, sd in zip(row["beta_mean"], row["beta_sd"], strict=True):
            cells.append(f"{mean:.2f} ± {sd:.2f}" if sd > 0 else f"{mean:.2f}")
        lines.append(cells)
    return f"{aligned(lines)}\n±  posterior standard deviation"


def aligned(lines, left=1):
    """Cells as an aligned table; the first columns are flush left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    return "\n".join(
        "  ".join(side(*cell) for side, *cell in zip(sides, line, widths, strict=True))
        for line in lines
    )


def save_picture(rows, data, problem, args):
    """Saves the picture of one pair and one data set, and says where."""
    rows = [row for row in rows if row["method"] in STYLES]
    figure, axes = pyplot.subplots(2, 3, figsize=(14, 8), layout="constrained")
    for j, ax in enumerate(axes[0]):
        draw_weight(rows, data, j, ax)
    axes[0, 0].legend()
    draw_inclusion([row for row in rows if row["rho"] is not None], axes[1, 0])
    for part, ax in zip(("train", "test"), axes[1, 1:], strict=True):
        draw_predictions(rows, data, part, problem, ax)
    v0, sigma = args.pairs[0]
    figure.suptitle(
        f"{problem.examples} examples, {data.x.shape[1]} predictors, the first three "
        f"have an effect; v0 = {v0:g}, sigma = {sigma:g}, {args.steps:,} steps"
    )
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure.savefig(args.output, dpi=120)
    pyplot.close(figure)
    print(f"\nsaved {args.output}")


def draw_weight(rows, data, j, ax):
    """Posterior density of a weight, point estimates as lines, and the truth."""
    for row in rows:
        style = STYLES[row["method"]]
        values = row["beta"][:, j]
        if len(values) > 1:
            ax.hist(
                values,
                bins=40,
                weights=row["weights"],
                density=True,
                color=style["color"],
                alpha=0.5,
                label=row["method"],
            )
        else:
            ax.axvline(
                values[0], color=style["color"], linestyle="-.", label=row["method"]
            )
    ax.axvline(data.beta[j], color="black", linestyle="--", label="truth")
    ax.set(xlabel="weight", ylabel="posterior density")
    ax.set_title(f"Weight of predictor {j + 1}")


def draw_inclusion(rows, ax):
    """Probability of each predictor to belong to the slab."""
    for row in rows:
        style = STYLES[row["method"]]
        true = len(row["beta_mean"])
        number = np.arange(1, len(row["rho"]) + 1)
        ax.plot(
            number,
            row["rho"],
            linestyle="",
            markersize=4,
            markerfacecolor="none",
            label=row["method"],
            **style,
        )
    ax.axvspan(0.7, true + 0.4, color=plots.style.GREY, label="the true three")
    ax.set(xscale="log", ylim=(-0.03, 1.03), xlabel="predictor")
    ax.set(ylabel="inclusion probability", title="Which predictors matter")
    ax.legend()


def draw_predictions(rows, data, part, problem, ax):
    """Mean predictions against the truth, in the training or the test set."""
    x, y = (data.x, data.y) if part == "train" else (data.x_test, data.y_test)
    shown = slice(200)  # more would hide one another
    observed = y[shown]
    if problem.name == "logistic":
        observed = special.expit(x[shown] @ data.beta)
    for row in rows[::-1]:
        ax.plot(
            observed,
            row[part][shown],
            linestyle="",
            markersize=4,
            alpha=0.6,
            label=row["method"],
            **STYLES[row["method"]],
        )
    ends = [observed.min(), observed.max()]
    ax.plot(ends, ends, color="black", linestyle="--", label="equal")
    if problem.name == "logistic":
        ax.set(xlabel="probability by the true weights")
        ax.set(ylabel="mean predicted probability")
    else:
        ax.set(xlabel="observed response", ylabel="mean prediction")
    examples = "training" if part == "train" else "test"
    ax.set_title(f"{len(observed)} {examples} examples")
    ax.legend()
