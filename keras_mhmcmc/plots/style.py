"""Colours, and checks of matplotlib `Axes`, that all plots share."""

from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which colour-blind readers can distinguish. Markers and
# dashes distinguish the lines in print without colour.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
WRONG = "#D55E00"
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")
GREY = "0.82"


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def of_line(index: int) -> dict[str, Any]:
    dashes, marker = DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)]
    return {"color": colour(index), "linestyle": dashes, "marker": marker}


def import_pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib: pip install keras-mhmcmc[plots]"
        ) from error
    return pyplot


def one_axes(ax: "Axes | None") -> "Axes":
    pyplot = import_pyplot()
    if ax is not None:
        return _checked_axes("ax", ax)
    new_ax: Axes = pyplot.subplots(figsize=(6.4, 4.4), layout="constrained")[1]
    return new_ax


def many_axes(
    axes: Any, shape: tuple[int, int], size: tuple[float, float], **options: Any
) -> "tuple[Figure, Array]":
    """Return a figure and its `Axes`, the given ones or those of a new figure."""
    pyplot = import_pyplot()
    rows, columns = shape  # of panels of a size in inches
    if axes is None:
        options["figsize"] = (size[0] * columns + 0.6, size[1] * rows + 0.6)
        options |= {"squeeze": False, "layout": "constrained"}
        figure, panels = pyplot.subplots(rows, columns, **options)
        return figure, np.asarray(panels)
    given = np.asarray(axes, dtype=object)
    if given.size != rows * columns:
        raise ValueError(
            f"Argument `axes` must be {rows * columns} matplotlib `Axes`, one for "
            f"each panel. Received: {given.size}"
        )
    for ax in given.flat:
        _checked_axes("axes", ax)
    return given.flat[0].figure, given.reshape(shape)


def legend_below(ax: "Axes", columns: int = 1) -> None:
    """Put the legend below the plot, where it covers nothing."""
    below: dict[str, Any] = dict(loc="upper center", bbox_to_anchor=(0.5, -0.14))
    ax.legend(ncols=columns, frameon=False, fontsize="small", **below)


def frame(ax: "Axes", x: str, y: str, **options: Any) -> None:
    """Name the axes, with options of `Axes.set`, and draw thin lines at the ticks."""
    ax.set(xlabel=x, ylabel=y, **options)
    ax.grid(color=GREY, linewidth=0.6)


def _checked_axes(name: str, ax: "Axes") -> "Axes":
    from matplotlib.axes import Axes

    return _validate.instance(name, ax, Axes, "matplotlib `Axes`")
