"""Plots of models under attacks and corruptions: scores, and the attacked images."""

from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.adversarial import RobustnessTable
from keras_mhmcmc.adversarial import TransferTable
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.checks import as_probabilities
from keras_mhmcmc.evaluation.shift import SCORES
from keras_mhmcmc.evaluation.shift import ShiftTable
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {
    "accuracy": "accuracy (%)",
    "nll": "NLL (nats)",
    "ece": "calibration error (ECE)",
}


def robustness(table: RobustnessTable, ax: "Axes | None" = None) -> "Axes":
    """Plot accuracy against the strength of the attack, with a line for each model.

    Args:
        table: result of `mh.adversarial.robustness_curve`.
        ax: matplotlib `Axes`. None makes a figure.

    Example:

    >>> from keras_mhmcmc.adversarial import RobustnessTable
    >>> row = {"model": "SGD", "epsilon": 0.1, "accuracy": 0.5, "nll": 1, "entropy": 1}
    >>> robustness(RobustnessTable([row])).get_title()
    'Accuracy under FGSM attacks'
    """
    hint = "a result of `adversarial.robustness_curve`"
    _validate.instance("table", table, RobustnessTable, hint)
    ax = style.one_axes(ax)
    for index, name in enumerate(dict.fromkeys(row["model"] for row in table.rows)):
        strengths = table.column(name, "epsilon")
        percent = 100 * table.column(name, "accuracy")
        looks = style.of_line(index) | {"linewidth": 2, "markersize": 6}
        ax.plot(strengths, percent, **looks, label=name)
    ax.set_title(f"Accuracy under {table.attack} attacks")
    ax.set_xlabel("strength: largest change of an input, in units of the input")
    ax.set_ylabel("accuracy (% of the attacked examples)")
    ax.set_ylim(-2, 102)
    style.grid(ax)
    ax.legend(title="each model is attacked separately", frameon=False)
    return ax


def transfer(table: TransferTable, ax: "Axes | None" = None) -> "Axes":
    """Plot the accuracy of each target under the attacks on each source.

    Rows are the models on which the attacks were made, with the clean inputs first, and
    columns are the models that are scored. Dark cells are low accuracies.

    Args:
        table: result of `mh.adversarial.transfer`.
        ax: matplotlib `Axes`. None makes a figure.

    Example:

    >>> from keras_mhmcmc.adversarial import TransferTable
    >>> scores = {"nll": 1.2, "accuracy": 0.5, "clean_accuracy": 0.98}
    >>> table = TransferTable([{"source": "SGD", "target": "ensemble", **scores}])
    >>> [text.get_text() for text in transfer(table).texts]
    ['98', '50']
    """
    hint = "a result of `adversarial.transfer`"
    _validate.instance("table", table, TransferTable, hint)
    ax = style.one_axes(ax)
    clean = table.matrix("clean_accuracy")[:1]
    values = 100 * np.concatenate([clean, table.matrix("accuracy")])
    ax.imshow(values, cmap="cividis", vmin=0.0, vmax=100.0, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        color = "black" if value > 50.0 else "white"
        ax.text(column, row, f"{value:.0f}", ha="center", va="center", color=color)
    ax.set_xticks(range(len(table.targets)), table.targets)
    ax.set_yticks(range(len(values)), ["clean inputs", *table.sources])
    ax.axhline(0.5, color="white", linewidth=3)
    ax.set_xlabel("model that is scored")
    ax.set_ylabel("model on which the attack was made")
    ax.set_title(f"Accuracy (%) under {table.attack} attacks")
    return ax


def shift(table: ShiftTable, axes: Any = None) -> "Figure":
    """Plot accuracy, NLL and calibration error against the severity of corruptions.

    Lines are means over the corruptions. A band reaches from the best to the worst
    corruption.

    Args:
        table: result of `mh.evaluate_shift`.
        axes: three matplotlib `Axes`, or None for a new figure.

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
    figure, [panels] = style.many_axes(axes, (1, len(SCORES)), size=(3.4, 3.4))
    kinds = {row["corruption"] for row in table.rows if row["severity"]}
    for ax, name in zip(panels, SCORES, strict=True):
        scale = 100 if name == "accuracy" else 1
        for index, model in enumerate(table.models):
            severities = table.column(model, "severity")
            each = [scale * table.column(model, name, kind) for kind in kinds]
            low, high = np.min(each, axis=0), np.max(each, axis=0)
            color = style.colour(index)
            ax.fill_between(severities, low, high, color=color, alpha=0.1, lw=0)
            looks = style.of_line(index) | {"linewidth": 2, "markersize": 5}
            ax.plot(severities, scale * table.column(model, name), **looks, label=model)
        ax.set_xlabel("severity")
        ax.set_ylabel(_LABELS[name])
        ax.set_xticks(severities)
        style.grid(ax)
    panels[0].legend(frameon=False)
    title = f"mean, best and worst of {len(kinds)} corruptions"
    panels[1].set_title(title, fontsize=10)
    return figure


def adversarial_grid(
    images: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    epsilons: npt.ArrayLike,
    title: str | None = None,
    axes: Any = None,
) -> "Figure":
    """Plot adversarial images with a model's predictions.

    Rows are strengths of the attack, and columns are examples. The predicted class and
    its probability stand below each image. A frame and a cross mark wrong predictions.

    Args:
        images: images in [0, 1] of R strengths and E examples, shape (R, E, H, W),
            (R, E, H, W, 1), or (R, E, H, W, 3) in colour.
        probabilities: class probabilities of the images, shape (R, E, C).
        labels: the examples' classes, integers of shape (E,).
        epsilons: the strengths, R finite numbers, each at least 0.
        title: first line above the grid. Defaults to None, "Adversarial images".
        axes: R x E matplotlib `Axes`, or None for a new figure. Only a new figure gets
            the title.

    Example:

    >>> import numpy as np
    >>> figure = adversarial_grid(
    ...     images=np.zeros((2, 1, 8, 8)),
    ...     probabilities=np.array([[[0.9, 0.1]], [[0.2, 0.8]]]),
    ...     labels=[0],
    ...     epsilons=[0.0, 0.1],
    ... )
    >>> figure.axes[1].get_xlabel()
    '✗ 1 (80%)'
    """
    pictures = _images(images)
    rows, columns = shape = pictures.shape[:2]
    strengths = _validate.array("Argument `epsilons`", epsilons)
    are_finite = np.all((strengths >= 0) & (strengths < np.inf))
    if strengths.shape != (rows,) or not are_finite:
        raise ValueError(
            f"Argument `epsilons` must be {rows} numbers, one for each row of images, "
            f"finite and at least 0. Received: epsilons={_validate.shown(epsilons)}"
        )
    subject = "Argument `probabilities`"
    values = _validate.array(subject, probabilities)
    _validate.instance("title", title, (str, type(None)), "a string, or None")
    if values.ndim != 3 or values.shape[:2] != shape:
        raise ValueError(
            f"{subject} must have the shape (R, E, C), with (R, E) = {shape} as in "
            f"`images`. Received: shape {values.shape}"
        )
    flat = as_probabilities(subject, values.reshape(-1, values.shape[2]))
    predictions = flat.reshape(rows, columns, -1)
    classes = as_labels("labels", labels, columns, predictions.shape[2])
    figure, panels = style.many_axes(axes, shape, size=(1.05, 1.35))
    for (row, column), ax in np.ndenumerate(panels):
        label = int(classes[column])
        _image_panel(ax, pictures[row, column], predictions[row, column], label)
        if row == 0:
            ax.set_title(f"true class {label}", fontsize=10)
        if column == 0:
            ax.set_ylabel(f"strength\n{strengths[row]:g}", fontsize=10)
    if axes is None:
        figure.suptitle(
            f"{title or 'Adversarial images'}\nBelow each: the predicted class and its "
            "probability. A frame and ✗: wrong.",
            fontsize=11,
        )
    return figure


def _image_panel(ax: "Axes", image: Array, probabilities: Array, label: int) -> None:
    predicted = int(np.argmax(probabilities))
    ax.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
    ax.set_xticks([])
    ax.set_yticks([])
    text, color, frame, width = "", "black", style.GREY, 0.5
    if predicted != label:
        text, color, frame, width = "✗ ", style.WRONG, style.WRONG, 2.5
    text += f"{predicted} ({probabilities[predicted]:.0%})"
    ax.set_xlabel(text, color=color, fontsize=9, labelpad=2)
    for spine in ax.spines.values():
        spine.set_color(frame)
        spine.set_linewidth(width)


def _images(images: npt.ArrayLike) -> Array:
    """Return float images of shape (R, E, H, W) or (R, E, H, W, 3), or raise."""
    array = _validate.array("Argument `images`", images)
    if array.ndim == 5 and array.shape[-1] == 1:
        array = array[..., 0]
    is_colour = array.ndim == 5 and array.shape[-1] == 3
    if array.size == 0 or not (array.ndim == 4 or is_colour):
        raise ValueError(
            "Argument `images` must have the shape (R, E, H, W), (R, E, H, W, 1) or "
            f"(R, E, H, W, 3), with no length of 0. Received: shape {array.shape}"
        )
    if not (array.min() >= 0.0 and array.max() <= 1.0):
        raise ValueError(
            "Argument `images` must lie in [0, 1]. Divide uint8 images by 255. "
            f"Received: values from {array.min():g} to {array.max():g}"
        )
    return array
