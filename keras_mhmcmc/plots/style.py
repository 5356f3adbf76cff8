"""What the pictures share: colours, and checked matplotlib `Axes`."""

import numpy as np

from keras_mhmcmc import _validate

# The colours of Okabe and Ito, which colour-blind readers can tell apart. Markers and
# dashes tell the lines apart without any colour.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
WRONG = "#D55E00"
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")
GREY = "0.82"


def import_pyplot():
    """matplotlib.pyplot, or an error that says how to get it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib: pip install keras-mhmcmc[plots]"
        ) from error
    return pyplot


def one_axes(ax):
    """`ax`, or a new figure's `Axes` for None."""
    pyplot = import_pyplot()
    if ax is None:
        return pyplot.subplots(figsize=(6.4, 4.4), layout="constrained")[1]
    return checked_axes("ax", ax)


def many_axes(axes, shape, size, sharey=False):
    """An array of `Axes` of this shape, new ones unless some are given."""
    pyplot = import_pyplot()
    if axes is None:
        rows, columns = shape
        figsize = (size[0] * columns + 0.6, size[1] * rows + 0.6)
        return pyplot.subplots(
            *shape, figsize=figsize, squeeze=False, sharey=sharey, layout="constrained"
        )[1]
    axes = np.asarray(axes, dtype=object)
    if axes.size != shape[0] * shape[1]:
        raise ValueError(
            f"Argument `axes` must be {shape[0] * shape[1]} matplotlib `Axes`, one for "
            f"each panel. Received: {axes.size}"
        )
    for ax in axes.flat:
        checked_axes("axes", ax)
    return axes.reshape(shape)


def legend_below(ax, columns=1):
    """A legend below the picture, where it hides nothing."""
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=columns,
        frameon=False,
        fontsize="small",
    )


def check_color(name, value):
    """Raises unless `value` is a colour of matplotlib's, or None."""
    import_pyplot()
    from matplotlib.colors import is_color_like

    if value is not None and not is_color_like(value):
        raise ValueError(
            f"Argument `{name}` must be a colour that matplotlib knows, such as "
            '"tab:blue" or "#56B4E9", or None. '
            f"Received: {name}={_validate.shown(value)}"
        )


def checked_axes(name, ax):
    """`ax` if it is matplotlib `Axes`, or a `ValueError` that names it."""
    from matplotlib.axes import Axes

    return _validate.instance(name, ax, Axes, "matplotlib `Axes`")
