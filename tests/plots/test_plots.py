"""Pictures of models: what is drawn where."""

import sys

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

from keras_mhmcmc import plots
from keras_mhmcmc.adversarial import RobustnessTable
from keras_mhmcmc.evaluation import metrics

EPSILONS = (0.0, 0.1, 0.2)
ACCURACY = {"SGD": (0.9, 0.5, 0.0), "RSGLD": (0.8, 0.7, 0.25)}


def robustness_table():
    return RobustnessTable(
        [
            {"model": m, "epsilon": e, "accuracy": a, "nll": 1.0, "entropy": 1.0}
            for m, accuracies in ACCURACY.items()
            for e, a in zip(EPSILONS, accuracies, strict=True)
        ]
    )


def predictions(examples=60, classes=4, seed=0):
    """Probabilities, and labels that are drawn from them."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.3), examples)
    labels = [rng.choice(classes, p=p) for p in probabilities]
    return probabilities, np.array(labels)


def texts(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_robustness_draws_a_line_for_each_model():
    """They differ without colour."""
    ax = plots.robustness(robustness_table())
    assert [line.get_label() for line in ax.lines] == list(ACCURACY)
    for line, accuracies in zip(ax.lines, ACCURACY.values(), strict=True):
        np.testing.assert_allclose(line.get_xdata(), EPSILONS)
        np.testing.assert_allclose(line.get_ydata(), 100 * np.array(accuracies))
    assert texts(ax.get_legend()) == list(ACCURACY)
    looks = {(line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(looks) == len(ACCURACY)
    assert "FGSM" in ax.get_title() and "%" in ax.get_ylabel()


def test_reliability_has_a_panel_for_each_model():
    probabilities, labels = predictions()
    flat = np.full_like(probabilities, 0.25)
    figure = plots.reliability({"sharp": probabilities, "flat": flat}, labels, bins=5)
    assert len(figure.axes) == 2
    for ax, name, values in zip(
        figure.axes, ("sharp", "flat"), (probabilities, flat), strict=True
    ):
        ece = metrics.ece(values, labels, bins=5)
        assert ax.get_title().startswith(f"{name}\nECE {ece:.3f}")
        assert "confidence" in ax.get_xlabel()
    assert "accuracy" in figure.axes[0].get_ylabel()
    assert {"ideal", "95% interval", "accuracy", "share"} <= set(
        texts(figure.axes[0].get_legend())
    )


def test_reliability_draws_accuracies_intervals_and_shares():
    probabilities, labels = predictions()
    (ax,) = plots.reliability({"model": probabilities}, labels, bins=5).axes
    table = metrics.reliability(probabilities, labels, bins=5)
    drawn = {line.get_label(): line for line in ax.lines}
    many = drawn["accuracy"].get_xydata()
    few = drawn["accuracy, n < 10"].get_xydata()
    full = table.count > 0
    expected = np.column_stack([table.confidence[full], table.accuracy[full]])
    dots = np.concatenate([many, few])
    np.testing.assert_allclose(dots[np.argsort(dots[:, 0])], expected)
    assert len(many) == np.sum(table.count >= 10)

    stats = pytest.importorskip("scipy.stats")
    segments = sorted(s.tolist() for c in ax.collections for s in c.get_segments())
    right = np.round(table.accuracy[full] * table.count[full]).astype(int)
    assert len(segments) == len(right)
    for segment, x, k, n in zip(
        segments, table.confidence[full], right, table.count[full], strict=True
    ):
        wilson = stats.binomtest(int(k), int(n)).proportion_ci(0.95, "wilson")
        expected = [[x, wilson.low], [x, wilson.high]]
        np.testing.assert_allclose(segment, expected, atol=1e-4)

    shares = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(shares, table.count / 60)


@pytest.mark.parametrize("confidence", [0.26, 0.999])
def test_reliability_keeps_its_layout_when_a_group_of_dots_is_empty(confidence):
    few = np.tile([confidence] + 3 * [(1 - confidence) / 3], (5, 1))
    probabilities, labels = predictions(examples=5)
    figure = plots.reliability({"few": few, "other": probabilities}, labels)
    figure.canvas.draw()  # a collapsed layout would warn
    for ax in figure.axes:
        assert ax.get_position().width > 0.25


def test_binary_probabilities_are_read_as_those_of_class_1():
    figure = plots.reliability({"binary": np.array([[0.9], [0.2]])}, [1, 1])
    assert "accuracy 50.0%" in figure.axes[0].get_title()


def grid_arguments(strengths=3, examples=2, shape=(8, 8)):
    rng = np.random.default_rng(0)
    probabilities, _ = predictions(strengths * examples)
    return {
        "images": rng.uniform(size=(strengths, examples, *shape)),
        "probabilities": probabilities.reshape(strengths, examples, 4),
        "labels": np.argmax(probabilities[:examples], axis=1),
        "epsilons": [0.0, 0.05, 0.1][:strengths],
    }


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (8, 8, 3)])
def test_the_grid_has_an_image_for_each_strength_and_example(shape):
    arguments = grid_arguments(shape=shape)
    figure = plots.adversarial_grid(**arguments)
    assert len(figure.axes) == 6
    for i, ax in enumerate(figure.axes):
        (image,) = ax.images
        pixels = arguments["images"][i // 2, i % 2]
        drawn = np.asarray(image.get_array()).reshape(pixels.shape)
        np.testing.assert_allclose(drawn, pixels)
        assert image.get_clim() == (0.0, 1.0)
    labels = arguments["labels"]
    assert [ax.get_title() for ax in figure.axes[:2]] == [
        f"true class {label}" for label in labels
    ]
    assert figure.axes[2].get_ylabel() == "strength\n0.05"


def test_the_grid_tells_predictions_and_marks_the_wrong_ones():
    arguments = grid_arguments()
    figure = plots.adversarial_grid(**arguments, title="Attacks")
    rows = arguments["probabilities"].reshape(6, 4)
    marks = []
    for i, (ax, row) in enumerate(zip(figure.axes, rows, strict=True)):
        text = f"{np.argmax(row)} ({np.max(row):.0%})"
        is_wrong = np.argmax(row) != arguments["labels"][i % 2]
        marks.append(is_wrong)
        assert ax.get_xlabel() == (f"✗ {text}" if is_wrong else text)
        assert (ax.spines["top"].get_linewidth() > 1) == is_wrong
    assert not any(marks[:2]) and any(marks)  # the case has both kinds
    lines = figure.get_suptitle().split("\n")
    assert lines[0] == "Attacks" and "probability" in lines[1] and "✗" in lines[1]


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.delattr(matplotlib, "pyplot")
    with pytest.raises(ImportError, match=r"pip install keras-mhmcmc\[plots\]"):
        plots.robustness(robustness_table())


def test_plots_are_drawn_into_given_axes():
    figure, axes = pyplot.subplots(3, 2)
    ax = axes[0, 0]
    assert plots.robustness(robustness_table(), ax=ax) is ax and ax.get_title()
    assert not any(other.lines for other in axes.flat[1:])
    assert plots.adversarial_grid(**grid_arguments(), axes=axes) is figure
    assert all(len(ax.images) == 1 for ax in axes.flat)
    assert figure.get_suptitle() == ""
    models = {str(i): predictions()[0] for i in range(6)}
    assert plots.reliability(models, predictions()[1], axes=axes) is figure
    assert axes[2, 1].get_title().startswith("5\n")
    assert len(pyplot.get_fignums()) == 1


def test_predictive_draws_intervals_and_the_parts_of_the_deviation():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=20), rng.normal(size=(20, 2))
    prediction = metrics.NormalMixture(rng.normal(size=(3, 20, 2)), 0.5)
    figure = plots.predictive(prediction, x, y, target=1)
    upper, lower = figure.axes
    drawn = {line.get_label(): line.get_xydata() for line in upper.lines}
    order = np.argsort(x)
    np.testing.assert_array_equal(drawn["mean"][:, 0], x[order])
    np.testing.assert_array_equal(drawn["mean"][:, 1], prediction.mean()[order, 1])
    np.testing.assert_array_equal(drawn["data"][:, 1], y[order, 1])
    high = upper.collections[0].get_paths()[0].vertices[:, 1].max()
    assert high == prediction.interval(0.9)[1][:, 1].max()
    parts = {line.get_label(): line.get_ydata() for line in lower.lines}
    squares = parts["noise"] ** 2 + parts["members"] ** 2
    np.testing.assert_allclose(parts["total"] ** 2, squares)
    for change, message in (
        ({"target": 2}, "`target` must be an integer that is at most 1"),
        ({"x": x[:5]}, "`x` must have one number for each of 20"),
        ({"prediction": y}, "`prediction` must be a result"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.predictive(**({"prediction": prediction, "x": x} | change))
