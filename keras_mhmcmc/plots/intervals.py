"""Predictive distributions along one input: bands, and where their width comes from."""

from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import as_finite
from keras_mhmcmc.evaluation.checks import as_targets
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: an argument is outside its range or has another shape.

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
    upper, lower = style.many_axes(axes, (2, 1), size=(6.0, 2.9)).ravel()
    blue, orange = style.COLOURS[:2]
    for level, strength in ((0.9, 0.2), (0.5, 0.4)):
        low, high = (end[order, target] for end in prediction.interval(level))
        label = f"{level:.0%} interval"
        style_of_band = dict(color=blue, alpha=strength, linewidth=0, label=label)
        upper.fill_between(places, low, high, **style_of_band)
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
        above = dict(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
        panel.legend(frameon=False, fontsize="small", **above)
    figure: Figure = upper.figure
    return figure
