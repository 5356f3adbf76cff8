"""Pictures of models: calibration, intervals, attacks and shifted inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.adversarial import RobustnessTable
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.shift import SCORES
from keras_mhmcmc.evaluation.shift import ShiftTable
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10  # with fewer predictions in a bin, its accuracy is uncertain
_LABELS = {
    "accuracy": "accuracy (%)",
    "nll": "NLL (nats)",
    "ece": "calibration error (ECE)",
}


def reliability(
    probabilities: Mapping[str, npt.ArrayLike],
    labels: npt.ArrayLike,
    axes: Any = None,
    bins: int = 15,
) -> "Figure":
    """Plot reliability diagrams, accuracy against confidence, one for each model.

    A dot shows a bin of predictions: their mean confidence and the share of correct
    ones. The line through the dot is the 95% interval of the share, by Wilson's
    formula. If it meets the diagonal, the gap may be chance. A dot is hollow if its bin
    has fewer than 10 predictions. Bars show the share of all predictions in each bin.

    Args:
        probabilities: dict from names to class probabilities, shape (N, C), or to the
            probability of class 1 of two, shape (N,) or (N, 1).
        labels: integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        axes: matplotlib `Axes`, one for each model, or None for a new figure.
        bins: number of confidence bins, at least 1, also for the expected calibration
            error in the title. Defaults to 15.

    Example:

    >>> import numpy as np
    >>> figure = reliability({"SGD": np.array([[0.9, 0.1], [0.4, 0.6]])}, [0, 0])
    >>> figure.axes[0].get_title()
    'SGD\\nECE 0.350, accuracy 50.0%'
    """
    if not isinstance(probabilities, Mapping) or not probabilities:
        raise ValueError(
            "Argument `probabilities` must be a dict from names to class "
            'probabilities, such as {"ensemble": ensemble.predict(x)}. '
            f"Received: probabilities={probabilities!r}"
        )
    tables = [metrics.reliability(p, labels, bins) for p in probabilities.values()]
    shape = (1, len(tables))
    figure, [panels] = style.many_axes(axes, shape, size=(2.8, 3.3), sharey=True)
    for index, (name, values) in enumerate(probabilities.items()):
        ax = panels[index]
        _reliability_panel(ax, tables[index], style.colour(index))
        ece = metrics.ece(values, labels, bins)
        accuracy = metrics.accuracy(values, labels)
        ax.set_title(f"{name}\nECE {ece:.3f}, accuracy {accuracy:.1%}")
        ax.set_xlabel("confidence, the probability\nof the predicted class")
    panels[0].set_ylabel("accuracy (dots)\nshare of all predictions (bars)")
    panels[0].legend(loc="upper left", edgecolor="none", fontsize="small")
    return figure


def _reliability_panel(ax: "Axes", table: metrics.Reliability, colour: str) -> None:
    bins = len(table.count)
    share = table.count / table.count.sum()
    centres = (np.arange(bins) + 0.5) / bins
    ax.bar(centres, share, 1 / bins, color=style.GREY, edgecolor="white", label="share")
    ax.plot([0, 1], [0, 1], color="0.3", linewidth=1, linestyle="--", label="ideal")
    is_few = table.count < FEW
    groups = {
        "accuracy": ((table.count > 0) & ~is_few, colour, 2.0),
        f"accuracy, n < {FEW}": ((table.count > 0) & is_few, "white", 0.8),
    }
    for label, (group, fill, width) in groups.items():
        confidence, right = table.confidence[group], table.accuracy[group]
        z2, count = 1.96**2, table.count[group]  # of Wilson's interval
        centre = (right + z2 / (2 * count)) / (1 + z2 / count)
        spread = np.sqrt(right * (1 - right) / count + z2 / (4 * count**2))
        half = np.sqrt(z2) * spread / (1 + z2 / count)
        interval = "95% interval" if label == "accuracy" else ""  # once in the legend
        ends = centre - half, centre + half
        ax.vlines(confidence, *ends, colour, linewidth=width, label=interval)
        # Draw over the frame, where many dots lie, and keep the layout as it is.
        looks: dict[str, Any] = dict(
            color=colour, markerfacecolor=fill, clip_on=False, zorder=3
        )
        (dots,) = ax.plot(confidence, right, "o", **looks, label=label)
        dots.set_in_layout(False)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])


def predictive(
    prediction: metrics.PredictiveMixture,
    x: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    axes: Any = None,
    target: int = 0,
) -> "Figure":
    """Plot the mean and the 50% and 90% intervals of a prediction, and their causes.

    The lower panel splits the standard deviation: the noise, which stays with more
    data, and the difference between members, which shrinks with it.

    Args:
        prediction: result of `mh.predict_distribution` for N examples.
        x: finite numbers to plot against, shape (N,) or (N, 1), such as one column of
            the inputs. They may stand in any order.
        y: targets, shape (N, D), or (N,) if D is 1. Defaults to None: no data.
        axes: two matplotlib `Axes`, the upper and the lower, or None for a new figure.
        target: position of the target to plot, at least 0. Defaults to 0.

    Example:

    >>> from keras_mhmcmc.evaluation.metrics import NormalMixture
    >>> prediction = NormalMixture([[0.0, 1.0], [0.5, 2.0]], noise_std=0.5)
    >>> figure = predictive(prediction, x=[0.0, 1.0], y=[0.2, 1.4])
    >>> figure.axes[1].get_ylabel()
    'standard deviation'

    Reference: Depeweg et al. (2018), "Decomposition of uncertainty in Bayesian deep
    learning for efficient and risk-sensitive learning", for the two parts.
    """
    kind = metrics.PredictiveMixture
    hint = "a result of `mh.predict_distribution`"
    _validate.instance("prediction", prediction, kind, hint)
    mean = prediction.mean()
    examples, targets = mean.shape
    target = _validate.integer("target", target, 0, high=targets - 1)
    places = checks.as_finite("x", x, ranks=(1, 2), axes="(examples,)")
    if places.shape not in ((examples,), (examples, 1)):
        raise ValueError(
            f"Argument `x` must have one number for each of {examples} examples. Pass "
            f"one column of the inputs. Received: shape {places.shape}"
        )
    order = np.argsort(places.ravel())
    places = places.ravel()[order]
    figure, panels = style.many_axes(axes, (2, 1), size=(6.0, 2.9))
    upper, lower = panels.ravel()
    blue, orange = style.COLOURS[:2]
    for level, strength in ((0.9, 0.2), (0.5, 0.4)):
        low, high = (end[order, target] for end in prediction.interval(level))
        shade: dict[str, Any] = {"color": blue, "alpha": strength, "linewidth": 0}
        upper.fill_between(places, low, high, **shade, label=f"{level:.0%} interval")
    upper.plot(places, mean[order, target], color=blue, label="mean")
    if y is not None:
        values = checks.as_targets("y", y, mean.shape)[order, target]
        upper.plot(places, values, "k.", markersize=3, label="data", zorder=3)
    upper.set_ylabel("target")
    parts = {
        "total": (prediction.std(), "0.2", "-"),
        "noise": (prediction.noise_std(), blue, "--"),
        "members": (prediction.member_std(), orange, "-."),
    }
    for name, (values, colour, dashes) in parts.items():
        line = values[order, target]
        lower.plot(places, line, color=colour, linestyle=dashes, label=name)
    lower.set_ylim(bottom=0.0)
    lower.set(xlabel="x", ylabel="standard deviation")
    for panel in (upper, lower):
        above: dict[str, Any] = dict(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4
        )
        panel.legend(frameon=False, fontsize="small", **above)
    return figure


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
    title, ends = f"Accuracy under {table.attack} attacks", (-2, 102)
    unit = "strength: largest change of an input, in units of the input"
    accuracies = "accuracy (% of the attacked examples)"
    style.frame(ax, unit, accuracies, title=title, ylim=ends)
    ax.legend(title="each model is attacked separately", frameon=False)
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
        style.frame(ax, "severity", _LABELS[name], xticks=severities)
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
    pictures = _validate.array("Argument `images`", images)
    if pictures.ndim == 5 and pictures.shape[-1] == 1:
        pictures = pictures[..., 0]
    is_colour = pictures.ndim == 5 and pictures.shape[-1] == 3
    if pictures.size == 0 or not (pictures.ndim == 4 or is_colour):
        raise ValueError(
            "Argument `images` must have the shape (rows, examples, height, width), or "
            f"one with a last axis of 1 or 3. Received: shape {pictures.shape}"
        )
    if not (pictures.min() >= 0.0 and pictures.max() <= 1.0):
        raise ValueError(
            "Argument `images` must lie in [0, 1]. Divide uint8 images by 255. "
            f"Received: values from {pictures.min():g} to {pictures.max():g}"
        )
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
            f"{subject} must have the shape (rows, examples, classes), where `images` "
            f"has (rows, examples) = {shape}. Received: shape {values.shape}"
        )
    flat = checks.as_probabilities(subject, values.reshape(-1, values.shape[2]))
    predictions = flat.reshape(rows, columns, -1)
    classes = checks.as_labels("labels", labels, columns, predictions.shape[2])
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
