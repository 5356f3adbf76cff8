"""Plot of models under corruption: scores against the severity."""

from typing import TYPE_CHECKING
from typing import Any

from keras_mhmcmc import _validate
from keras_mhmcmc.evaluation.shift import SCORES
from keras_mhmcmc.evaluation.shift import ShiftTable
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = {
    "accuracy": "accuracy (%)",
    "nll": "NLL (nats)",
    "ece": "calibration error (ECE)",
}


def shift(table: ShiftTable, axes: Any = None) -> "Figure":
    """Plot accuracy, NLL and calibration error against the severity of corruptions.

    Lines are means over the corruptions. A band reaches from the best to the worst
    corruption.

    Args:
        table: result of `mh.evaluate_shift`.
        axes: three matplotlib `Axes`, or None for a new figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `table` is not a `ShiftTable`, or `axes` are not three `Axes`.

    Example:

    >>> row = {"model": "SGD", "accuracy": 0.9, "nll": 0.3, "ece": 0.02}
    >>> rows = [
    ...     {**row, "corruption": "clean", "severity": 0},
    ...     {**row, "corruption": "blur", "severity": 1},
    ... ]
    >>> from keras_mhmcmc.evaluation.shift import ShiftTable
    >>> [ax.get_xlabel() for ax in shift(ShiftTable(rows)).axes]
    ['severity', 'severity', 'severity']
    """
    _validate.instance("table", table, ShiftTable, "a result of `mh.evaluate_shift`")
    panels = style.many_axes(axes, (1, len(SCORES)), size=(3.4, 3.4)).ravel()
    figure: Figure = panels[0].figure
    kinds = {row["corruption"] for row in table.rows if row["severity"]}
    for ax, name in zip(panels, SCORES, strict=True):
        scale = 100 if name == "accuracy" else 1
        for index, model in enumerate(table.models):
            severities = table.column(model, "severity")
            color = style.COLOURS[index % len(style.COLOURS)]
            each = [scale * table.column(model, name, kind) for kind in kinds]
            low = [min(values) for values in zip(*each, strict=True)]
            high = [max(values) for values in zip(*each, strict=True)]
            ax.fill_between(severities, low, high, color=color, alpha=0.1, lw=0)
            ax.plot(
                severities,
                scale * table.column(model, name),
                **style.of_line(index),
                linewidth=2,
                markersize=5,
                label=model,
            )
        ax.set_xlabel("severity")
        ax.set_ylabel(_LABELS[name])
        ax.set_xticks(severities)
        ax.grid(color=style.GREY, linewidth=0.6)
    panels[0].legend(frameon=False)
    panels[1].set_title(
        f"mean, best and worst of {len(kinds)} corruptions", fontsize=10
    )
    return figure
