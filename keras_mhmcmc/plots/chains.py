"""Draws on contours of their target. ArviZ plots traces and ranks: see `to_arviz`."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.plots import style
from keras_mhmcmc.sampling import Draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = (0.99, 0.9, 0.5, 0.1)  # of the target's mass, from the outer line inwards
CHUNK = 1000  # points to evaluate at once
MARGIN = 0.15  # on each side, as a share of the draws' range


def contours(
    log_density: Any,
    draws: Draws | npt.ArrayLike | None = None,
    *,
    extent: npt.ArrayLike | None = None,
    temperature: float = 1.0,
    points: int = 100,
    max_draws: int = 3000,
    color: Any = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot contours of a two-dimensional target, with draws on top.

    The lines enclose 10%, 50%, 90% and 99% of the target's mass within the plot. A
    good sampler places the same shares of its draws inside them. Draws with importance
    weights are resampled.

    Args:
        log_density: function that returns the log density of one position, a tensor of
            shape (2,), up to a constant. It uses `keras.ops`, as for `mh.sample`. Or
            an object with the method `log_density`, such as one of `mh.targets`.
        draws: `mh.Draws` whose position is a tensor of shape (2,), or an array of shape
            (..., 2) with the draws of all chains. None plots no draws.
        extent: ((low, high), (low, high)) of the two coordinates. Defaults to None: the
            range of the central 99.8% of the draws, and 15% more on each side.
        temperature: the target is exp(log_density / temperature). Greater than 0.
            Defaults to 1.
        points: number of grid points along each axis, at least 2. Defaults to 100.
        max_draws: largest number of draws to plot. More draws are thinned. Defaults to
            3000.
        color: matplotlib colour of the draws. Defaults to None, light blue.
        ax: matplotlib `Axes`. None makes a figure.

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
    dots = None if draws is None else _positions(draws)
    sides = _sides(extent, dots)
    ax = style.one_axes(ax)
    grid = [np.linspace(low, high, points) for low, high in sides]
    values = _on_grid(_function(log_density), grid) / temperature
    if dots is not None:
        dots = dots[:: max(-(-len(dots) // max_draws), 1)]
        looks: dict[str, Any] = dict(
            color=color or style.COLOURS[4], markersize=3, alpha=0.6
        )
        ax.plot(*dots.T, ".", **looks, label=f"{len(dots):,} draws")
    levels = _levels(values)
    black: dict[str, Any] = dict(
        levels=list(levels), colors="black", linestyles="solid"
    )
    drawn = ax.contour(*grid, values.T, linewidths=0.9, **black)
    ax.clabel(drawn, fmt=levels, fontsize=8)
    label = "lines enclose these shares of the target"
    ax.plot([], [], color="black", linewidth=0.9, label=label)
    ax.set_xlim(*sides[0])
    ax.set_ylim(*sides[1])
    ax.set_xlabel("first coordinate")
    ax.set_ylabel("second coordinate")
    ax.set_title("Draws and the target" if draws is not None else "The target")
    style.legend_below(ax, columns=2)
    return ax


def _function(log_density: Any) -> Callable[[Tensor], Tensor]:
    if callable(log_density):
        return log_density
    try:
        function: Callable[[Tensor], Tensor] = log_density.log_density
    except AttributeError as error:
        raise ValueError(
            "Argument `log_density` must be a function of a position, or an object "
            "with the method `log_density`. "
            f"Received: log_density={_validate.shown(log_density)}"
        ) from error
    return function


def _positions(draws: Any) -> Array:
    """Return draws with equal weights, shape (draws, 2), or raise a `ValueError`."""
    position, shape = draws, "a structure"
    if isinstance(draws, Draws):
        position = draws.resample() if np.ptp(draws.weights) > 0 else draws.position
    if not isinstance(draws, Draws) or not isinstance(position, dict | list | tuple):
        position = _validate.array("Argument `draws`", position)
        shape = f"shape {position.shape}"
        if position.ndim >= 2 and position.shape[-1] == 2 and position.size > 0:
            if np.isfinite(position).all():
                return position.reshape(-1, 2)
            shape += f", {np.sum(~np.isfinite(position))} values that are not finite"
    raise ValueError(
        "Argument `draws` must be `mh.Draws` with positions of shape (2,), or an array "
        f"of shape (..., 2), and be finite. Received: {shape}"
    )


def _sides(extent: npt.ArrayLike | None, draws: Array | None) -> Array:
    """Return the limits of both axes, ((low, high), (low, high)), shape (2, 2)."""
    if extent is None and draws is not None:
        low, high = np.quantile(draws, [0.001, 0.999], axis=0)
        margin = np.where(high > low, MARGIN * (high - low), 1.0)
        return np.stack([low - margin, high + margin], axis=1)
    sides = _validate.array("Argument `extent`", [] if extent is None else extent)
    is_range = sides.shape == (2, 2) and np.isfinite(sides).all()
    if not is_range or not (sides[:, 0] < sides[:, 1]).all():
        raise ValueError(
            "Argument `extent` must be ((low, high), (low, high)), low less than high, "
            f"also if there are no `draws`. Received: extent={extent!r}"
        )
    return sides


def _on_grid(function: Callable[[Tensor], Tensor], grid: list[Array]) -> Array:
    """Return the log density on a grid, float64, shape (points, points)."""
    first, second = np.meshgrid(*grid, indexing="ij")
    positions = np.stack([first.ravel(), second.ravel()], 1).astype("float32")
    value = function(ops.convert_to_tensor(positions[0]))
    shape = tuple(ops.shape(value)) if ops.is_tensor(value) else None
    if shape != ():
        given = _validate.shown(value) if shape is None else f"shape {shape}"
        raise ValueError(
            "Argument `log_density` must return one number for a position of shape "
            f"(2,), as a tensor. Received: a function that returns {given}"
        )
    chunks = [positions[i : i + CHUNK] for i in range(0, len(positions), CHUNK)]
    parts = [
        ops.convert_to_numpy(ops.vectorized_map(function, ops.convert_to_tensor(chunk)))
        for chunk in chunks
    ]
    values = np.concatenate(parts).astype("float64").reshape(first.shape)
    values = np.where(np.isnan(values), -np.inf, values)
    if not np.isfinite(values).any():
        raise ValueError(
            "Argument `log_density` must be finite somewhere in the plot. Choose "
            "another `extent`. Received: a function that is not finite at any of "
            f"{values.size} points"
        )
    return values


def _levels(values: Array) -> dict[float, str]:
    """Return the log densities whose contours enclose `SHARES` of the mass, as text."""
    falling = np.sort(values, axis=None)[::-1]
    mass = np.cumsum(np.exp(falling - falling[0]))
    places = np.searchsorted(mass, np.array(SHARES) * mass[-1])
    levels = falling[np.minimum(places, falling.size - 1)].tolist()
    # A target narrower than a grid cell has several shares at one level; one is kept.
    return {level: f"{share:.0%}" for level, share in zip(levels, SHARES, strict=True)}
