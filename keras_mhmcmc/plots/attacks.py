"""Pictures of models under attack: accuracies, and the attacked images."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.adversarial import RobustnessTable
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.checks import as_probabilities
from keras_mhmcmc.plots import style


def robustness(table, ax=None):
    """Accuracy against the strength of the attack, a line for each model.

    Args:
        table: what `mh.adversarial.robustness_curve` returned.
        ax: matplotlib `Axes` to draw into; None makes a figure.

    Returns:
        The `Axes`; `ax.figure.savefig(path)` saves the picture.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `table` is no `RobustnessTable`, or `ax` is no `Axes`.

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
        "table", table, RobustnessTable, "what `adversarial.robustness_curve` returned"
    )
    ax = style.one_axes(ax)
    names = list(dict.fromkeys(row["model"] for row in table.rows))
    for index, name in enumerate(names):
        ax.plot(
            table.column(name, "epsilon"),
            100 * table.column(name, "accuracy"),
            color=style.COLOURS[index % len(style.COLOURS)],
            linestyle=style.DASHES[index % len(style.DASHES)],
            marker=style.MARKERS[index % len(style.MARKERS)],
            linewidth=2,
            markersize=6,
            label=name,
        )
    ax.set_title(f"Accuracy under {table.attack} attacks")
    ax.set_xlabel("strength: largest change of an input, in units of the input")
    ax.set_ylabel("accuracy (% of the attacked examples)")
    ax.set_ylim(-2, 102)
    ax.grid(color=style.GREY, linewidth=0.6)
    ax.legend(title="each model is attacked by itself", frameon=False)
    return ax


def adversarial_grid(images, probabilities, labels, epsilons, title=None, axes=None):
    """Adversarial images with what a model makes of them.

    Rows are strengths of the attack and columns are examples. Under each image stand
    the predicted class and its probability; a frame and a cross mark the wrong ones.

    Args:
        images: array of shape (R, E, H, W), (R, E, H, W, 1), or (R, E, H, W, 3) for
            colours, in [0, 1]: R strengths, E examples.
        probabilities: class probabilities of the images, of shape (R, E, C).
        labels: integers of shape (E,), the classes of the examples.
        epsilons: R numbers, the strengths.
        title: first line above the grid; None is "Adversarial images".
        axes: array of R x E matplotlib `Axes`; None makes a figure, which alone gets
            the title.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the arrays do not fit each other, or `axes` do not fit them.

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
    images = _images(images)
    rows, columns = images.shape[:2]
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
    probabilities = _validate.array("Argument `probabilities`", probabilities)
    _validate.instance("title", title, (str, type(None)), "a text, or None")
    if np.ndim(probabilities) != 3 or np.shape(probabilities)[:2] != (rows, columns):
        raise ValueError(
            "Argument `probabilities` must have the shape (R, E, C), with "
            f"(R, E) = {(rows, columns)} as in `images`. "
            f"Received: shape {np.shape(probabilities)}"
        )
    classes = np.shape(probabilities)[2]
    flat = as_probabilities(
        "Argument `probabilities`", np.reshape(probabilities, (-1, classes))
    )
    probabilities = flat.reshape(rows, columns, -1)
    labels = as_labels("labels", labels, columns, probabilities.shape[2])

    own_figure = axes is None
    axes = style.many_axes(axes, (rows, columns), size=(1.05, 1.35))
    for row in range(rows):
        for column in range(columns):
            ax = axes[row, column]
            _image_panel(
                ax, images[row, column], probabilities[row, column], labels[column]
            )
            if row == 0:
                ax.set_title(f"true class {labels[column]}", fontsize=10)
        axes[row, 0].set_ylabel(f"strength\n{strengths[row]:g}", fontsize=10)
    if own_figure:
        axes[0, 0].figure.suptitle(
            f"{title or 'Adversarial images'}\nUnder each: the predicted class and its "
            "probability. A frame and ✗: wrong.",
            fontsize=11,
        )
    return axes[0, 0].figure


def _image_panel(ax, image, probabilities, label):
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


def _images(images):
    """Float images of shape (R, E, H, W) or (R, E, H, W, 3)."""
    images = _validate.array("Argument `images`", images)
    if images.ndim == 5 and images.shape[-1] == 1:
        images = images[..., 0]
    is_colour = images.ndim == 5 and images.shape[-1] == 3
    if images.size == 0 or not (images.ndim == 4 or is_colour):
        raise ValueError(
            "Argument `images` must have the shape (R, E, H, W), (R, E, H, W, 1) or "
            f"(R, E, H, W, 3), none of them 0. Received: shape {images.shape}"
        )
    if not (images.min() >= 0.0 and images.max() <= 1.0):
        raise ValueError(
            "Argument `images` must lie in [0, 1]. Divide uint8 images by 255. "
            f"Received: values from {images.min():g} to {images.max():g}"
        )
    return images
