"""Calibration of predictions, and predictive distributions along one input."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import as_finite
from keras_mhmcmc.evaluation.checks import as_targets
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10  # with fewer predictions in a bin, its accuracy is uncertain
_LEGEND: dict[str, Any] = dict(loc="upper left", edgecolor="none", fontsize="small")
_IDEAL: dict[str, Any] = dict(color="0.3", linewidth=1, linestyle="--", label="ideal")


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
    tables = [metrics.reliability(p, labels, bins) for p in probabilities.values()]
    shape = (1, len(tables))
    figure, [panels] = style.many_axes(axes, shape, size=(2.8, 3.3), sharey=True)
    for index, (name, values) in enumerate(probabilities.items()):
        ax = panels[index]
        _reliability_panel(ax, tables[index], style.colour(index))
        ece = metrics.ece(values, labels, bins)
        accuracy = metrics.accuracy(values, labels)
        ax.set_title(f"{name}\nECE {ece:.3f}, accuracy {accuracy:.1%}")
        ax.set_xlabel("confidence, the probability\nof the predicted class")
    panels[0].set_ylabel("accuracy (dots)\nshare of all predictions (bars)")
    panels[0].legend(**_LEGEND)
    return figure


def _reliability_panel(ax: "Axes", table: metrics.Reliability, colour: str) -> None:
    bins = len(table.count)
    share = table.count / table.count.sum()
    centres = (np.arange(bins) + 0.5) / bins
    ax.bar(centres, share, 1 / bins, color=style.GREY, edgecolor="white", label="share")
    ax.plot([0, 1], [0, 1], **_IDEAL)
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
        looks: dict[str, Any] = dict(
            color=colour, markerfacecolor=fill, clip_on=False, zorder=3
        )
        (dots,) = ax.plot(confidence, accuracy, "o", **looks, label=label)
        dots.set_in_layout(False)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    ax.set_aspect("equal")


def _wilson(share: Array, count: Array) -> tuple[Array, Array]:
    """Return the ends of the 95% interval of shares among `count` examples."""
    z2 = 1.96**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    spread = np.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    half = np.sqrt(z2) * spread / (1 + z2 / count)
    return centre - half, centre + half


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
    low, high = np.maximum(grid - band, 0.0), np.minimum(grid + band, 1.0)
    looks: dict[str, Any] = dict(
        color=style.GREY, linewidth=0, label="95% of calibrated points"
    )
    ax.fill_between(grid, low, high, **looks)
    ax.plot(grid, grid, **_IDEAL)
    for index, (name, curve) in enumerate(curves.items()):
        looks = style.of_line(index) | {"linestyle": "-", "markersize": 4}
        ax.plot(curve.expected, curve.observed, **looks, label=name)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    ax.set_xlabel("level of the central interval")
    ax.set_ylabel("share of targets inside")
    ax.legend(**_LEGEND)
    return ax


def predictive(
    prediction: metrics.PredictiveMixture,
    x: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    axes: Any = None,
    target: int = 0,
) -> "Figure":
    """Plot the mean and the 50% and 90% intervals of a prediction, and their causes.

    The upper panel has data, mean and central intervals. The lower panel splits the
    standard deviation: the noise, which stays with more data, and the difference
    between members, which shrinks with it. The squares of the two add up to the square
    of the total.

    Args:
        prediction: result of `mh.predict_distribution` for N examples.
        x: finite numbers to plot against, shape (N,) or (N, 1), such as one column of
            the inputs. They may stand in any order.
        y: targets, shape (N, D), or (N,) if D is 1. Defaults to None: no data.
        axes: two matplotlib `Axes`, the upper and the lower, or None for a new figure.
        target: position of the target to plot, at least 0. Defaults to 0.

    Example:

    >>> from keras_mhmcmc.evaluation.metrics import NormalMixture
    >>> prediction = NormalMixture([[0.0, 1.0], [0.5, 2.0]], noise_std=0.5)
    >>> figure = predictive(prediction, x=[0.0, 1.0], y=[0.2, 1.4])
    >>> figure.axes[1].get_ylabel()
    'standard deviation'

    Reference: Depeweg et al. (2018), "Decomposition of uncertainty in Bayesian deep
    learning for efficient and risk-sensitive learning", for the two parts.
    """
    kind = metrics.PredictiveMixture
    hint = "a result of `mh.predict_distribution`"
    _validate.instance("prediction", prediction, kind, hint)
    mean = prediction.mean()
    examples, targets = mean.shape
    target = _validate.integer("target", target, 0)
    if target >= targets:
        raise ValueError(
            f"Argument `target` must be less than {targets}, the number of targets. "
            f"Received: target={target}"
        )
    places = as_finite("x", x, ranks=(1, 2), axes="(examples,)")
    if places.shape not in ((examples,), (examples, 1)):
        raise ValueError(
            f"Argument `x` must have one number for each of {examples} examples. Pass "
            f"one column of the inputs. Received: shape {places.shape}"
        )
    order = np.argsort(places.ravel())
    places = places.ravel()[order]
    figure, panels = style.many_axes(axes, (2, 1), size=(6.0, 2.9))
    upper, lower = panels.ravel()
    blue, orange = style.COLOURS[:2]
    for level, strength in ((0.9, 0.2), (0.5, 0.4)):
        low, high = (end[order, target] for end in prediction.interval(level))
        looks: dict[str, Any] = dict(color=blue, alpha=strength, linewidth=0)
        upper.fill_between(places, low, high, **looks, label=f"{level:.0%} interval")
    upper.plot(places, mean[order, target], color=blue, label="mean")
    if y is not None:
        values = as_targets("y", y, mean.shape)[order, target]
        upper.plot(places, values, "k.", markersize=3, label="data", zorder=3)
    upper.set_ylabel("target")
    parts = {
        "total": (prediction.std(), "0.2", "-"),
        "noise": (prediction.noise_std(), blue, "--"),
        "members": (prediction.member_std(), orange, "-."),
    }
    for name, (values, colour, dashes) in parts.items():
        line = values[order, target]
        lower.plot(places, line, color=colour, linestyle=dashes, label=name)
    lower.set_ylim(bottom=0.0)
    lower.set_ylabel("standard deviation")
    lower.set_xlabel("x")
    for panel in (upper, lower):
        above: dict[str, Any] = dict(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4
        )
        panel.legend(frameon=False, fontsize="small", **above)
    return figure
