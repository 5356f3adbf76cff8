"""Contours of a density of two dimensions, with draws on top."""

import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc.plots import style
from keras_mhmcmc.sampling import Draws

SHARES = (0.99, 0.9, 0.5, 0.1)  # of the density's mass, from the outer line inwards
CHUNK = 1000  # points that are evaluated at once
MARGIN = 0.15  # of the draws' range, on each side


def contours(
    log_density,
    draws=None,
    *,
    extent=None,
    temperature=1.0,
    points=100,
    max_draws=3000,
    color=None,
    ax=None,
):
    """Lines that enclose shares of a two-dimensional law, and draws on top.

    The lines enclose 10%, 50%, 90% and 99% of the law's mass within the picture: of
    good draws as many lie inside each. Draws with importance weights are resampled.

    Args:
        log_density: function that gives the log density of one position, a tensor of
            shape (2,), up to a constant, in `keras.ops`; the one for `mh.sample`. Or
            an object with the method `log_density`, such as one of `mh.targets`.
        draws: `mh.Draws` whose position is a tensor of shape (2,), or an array of shape
            (..., 2), all chains in one; None draws no points.
        extent: ((low, high), (low, high)) of both coordinates; None is the range of the
            draws, 99.8% of them, and 15% on each side.
        temperature: the law is exp(log_density / temperature).
        points: number of points along each axis that the density is evaluated at.
        max_draws: number of points to draw; of more, every so many are taken.
        color: colour of the draws; None is light blue.
        ax: matplotlib `Axes`; None makes a figure.

    Returns:
        The `Axes`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `log_density` does not give one number for a position or is nowhere
            finite, `draws` have another shape, `extent` is missing where there are no
            draws, or another argument is outside its range.

    Example:

    >>> from keras import ops
    >>> ax = contours(
    ...     lambda x: -0.5 * ops.sum(ops.square(x)), extent=((-3, 3), (-3, 3))
    ... )
    >>> ax.get_xlabel()
    'first coordinate'
    """
    temperature = _validate.number("temperature", temperature, _validate.POSITIVE)
    points = _validate.integer("points", points, 2)
    max_draws = _validate.integer("max_draws", max_draws, 1)
    style.check_color("color", color)
    if draws is not None:
        draws = _positions(draws)
    sides = _sides(extent, draws)
    ax = style.one_axes(ax)
    grid = [np.linspace(*side, points) for side in sides]
    values = _on_grid(_function(log_density), grid) / temperature
    if draws is not None:
        every = max(-(-len(draws) // max_draws), 1)
        ax.plot(
            *draws[::every].T,
            linestyle="",
            marker=".",
            markersize=3,
            color=color or style.COLOURS[4],
            alpha=0.6,
            label=f"{len(draws[::every]):,} draws",
        )
    levels = _levels(values)
    drawn = ax.contour(
        *grid,
        values.T,
        levels=list(levels),
        colors="black",
        linewidths=0.9,
        linestyles="solid",
    )
    ax.clabel(drawn, fmt=levels, fontsize=8)
    ax.plot(
        [],
        [],
        color="black",
        linewidth=0.9,
        label="lines enclose these shares of the law",
    )
    ax.set_xlim(sides[0])
    ax.set_ylim(sides[1])
    ax.set_xlabel("first coordinate")
    ax.set_ylabel("second coordinate")
    ax.set_title("Draws and the law" if draws is not None else "The law")
    style.legend_below(ax, columns=2)
    return ax


def _function(log_density):
    if callable(log_density):
        return log_density
    try:
        return log_density.log_density
    except AttributeError as error:
        raise ValueError(
            "Argument `log_density` must be a function of a position, or an object "
            "with the method `log_density`. "
            f"Received: log_density={_validate.shown(log_density)}"
        ) from error


def _positions(draws):
    """Draws with equal weights, shape (draws, 2)."""
    if isinstance(draws, Draws):
        position = draws.resample() if np.ptp(draws.weights) > 0 else draws.position
    else:
        position = draws
    if isinstance(position, (dict, list, tuple)) and isinstance(draws, Draws):
        shape = "a structure"
    else:
        position = _validate.array("Argument `draws`", position)
        shape = f"shape {position.shape}"
        if position.ndim >= 2 and position.shape[-1] == 2 and position.size > 0:
            if np.isfinite(position).all():
                return position.reshape(-1, 2)
            shape += f" with {np.sum(~np.isfinite(position))} values that are not"
    raise ValueError(
        "Argument `draws` must be `mh.Draws` of positions of shape (2,), or an array "
        f"of shape (..., 2), all of it finite. Received: {shape}"
    )


def _sides(extent, draws):
    """((low, high), (low, high)) of the picture."""
    if extent is None:
        if draws is None:
            raise ValueError(
                "Argument `extent` must be ((low, high), (low, high)) where there are "
                "no draws. Received: extent=None"
            )
        low, high = np.quantile(draws, [0.001, 0.999], axis=0)
        margin = np.where(high > low, MARGIN * (high - low), 1.0)
        return np.stack([low - margin, high + margin], axis=1)
    sides = _validate.array("Argument `extent`", extent)
    is_range = sides.shape == (2, 2) and np.isfinite(sides).all()
    if not is_range or not (sides[:, 0] < sides[:, 1]).all():
        raise ValueError(
            "Argument `extent` must be ((low, high), (low, high)), low less than high. "
            f"Received: extent={extent!r}"
        )
    return sides


def _on_grid(function, grid):
    """The log density, in float64, shape (points, points): first axis first."""
    first, second = np.meshgrid(*grid, indexing="ij")
    positions = np.stack([first.ravel(), second.ravel()], 1).astype("float32")
    value = function(ops.convert_to_tensor(positions[0]))
    shape = tuple(ops.shape(value)) if ops.is_tensor(value) else None
    if shape != ():
        given = _validate.shown(value) if shape is None else f"shape {shape}"
        raise ValueError(
            "Argument `log_density` must give one number for a position of shape (2,), "
            f"as a tensor. Received: a function that gives {given}"
        )
    chunks = [positions[i : i + CHUNK] for i in range(0, len(positions), CHUNK)]
    values = [
        ops.convert_to_numpy(ops.vectorized_map(function, ops.convert_to_tensor(chunk)))
        for chunk in chunks
    ]
    values = np.concatenate(values).astype("float64").reshape(first.shape)
    values = np.where(np.isnan(values), -np.inf, values)
    if not np.isfinite(values).any():
        raise ValueError(
            "Argument `log_density` must be finite somewhere in the picture. "
            "Choose another `extent`. Received: a function that is finite at none of "
            f"{values.size} points"
        )
    return values


def _levels(values):
    """Log densities whose contours enclose `SHARES` of the mass, with these as text."""
    falling = np.sort(values, axis=None)[::-1]
    mass = np.cumsum(np.exp(falling - falling[0]))
    places = np.searchsorted(mass, np.array(SHARES) * mass[-1])
    levels = falling[np.minimum(places, falling.size - 1)]
    # A law that is narrower than a cell of the grid has several shares at one level.
    return {
        float(level): f"{share:.0%}"
        for level, share in zip(levels, SHARES, strict=True)
    }
