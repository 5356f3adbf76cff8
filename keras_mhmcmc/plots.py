"""Pictures of robustness and calibration; they need matplotlib."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc import metrics
from keras_mhmcmc.adversarial import RobustnessTable

# The colours of Okabe and Ito, which colour-blind readers can tell apart. Markers and
# dashes tell the lines apart without any colour.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
WRONG = "#D55E00"
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")
GREY = "0.82"
FEW = 10  # predictions in a bin: too few to tell their accuracy


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
    ax = _one_axes(ax)
    names = list(dict.fromkeys(row["model"] for row in table.rows))
    for index, name in enumerate(names):
        ax.plot(
            table.column(name, "epsilon"),
            100 * table.column(name, "accuracy"),
            color=COLOURS[index % len(COLOURS)],
            linestyle=DASHES[index % len(DASHES)],
            marker=MARKERS[index % len(MARKERS)],
            linewidth=2,
            markersize=6,
            label=name,
        )
    ax.set_title(f"Accuracy under {table.attack} attacks")
    ax.set_xlabel("strength: largest change of an input, in units of the input")
    ax.set_ylabel("accuracy (% of the attacked examples)")
    ax.set_ylim(-2, 102)
    ax.grid(color=GREY, linewidth=0.6)
    ax.legend(title="each model is attacked by itself", frameon=False)
    return ax


def reliability(probabilities, labels, axes=None, bins=15):
    """Reliability diagrams: accuracy against confidence, a panel for each model.

    A dot is a bin of predictions: their mean confidence, and the share of them that is
    right. The line from it to the diagonal is the gap in calibration. A dot is hollow
    if fewer than 10 predictions stand behind it. Bars are the share of all predictions
    in each bin.

    Args:
        probabilities: dict from names to class probabilities of shape (N, C), or (N,)
            or (N, 1) for class 1 of two.
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        axes: sequence of matplotlib `Axes`, one for each model; None makes a figure.
        bins: number of bins of confidence, at least 1; the expected calibration error
            in the title is taken over the same bins.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `probabilities` is no dict of probabilities, `labels` do not fit
            them, `axes` has another length, or `bins` is no positive integer.

    Example:

    >>> import numpy as np
    >>> figure = reliability({"SGD": np.array([[0.9, 0.1], [0.4, 0.6]])}, [0, 0])
    >>> figure.axes[0].get_title()
    'SGD\\nECE 0.350, accuracy 50.0%'
    """
    if not isinstance(probabilities, dict) or not probabilities:
        raise ValueError(
            "Argument `probabilities` must be a dict from names to class "
            'probabilities, such as {"ensemble": ensemble.predict(x)}. '
            f"Received: probabilities={probabilities!r}"
        )
    tables = {
        name: metrics.reliability(values, labels, bins)
        for name, values in probabilities.items()
    }
    axes = _many_axes(axes, (1, len(tables)), size=(2.8, 3.3), sharey=True)[0]
    for index, (ax, name) in enumerate(zip(axes, tables, strict=True)):
        colour = COLOURS[index % len(COLOURS)]
        _reliability_panel(ax, tables[name], colour)
        ece = metrics.ece(probabilities[name], labels, bins)
        accuracy = metrics.accuracy(probabilities[name], labels)
        ax.set_title(f"{name}\nECE {ece:.3f}, accuracy {accuracy:.1%}")
        ax.set_xlabel("confidence, the probability\nof the predicted class")
    axes[0].set_ylabel("accuracy (dots)\nshare of all predictions (bars)")
    axes[0].legend(loc="upper left", edgecolor="none", fontsize="small")
    return axes[0].figure


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
    if np.shape(epsilons) != (rows,):
        raise ValueError(
            f"Argument `epsilons` must be {rows} numbers, one for each row of images. "
            f"Received: epsilons={epsilons!r}"
        )
    if np.ndim(probabilities) != 3 or np.shape(probabilities)[:2] != (rows, columns):
        raise ValueError(
            "Argument `probabilities` must have the shape (R, E, C), with "
            f"(R, E) = {(rows, columns)} as in `images`. "
            f"Received: shape {np.shape(probabilities)}"
        )
    classes = np.shape(probabilities)[2]
    flat = metrics.as_probabilities(
        "Argument `probabilities`", np.reshape(probabilities, (-1, classes))
    )
    probabilities = flat.reshape(rows, columns, -1)
    labels = metrics.as_labels("labels", labels, columns, probabilities.shape[2])

    own_figure = axes is None
    axes = _many_axes(axes, (rows, columns), size=(1.05, 1.35))
    for row in range(rows):
        for column in range(columns):
            ax = axes[row, column]
            _image_panel(
                ax, images[row, column], probabilities[row, column], labels[column]
            )
            if row == 0:
                ax.set_title(f"true class {labels[column]}", fontsize=10)
        axes[row, 0].set_ylabel(f"strength\n{epsilons[row]:g}", fontsize=10)
    if own_figure:
        axes[0, 0].figure.suptitle(
            f"{title or 'Adversarial images'}\nUnder each: the predicted class and its "
            "probability. A frame and ✗: wrong.",
            fontsize=11,
        )
    return axes[0, 0].figure


def _reliability_panel(ax, table, colour):
    bins = len(table.count)
    share = table.count / table.count.sum()
    centres = (np.arange(bins) + 0.5) / bins
    ax.bar(centres, share, 1 / bins, color=GREY, edgecolor="white", label="share")
    ax.plot([0, 1], [0, 1], color="0.3", linewidth=1, linestyle="--", label="ideal")
    is_few = table.count < FEW
    groups = {
        "accuracy": ((table.count > 0) & ~is_few, colour, 2.0),
        f"accuracy, n < {FEW}": ((table.count > 0) & is_few, "white", 0.8),
    }
    for label, (group, fill, width) in groups.items():
        confidence, accuracy = table.confidence[group], table.accuracy[group]
        gap = None if label != "accuracy" else "gap"
        ax.vlines(confidence, confidence, accuracy, colour, linewidth=width, label=gap)
        # On top of the frame, where many dots lie; the layout need not know of that.
        (dots,) = ax.plot(
            confidence,
            accuracy,
            linestyle="",
            marker="o",
            color=colour,
            markerfacecolor=fill,
            clip_on=False,
            zorder=3,
            label=label,
        )
        dots.set_in_layout(False)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    ax.set_aspect("equal")


def _image_panel(ax, image, probabilities, label):
    predicted = int(np.argmax(probabilities))
    is_wrong = predicted != label
    ax.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
    ax.set_xticks([])
    ax.set_yticks([])
    text = f"{predicted} ({probabilities[predicted]:.0%})"
    ax.set_xlabel(
        f"✗ {text}" if is_wrong else text,
        color=WRONG if is_wrong else "black",
        fontsize=9,
        labelpad=2,
    )
    for spine in ax.spines.values():
        spine.set_color(WRONG if is_wrong else GREY)
        spine.set_linewidth(2.5 if is_wrong else 0.5)


def _images(images):
    """Float images of shape (R, E, H, W) or (R, E, H, W, 3)."""
    images = metrics.as_floats("Argument `images`", images)
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


def _pyplot():
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib: pip install keras-mhmcmc[plots]"
        ) from error
    return pyplot


def _one_axes(ax):
    pyplot = _pyplot()
    if ax is None:
        return pyplot.subplots(figsize=(6.4, 4.4), layout="constrained")[1]
    return _checked_axes("ax", ax)


def _many_axes(axes, shape, size, sharey=False):
    """An array of `Axes` of this shape, new ones unless some are given."""
    pyplot = _pyplot()
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
        _checked_axes("axes", ax)
    return axes.reshape(shape)


def _checked_axes(name, ax):
    from matplotlib.axes import Axes

    return _validate.instance(name, ax, Axes, "matplotlib `Axes`")
