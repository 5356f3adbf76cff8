"""examples/mnist_mlp.py runs, from the command line's arguments to its picture."""

import argparse

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

from tests.support.example_tools import load


@pytest.fixture(scope="module")
def mlp():
    """The module examples/mnist_mlp.py."""
    return load("mnist_mlp")


@pytest.fixture(scope="module")
def mlp_results(mlp, tmp_path_factory):
    """Results of a run of examples/mnist_mlp.py, and the picture."""
    picture = tmp_path_factory.mktemp("mlp") / "new" / "picture.png"
    sizes = ["--epochs", "2", "--chains", "2", "--rates", "0.1"]
    mlp.HIDDEN.update(table1=40, fig3=20)
    results = mlp.main(["--quick", *sizes, "--output", str(picture)])
    return results, picture


@pytest.mark.slow
def test_mlp_table_has_every_chain_and_method(mlp_results):
    rows = {row["method"]: row for row in mlp_results[0]["table1"]}
    assert list(rows) == ["RSGLD", "SGD", "SGLD"]
    for row in rows.values():
        assert row["rate"] == 0.1 and row["errors"].shape == (2, 2)
        assert 0.0 <= row["held_out"] <= 100.0
    # After two epochs; guessing would give 90.
    assert rows["SGD"]["errors"][-1].max() < 40.0
    # The paper's noise is too small to be seen so early.
    np.testing.assert_allclose(rows["SGLD"]["errors"], rows["SGD"]["errors"], atol=2)
    assert rows["SGD"]["acceptance"] is None and rows["SGD"]["beta"] is None
    assert 0.0 <= rows["RSGLD"]["acceptance"] <= 1.0 <= rows["RSGLD"]["beta"]


@pytest.mark.slow
def test_mlp_curves_have_an_error_for_each_sample(mlp_results):
    rows = {row["method"]: row for row in mlp_results[0]["fig3"]}
    assert list(rows) == ["SGD", "SGD-M", "SGLD", "SGHMC", "MINT", "CMINT"]
    for name, row in rows.items():
        if name != "CMINT":
            np.testing.assert_allclose(row["epochs"], [1, 2])
        assert len(row["epochs"]) == len(row["errors"])
        assert (row["acceptance"] is None) == (name not in ("MINT", "CMINT"))
        assert row["errors"][-1] < 80.0
    # Ten rounds or a little more, since a round is a whole number of steps.
    assert 10 <= len(rows["CMINT"]["epochs"]) <= 12


@pytest.mark.slow
def test_mlp_saves_its_picture(mlp_results):
    height, width = pyplot.imread(mlp_results[1]).shape[:2]
    assert height > 300 and width > 3 * height


def test_mlp_averages_the_later_samples(mlp):
    # Two examples of class 0; what each of four samples says of class 0.
    of_zero = np.array([[0.9, 0.9], [0.1, 0.9], [0.2, 0.2], [0.9, 0.2]])
    probabilities = np.stack([of_zero, 1.0 - of_zero], axis=-1)
    labels = np.zeros(2, "int32")
    newest = mlp.errors(probabilities, labels, burn_in=None)
    np.testing.assert_allclose(newest, [0, 50, 100, 50])
    # Means of samples 1, of 2, of 2 and 3, of 3 and 4.
    np.testing.assert_allclose(
        mlp.errors(probabilities, labels, burn_in=0.5), [0, 50, 50, 50]
    )
    np.testing.assert_allclose(
        mlp.errors(probabilities, labels, burn_in=0), [0, 0, 50, 0]
    )


def test_mlp_reads_a_file_and_holds_images_out(mlp, tmp_path):
    path = tmp_path / "images.npz"
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(256, size=(600, 4, 4), dtype="uint8"),
        "y_train": np.arange(600) % 10,
        "x_test": rng.integers(256, size=(20, 4, 4), dtype="uint8"),
        "y_test": np.arange(20) % 10,
    }
    np.savez(path, **arrays)
    loaded = mlp.load(argparse.Namespace(data=str(path), dataset="mnist"))
    data = mlp.split(loaded, "fig3", seed=0)
    assert data.x.shape == (500, 16) and data.x_held.shape == (100, 16)
    # Every training image is in one of the two parts, with its label.
    both = np.concatenate([data.x, data.x_held])
    order = np.lexsort(both.T)
    expected = arrays["x_train"].reshape(600, 16).astype("float32") / 255
    where = np.lexsort(expected.T)
    np.testing.assert_array_equal(both[order], expected[where])
    labels = np.concatenate([data.y, data.y_held])
    np.testing.assert_array_equal(labels[order], arrays["y_train"][where])
    np.savez(path, x_train=arrays["x_train"])
    with pytest.raises(ValueError, match="lacks y_train, x_test, y_test"):
        mlp.load(argparse.Namespace(data=str(path), dataset="mnist"))
