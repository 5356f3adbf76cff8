"""Calibration: confidence against accuracy, and levels against coverage."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10  # with fewer predictions in a bin, its accuracy is uncertain


def reliability(
    probabilities: Mapping[str, npt.ArrayLike],
    labels: npt.ArrayLike,
    axes: Any = None,
    bins: int = 15,
) -> "Figure":
    """Plot reliability diagrams, accuracy against confidence, one for each model.

    A dot shows a bin of predictions: their mean confidence and the share of correct
    ones. Its distance from the diagonal is the calibration gap. The line through the
    dot is the 95% interval of the share, by Wilson's formula. If it meets the diagonal,
    the gap may be chance. A dot is hollow if its bin has fewer than 10 predictions.
    Bars show the share of all predictions in each bin.

    Args:
        probabilities: dict from names to class probabilities, shape (N, C), or to the
            probability of class 1 of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        axes: matplotlib `Axes`, one for each model, or None for a new figure.
        bins: number of confidence bins, at least 1, also for the expected calibration
            error in the title. Defaults to 15.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `probabilities` is not a dict of probabilities, `labels` do not
            match them, `axes` has another length, or `bins` is not a positive integer.

    Example:

    >>> import numpy as np
    >>> figure = reliability({"SGD": np.array([[0.9, 0.1], [0.4, 0.6]])}, [0, 0])
    >>> figure.axes[0].get_title()
    'SGD\\nECE 0.350, accuracy 50.0%'
    """
    if not isinstance(probabilities, Mapping) or not probabilities:
        raise ValueError(
            "Argument `probabilities` must be a dict from names to class "
            'probabilities, such as {"ensemble": ensemble.predict(x)}. '
            f"Received: probabilities={probabilities!r}"
        )
    tables = {
        name: metrics.reliability(values, labels, bins)
        for name, values in probabilities.items()
    }
    panels = style.many_axes(axes, (1, len(tables)), size=(2.8, 3.3), sharey=True)[0]
    for index, (ax, name) in enumerate(zip(panels, tables, strict=True)):
        colour = style.COLOURS[index % len(style.COLOURS)]
        _reliability_panel(ax, tables[name], colour)
        ece = metrics.ece(probabilities[name], labels, bins)
        accuracy = metrics.accuracy(probabilities[name], labels)
        ax.set_title(f"{name}\nECE {ece:.3f}, accuracy {accuracy:.1%}")
        ax.set_xlabel("confidence, the probability\nof the predicted class")
    panels[0].set_ylabel("accuracy (dots)\nshare of all predictions (bars)")
    panels[0].legend(loc="upper left", edgecolor="none", fontsize="small")
    figure: Figure = panels[0].figure
    return figure


def interval_calibration(
    predictions: Mapping[str, metrics.PredictiveMixture],
    y: npt.ArrayLike,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot the observed share of targets in central intervals against their level.

    A calibrated prediction lies on the diagonal. Below it the intervals are too narrow
    and the prediction is overconfident. Above it they are too wide. The band holds 95%
    of the points of a calibrated prediction with as many independent targets.

    Args:
        predictions: dict from names to the results of `mh.predict_distribution`.
        y: finite targets, shape (N,) or (N, D).
        ax: matplotlib `Axes`. None makes a figure.

    Returns:
        The matplotlib `Axes`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `predictions` is not a dict of predictions, `y` does not fit them,
            or `ax` is no `Axes`.

    Example:

    >>> from keras_mhmcmc.evaluation.metrics import NormalMixture
    >>> prediction = NormalMixture([[0.0, 1.0, 2.0]], noise_std=1.0)
    >>> axes = interval_calibration({"network": prediction}, [0.5, 0.9, 3.0])
    >>> axes.get_xlabel()
    'level of the central interval'

    Reference: Kuleshov, Fenner and Ermon (2018), "Accurate uncertainties for deep
    learning using calibrated regression", Fig. 3.
    """
    is_dict = isinstance(predictions, Mapping) and len(predictions) > 0
    kind = metrics.PredictiveMixture
    if not is_dict or not all(isinstance(p, kind) for p in predictions.values()):
        raise ValueError(
            "Argument `predictions` must be a dict from names to predictive "
            'distributions, such as {"ensemble": mh.predict_distribution(ensemble, '
            f"x)}}. Received: predictions={_validate.shown(predictions)}"
        )
    curves = {name: one.calibration(y) for name, one in predictions.items()}
    ax = style.one_axes(ax)
    count = next(iter(predictions.values())).mean().size
    grid = np.linspace(0.0, 1.0, 101)
    band = 1.96 * np.sqrt(grid * (1.0 - grid) / count)
    ax.fill_between(
        grid,
        np.maximum(grid - band, 0.0),
        np.minimum(grid + band, 1.0),
        color=style.GREY,
        linewidth=0,
        label="95% of calibrated points",
    )
    ax.plot(grid, grid, color="0.3", linewidth=1, linestyle="--", label="ideal")
    for index, (name, curve) in enumerate(curves.items()):
        ax.plot(
            curve.expected,
            curve.observed,
            color=style.COLOURS[index % len(style.COLOURS)],
            marker=style.MARKERS[index % len(style.MARKERS)],
            markersize=4,
            label=name,
        )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    ax.set_xlabel("level of the central interval")
    ax.set_ylabel("share of targets inside")
    ax.legend(loc="upper left", edgecolor="none", fontsize="small")
    return ax


def _wilson(share: Array, count: Array) -> tuple[Array, Array]:
    """Return the ends of the 95% interval of shares among `count` examples."""
    z2 = 1.96**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    spread = np.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    half = np.sqrt(z2) * spread / (1 + z2 / count)
    return centre - half, centre + half


def _reliability_panel(ax: "Axes", table: metrics.Reliability, colour: str) -> None:
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
        low, high = _wilson(accuracy, table.count[group])
        interval = "95% interval" if label == "accuracy" else ""  # once in the legend
        ax.vlines(confidence, low, high, colour, linewidth=width, label=interval)
        # Draw over the frame, where many dots lie, and keep the layout as it is.
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
