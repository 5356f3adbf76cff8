"""examples/mnist_fig3.py: its data, its runs, its averages and its picture."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

from tests.support.example_tools import load


@pytest.fixture
def fig3(monkeypatch):
    """The module examples/mnist_fig3.py, with a small network and small batches."""
    module = load("mnist_fig3")
    for name, value in {"HIDDEN": 16, "BATCH": 50}.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.fixture
def images():
    """600 images of 4 times 4 bytes, with a white pixel for the label; 100 to test."""
    labels = np.arange(600) % 10
    pixels = np.random.default_rng(0).integers(100, size=(600, 16), dtype="uint8")
    pixels[np.arange(600), labels] = 255
    x = pixels.reshape(600, 4, 4)
    return {"x_train": x, "y_train": labels, "x_test": x[:100], "y_test": labels[:100]}


@pytest.fixture
def command(images, tmp_path):
    """A command line with these images."""
    np.savez(tmp_path / "images.npz", **images)
    data = ["--data", str(tmp_path / "images.npz")]
    return [*data, "--out", str(tmp_path / "new" / "out")]


def test_every_image_is_in_one_part_with_its_label(fig3, images, tmp_path):
    np.savez(tmp_path / "images.npz", **images)
    data = fig3.split(fig3.mlp.load(str(tmp_path / "images.npz")), seed=0)
    assert data.x.shape == (500, 16) and data.x_held.shape == (100, 16)
    both = np.concatenate([data.x, data.x_held])
    order = np.lexsort(both.T)
    expected = images["x_train"].reshape(600, 16).astype("float32") / 255
    where = np.lexsort(expected.T)
    np.testing.assert_array_equal(both[order], expected[where])
    labels = np.concatenate([data.y, data.y_held])
    np.testing.assert_array_equal(labels[order], images["y_train"][where])


def test_a_file_that_lacks_arrays_is_refused(fig3, images, tmp_path):
    np.savez(tmp_path / "images.npz", x_train=images["x_train"])
    with pytest.raises(ValueError, match="lacks y_train, x_test, y_test"):
        fig3.mlp.load(str(tmp_path / "images.npz"))


def test_later_samples_are_averaged(fig3):
    # Two examples of class 0; what each of four samples says of class 0.
    of_zero = np.array([[0.9, 0.9], [0.1, 0.9], [0.2, 0.2], [0.9, 0.2]])
    probabilities = np.stack([of_zero, 1.0 - of_zero], axis=-1)
    labels = np.zeros(2, "int32")
    newest = fig3.errors(probabilities, labels, burn_in=None)
    np.testing.assert_allclose(newest, [0, 50, 100, 50])
    # Means of samples 1, of 2, of 2 and 3, of 3 and 4.
    np.testing.assert_allclose(
        fig3.errors(probabilities, labels, burn_in=0.5), [0, 50, 50, 50]
    )
    np.testing.assert_allclose(
        fig3.errors(probabilities, labels, burn_in=0.0), [0, 0, 50, 0]
    )
    np.testing.assert_allclose(
        fig3.average(probabilities, 0.5)[:, 0], of_zero[2:].mean(axis=0)
    )


def test_a_finished_run_is_not_run_again(fig3, command, capsys):
    sgd = [*command, "--methods", "SGD", "--epochs", "2"]
    first = fig3.main([*sgd, "--seeds", "0"])
    records = fig3.main([*sgd, "--seeds", "0", "1"])
    assert [record["seed"] for record in records] == [0, 1]
    assert records[0] == first[0]
    assert records[0]["last"] != records[1]["last"]
    capsys.readouterr()
    assert fig3.main([*sgd, "--seeds", "0", "1"]) == records
    assert "SGD, seed" not in capsys.readouterr().out  # nothing was trained


@pytest.mark.slow
def test_every_method_has_a_row_and_a_curve(fig3, command, tmp_path):
    picture = tmp_path / "pictures" / "fig3.png"
    arguments = ["--epochs", "10", "--seeds", "0", "--picture", str(picture)]
    records = {r["method"]: r for r in fig3.main([*command, *arguments])}
    assert tuple(records) == fig3.METHODS
    for method, record in records.items():
        np.testing.assert_allclose(record["at"], np.arange(1, 11))  # epochs, or rounds
        assert len(record["errors"]) == 10
        assert ("acceptance" in record) == (method in ("MINT", "CMINT"))
        for name in ("last", "mean"):
            accuracy, nll, ece = record[name]
            assert 0 <= accuracy <= 1 and nll > 0 and 0 <= ece <= 1
    # Of the newest state, and of the average: each method shows its own.
    shown = {name: 100 * (1 - records[name]["last"][0]) for name in fig3.NEWEST}
    for name in set(fig3.METHODS) - set(fig3.NEWEST):
        shown[name] = 100 * (1 - records[name]["mean"][0])
    for method, error in shown.items():
        np.testing.assert_allclose(records[method]["errors"][-1], error, atol=0.01)
    assert records["SGD-M"]["errors"][-1] < 40  # guessing would give 90
    text = fig3.table(list(records.values()))
    assert all(f"| {method} | 10 | 1 |" in text for method in fig3.METHODS)
    height, width = pyplot.imread(picture).shape[:2]
    assert height > 500 and width > height
