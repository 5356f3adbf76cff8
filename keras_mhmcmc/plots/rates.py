"""Picture of short runs at several learning rates."""

from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.plots import style
from keras_mhmcmc.samplers.parts.rate_adaptation import LOW
from keras_mhmcmc.tuning.table import PASSES
from keras_mhmcmc.tuning.table import TOO_SLOW
from keras_mhmcmc.tuning.table import LearningRateTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def learning_rates(table: LearningRateTable, axes: Any = None) -> "Figure":
    """Plot the energy after short runs against the learning rate.

    A vertical line marks the suggested rate. A second panel, for a
    Metropolis-Hastings sampler, has the share of accepted forward moves. Triangles at
    the upper edge stand for energies that are higher or not finite.

    Args:
        table: result of `mh.suggest_learning_rate`.
        axes: matplotlib `Axes`, two for a Metropolis-Hastings sampler, otherwise one;
            or None for a new figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `table` is no `LearningRateTable`, or `axes` do not fit.

    Example:

    >>> from keras_mhmcmc.tuning import LearningRateTable
    >>> row = {"learning_rate": 0.1, "start": 2.3, "end": 0.4}
    >>> row |= {"acceptance": float("nan"), "verdict": "passes"}
    >>> figure = learning_rates(LearningRateTable([row], "SGD", "loss"))
    >>> figure.axes[0].get_ylabel()
    'loss'

    Reference: Smith (2017), "Cyclical learning rates for training neural networks",
    Fig. 3.
    """
    _validate.instance(
        "table", table, LearningRateTable, "a result of `mh.suggest_learning_rate`"
    )
    acceptance = table.column("acceptance")
    count = 1 if np.isnan(acceptance).all() else 2
    panels = style.many_axes(axes, (1, count), size=(5.4, 4.0))[0]
    _energy_panel(panels[0], table)
    if count == 2:
        _acceptance_panel(panels[1], table, 100 * acceptance)
    for ax in panels:
        ax.set_xscale("log")
        ax.set_xlabel("learning rate")
        ax.grid(color=style.GREY, linewidth=0.6)
        if table.rate is not None:
            ax.axvline(
                table.rate,
                color=style.COLOURS[2],
                linestyle="--",
                label=f"suggested rate: {table.rate:g}",
            )
        style.legend_below(ax, columns=2)
    figure: Figure = panels[0].figure
    return figure


def _energy_panel(ax: "Axes", table: LearningRateTable) -> None:
    start, end = table.rows[0]["start"], table.column("end")
    lowest = np.min(end[np.isfinite(end)], initial=start)
    margin = 0.25 * (start - lowest) or 1.0
    high, low = start + margin, lowest - 0.4 * margin
    is_above = ~(end <= high)
    _points(ax, table, np.where(is_above, high, end), is_above)
    ax.axhline(start, color="black", linestyle=":", label="before the run")
    ax.set_ylim(low, high + 0.2 * margin)
    ax.set_ylabel(table.measure)
    ax.set_title(f"{table.optimizer}: {table.measure} after a short run")


def _acceptance_panel(ax: "Axes", table: LearningRateTable, percent: Array) -> None:
    _points(ax, table, percent, np.zeros(len(percent), bool))
    ax.axhline(100 * LOW, color="black", linestyle=":", label=f"least: {100 * LOW:g}%")
    ax.set_ylim(-2, 102)
    ax.set_ylabel("accepted forward moves (%)")
    ax.set_title("Accepted moves")


def _points(
    ax: "Axes", table: LearningRateTable, values: Array, is_above: Array
) -> None:
    """Draw a line through the values, and a marker for what a rate is."""
    rates, verdicts = table.column("learning_rate"), table.column("verdict")
    passes, is_slow = verdicts == PASSES, verdicts == TOO_SLOW
    fails = ~passes & ~is_slow
    kinds = {
        "passes": (passes, style.COLOURS[0], "o"),
        "too slow": (is_slow, style.COLOURS[1], "s"),
        "does not pass": (fails & ~is_above, style.WRONG, "X"),
        "does not pass, higher or not finite": (fails & is_above, style.WRONG, "^"),
    }
    ax.plot(rates, values, color=style.GREY, zorder=1)
    for label, (chosen, colour, marker) in kinds.items():
        if chosen.any():
            ax.scatter(
                rates[chosen],
                values[chosen],
                color=colour,
                marker=marker,
                s=45,
                label=label,
                zorder=2,
            )
