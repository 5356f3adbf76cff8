"""Plots of models under attack: accuracies, and the attacked images."""

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
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def robustness(table: RobustnessTable, ax: "Axes | None" = None) -> "Axes":
    """Plot accuracy against the strength of the attack, with a line for each model.

    Args:
        table: result of `mh.adversarial.robustness_curve`.
        ax: matplotlib `Axes`. None makes a figure.

    Returns:
        The `Axes`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `table` is not a `RobustnessTable`, or `ax` is not an `Axes`.

    Example:

    >>> from keras_mhmcmc.adversarial import RobustnessTable
    >>> scores = {"model": "SGD", "nll": 0.1, "entropy": 0.1}
    >>> table = RobustnessTable(
    ...     [
    ...         {**scores, "epsilon": 0.0, "accuracy": 0.98},
    ...         {**scores, "epsilon": 0.1, "accuracy": 0.51},
    ...     ]
    ... )
    >>> robustness(table).get_title()
    'Accuracy under FGSM attacks'
    """
    _validate.instance(
        "table", table, RobustnessTable, "a result of `adversarial.robustness_curve`"
    )
    ax = style.one_axes(ax)
    names = list(dict.fromkeys(row["model"] for row in table.rows))
    for index, name in enumerate(names):
        ax.plot(
            table.column(name, "epsilon"),
            100 * table.column(name, "accuracy"),
            **style.of_line(index),
            linewidth=2,
            markersize=6,
            label=name,
        )
    ax.set_title(f"Accuracy under {table.attack} attacks")
    ax.set_xlabel("strength: largest change of an input, in units of the input")
    ax.set_ylabel("accuracy (% of the attacked examples)")
    ax.set_ylim(-2, 102)
    ax.grid(color=style.GREY, linewidth=0.6)
    ax.legend(title="each model is attacked separately", frameon=False)
    return ax


def transfer(table: TransferTable, ax: "Axes | None" = None) -> "Axes":
    """Plot the accuracy of each target under the attacks on each source.

    Rows are the models on which the attacks were made, with the clean inputs first, and
    columns are the models that are scored. Dark cells are low accuracies.

    Args:
        table: result of `mh.adversarial.transfer`.
        ax: matplotlib `Axes`. None makes a figure.

    Returns:
        The `Axes`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `table` is not a `TransferTable`, or `ax` is not an `Axes`.

    Example:

    >>> from keras_mhmcmc.adversarial import TransferTable
    >>> scores = {"nll": 1.2, "accuracy": 0.5, "clean_accuracy": 0.98}
    >>> table = TransferTable([{"source": "SGD", "target": "ensemble", **scores}])
    >>> [text.get_text() for text in transfer(table).texts]
    ['98', '50']
    """
    _validate.instance(
        "table", table, TransferTable, "a result of `adversarial.transfer`"
    )
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

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the shapes of the arrays or of `axes` do not match.

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
    rows, columns = pictures.shape[:2]
    strengths = _validate.array("Argument `epsilons`", epsilons)
    if (
        strengths.shape != (rows,)
        or not ((strengths >= 0) & (strengths < np.inf)).all()
    ):
        raise ValueError(
            f"Argument `epsilons` must be {rows} numbers, one for each row of images, "
            "finite and at least 0. "
            f"Received: epsilons={_validate.shown(epsilons)}"
        )
    subject = "Argument `probabilities`"
    values = _validate.array(subject, probabilities)
    _validate.instance("title", title, (str, type(None)), "a string, or None")
    if values.ndim != 3 or values.shape[:2] != (rows, columns):
        raise ValueError(
            f"{subject} must have the shape (R, E, C), with "
            f"(R, E) = {(rows, columns)} as in `images`. "
            f"Received: shape {values.shape}"
        )
    flat = as_probabilities(subject, values.reshape(-1, values.shape[2]))
    predictions = flat.reshape(rows, columns, -1)
    classes = as_labels("labels", labels, columns, predictions.shape[2])

    own_figure = axes is None
    panels = style.many_axes(axes, (rows, columns), size=(1.05, 1.35))
    figure: Figure = panels[0, 0].figure
    for row in range(rows):
        for column in range(columns):
            ax, label = panels[row, column], int(classes[column])
            _image_panel(ax, pictures[row, column], predictions[row, column], label)
            if row == 0:
                ax.set_title(f"true class {label}", fontsize=10)
        panels[row, 0].set_ylabel(f"strength\n{strengths[row]:g}", fontsize=10)
    if own_figure:
        figure.suptitle(
            f"{title or 'Adversarial images'}\nBelow each: the predicted class and its "
            "probability. A frame and ✗: wrong.",
            fontsize=11,
        )
    return figure


def _image_panel(ax: "Axes", image: Array, probabilities: Array, label: int) -> None:
    predicted = int(np.argmax(probabilities))
    is_wrong = predicted != label
    ax.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
    ax.set_xticks([])
    ax.set_yticks([])
    text = f"{predicted} ({probabilities[predicted]:.0%})"
    ax.set_xlabel(
        f"✗ {text}" if is_wrong else text,
        color=style.WRONG if is_wrong else "black",
        fontsize=9,
        labelpad=2,
    )
    for spine in ax.spines.values():
        spine.set_color(style.WRONG if is_wrong else style.GREY)
        spine.set_linewidth(2.5 if is_wrong else 0.5)


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
