"""Reliability diagrams: whether a model is as often right as it says."""

import numpy as np

from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.plots import style

FEW = 10  # predictions in a bin: too few to tell their accuracy


def reliability(probabilities, labels, axes=None, bins=15):
    """Reliability diagrams: accuracy against confidence, a panel for each model.

    A dot is a bin of predictions: their mean confidence, and the share of them that is
    right. The line from it to the diagonal is the gap in calibration. A dot is hollow
    if fewer than 10 predictions stand behind it. Bars are the share of all predictions
    in each bin.

    Args:
        probabilities: dict from names to class probabilities of shape (N, C), or (N,)
            or (N, 1) for class 1 of two.
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        axes: sequence of matplotlib `Axes`, one for each model; None makes a figure.
        bins: number of bins of confidence, at least 1; the expected calibration error
            in the title is taken over the same bins.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `probabilities` is no dict of probabilities, `labels` do not fit
            them, `axes` has another length, or `bins` is no positive integer.

    Example:

    >>> import numpy as np
    >>> figure = reliability({"SGD": np.array([[0.9, 0.1], [0.4, 0.6]])}, [0, 0])
    >>> figure.axes[0].get_title()
    'SGD\\nECE 0.350, accuracy 50.0%'
    """
    if not isinstance(probabilities, dict) or not probabilities:
        raise ValueError(
            "Argument `probabilities` must be a dict from names to class "
            'probabilities, such as {"ensemble": ensemble.predict(x)}. '
            f"Received: probabilities={probabilities!r}"
        )
    tables = {
        name: metrics.reliability(values, labels, bins)
        for name, values in probabilities.items()
    }
    axes = style.many_axes(axes, (1, len(tables)), size=(2.8, 3.3), sharey=True)[0]
    for index, (ax, name) in enumerate(zip(axes, tables, strict=True)):
        colour = style.COLOURS[index % len(style.COLOURS)]
        _reliability_panel(ax, tables[name], colour)
        ece = metrics.ece(probabilities[name], labels, bins)
        accuracy = metrics.accuracy(probabilities[name], labels)
        ax.set_title(f"{name}\nECE {ece:.3f}, accuracy {accuracy:.1%}")
        ax.set_xlabel("confidence, the probability\nof the predicted class")
    axes[0].set_ylabel("accuracy (dots)\nshare of all predictions (bars)")
    axes[0].legend(loc="upper left", edgecolor="none", fontsize="small")
    return axes[0].figure


def _reliability_panel(ax, table, colour):
    bins = len(table.count)
    share = table.count / table.count.sum()
    centres = (np.arange(bins) + 0.5) / bins
    ax.bar(centres, share, 1 / bins, color=style.GREY, edgecolor="white", label="share")
    ax.plot([0, 1], [0, 1], color="0.3", linewidth=1, linestyle="--", label="ideal")
    is_few = table.count < FEW
    groups = {
        "accuracy": ((table.count > 0) & ~is_few, colour, 2.0),
        f"accuracy, n < {FEW}": ((table.count > 0) & is_few, "white", 0.8),
    }
    for label, (group, fill, width) in groups.items():
        confidence, accuracy = table.confidence[group], table.accuracy[group]
        gap = None if label != "accuracy" else "gap"
        ax.vlines(confidence, confidence, accuracy, colour, linewidth=width, label=gap)
        # On top of the frame, where many dots lie; the layout need not know of that.
        (dots,) = ax.plot(
            confidence,
            accuracy,
            linestyle="",
            marker="o",
            color=colour,
            markerfacecolor=fill,
            clip_on=False,
            zorder=3,
            label=label,
        )
        dots.set_in_layout(False)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    ax.set_aspect("equal")
