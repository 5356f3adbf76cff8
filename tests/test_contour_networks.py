"""Examples that train networks with contour samplers: UCI regression and CIFAR."""

import argparse
import io
import json

import keras
import numpy as np
import pytest

from tests.support.example_tools import EXAMPLES
from tests.support.example_tools import load


@pytest.fixture(scope="module")
def uci():
    """The module examples/uci_regression.py."""
    return load("uci_regression")


@pytest.mark.slow
def test_uci_compares_methods(uci, tmp_path, monkeypatch):
    monkeypatch.setattr(uci, "METHODS", ("SGD", "SGHMC", "CSGHMC"))  # half, for speed
    command = ["--quick", "--epochs", "20", "--results", str(tmp_path / "new" / "rows")]
    (row,) = rows = uci.main(command)
    assert list(row["rmse"]) == list(uci.METHODS)
    data = uci.load("diabetes", None, 0)
    # Better than the mean of the training targets.
    guess = data.unit * np.sqrt(np.mean(np.square(data.y_test)))
    assert all(error < guess - 5.0 for error in row["rmse"].values())
    for method, ess in row["ess"].items():
        assert (ess < 49.99) == method.startswith("CS")
    # A finished repeat is not run again.
    monkeypatch.setattr(uci, "train", None)
    assert uci.main(command) == rows == uci.main([*command, "--table"])


def test_uci_table_has_paired_differences(uci):
    rows = [
        {
            "dataset": "energy",
            "rmse": {"SGLD": a, "CSGLD": b},
            "ess": {"SGLD": 50.0, "CSGLD": 40.0},
        }
        for a, b in ((1.0, 0.5), (2.0, 1.7))
    ]
    lines = uci.table(rows)
    assert lines[2] == "| SGLD | 1.500 ± 0.500 (1.08) | 50.0 |"
    assert lines[-1] == "| CSGLD minus SGLD | -0.400 ± 0.100 |  |"


def test_the_page_has_the_stored_table(uci):
    rows = uci.read(EXAMPLES / "results" / "uci.jsonl")
    assert {row["epochs"] for row in rows} == {5000}
    page = (EXAMPLES.parent / "docs" / "reproduction.md").read_text("utf-8")
    assert "\n".join(uci.table(rows)) in page


def test_uci_energy_is_the_papers_sum_of_squares(uci):
    loss = keras.losses.get(uci.mh.losses.GaussianNLL(uci.NOISE_STD))
    y, predicted = np.array([[1.0], [2.0], [4.0]]), np.array([[0.0], [2.0], [7.0]])
    constant = float(loss(y, y))
    energy = 3 * (float(loss(y, predicted)) - constant)
    assert energy == pytest.approx(1.0 + 0.0 + 9.0, rel=1e-4)


def test_uci_reads_files_and_splits_them(uci, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(3.0, 2.0, (200, 3)), rng.normal(5.0, 4.0, 200)
    x[:, 2] = 7.0  # a constant feature
    listed = np.arange(40).reshape(2, 20)
    np.savez(tmp_path / "uci_energy.npz", X=x, y=y, test_index=listed)
    np.savez(tmp_path / "kin8nm.npz", X=x, y=y)
    data = uci.load("energy", tmp_path, 1)
    assert data.unit == 1.0
    np.testing.assert_allclose(
        data.y_test,
        y[20:40] - y[40:].sum() / 180 - y[:20].sum() / 180,
        rtol=1e-3,
        atol=1e-4,
    )
    data = uci.load("kin8nm", tmp_path, 0)
    assert data.unit == pytest.approx(np.std(y), rel=0.1)
    assert data.x.shape == (180, 3) and data.x_test.shape == (20, 3)
    np.testing.assert_allclose(data.x.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(data.x.std(axis=0), [1.0, 1.0, 0.0], atol=1e-6)
    spread = np.concatenate([data.y, data.y_test]).std() * data.unit
    assert spread == pytest.approx(np.std(y), rel=1e-5)
    batches = uci.Batches(data, seed=0)
    assert len(batches) == 3
    seen = np.concatenate([batches[i][1] for i in range(3)])
    assert len(np.unique(seen)) == 150  # no example comes twice
    with pytest.raises(ValueError, match="yacht.npz or uci_yacht.npz"):
        uci.load("yacht", tmp_path, 0)


def test_uci_optimizers_have_the_papers_units(uci):
    n, partition = 700, uci.mh.EnergyPartition(500.0, 100.0, 50)
    for method in uci.METHODS:
        task = uci.TASKS["yacht"]
        optimizer = uci.make_optimizer(method, n, task, 0, partition)
        assert float(optimizer.learning_rate) == pytest.approx(5e-6 * n)
        assert optimizer.temperature == (0.0 if method in ("SGD", "M-SGD") else 1.0)
        assert ("momentum" in optimizer.get_config()) == (method in uci.METHODS[3:])
        assert optimizer.algorithm.traits.has_weights == method.startswith("CS")


def test_uci_partition_does_not_drive_uphill(uci):
    energies, wine = np.linspace(1000.0, 1100.0, 50), uci.TASKS["wine_quality_red"]
    suggested = uci.mh.suggest_partition(energies)
    assert uci.make_partition(energies, uci.Task(), None) == suggested
    assert uci.make_partition(energies, wine, 7.0).energy_gap == 7.0
    gap = uci.make_partition(energies, wine, None).energy_gap
    assert gap > suggested.energy_gap
    # The first theta halves at the end: the multiplier there.
    assert 1.0 - wine.zeta * wine.temperature * np.log(2.0) / gap > 0.0


@pytest.mark.parametrize(
    "arguments", [["--epochs", "5"], ["--datasets", "yacht"], ["--repeats", "0"]]
)
def test_uci_refuses_bad_arguments(uci, arguments, capsys):
    with pytest.raises(SystemExit):
        uci.main(arguments)
    assert arguments[0] in capsys.readouterr().err.split("error:")[1]


@pytest.fixture(scope="module")
def cifar():
    """The module examples/cifar_resnet.py."""
    return load("cifar_resnet")


@pytest.mark.slow
def test_cifar_learns_synthetic_images(cifar, tmp_path):
    file = tmp_path / "new" / "rows.json"
    options = ["--methods", "saCSGHMC", "--output", str(file)]
    (row,) = rows = cifar.main(["--quick", *options])
    assert json.loads(file.read_text()) == rows
    assert row["method"] == "saCSGHMC" and row["models"] == 3
    # Guessing would give 25.
    assert row["bpe"] >= row["last"] and row["bpe"] > 60.0 and row["bma"] > 60.0
    assert row["ess"] < 3.0  # the weights differ


@pytest.mark.slow_on("jax")
def test_cifar_network_is_resnet20(cifar):
    model = cifar.resnet((32, 32, 3), classes=10, width=16, blocks=3)
    convolutions = [x for x in model.layers if isinstance(x, keras.layers.Conv2D)]
    assert len(convolutions) + 1 == 20  # layers with weights, as the paper counts
    # 0.27 million of He, Zhang, Ren and Sun (2016), table 6.
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == 269_722
    assert model.output_shape == (None, 10)


def test_cifar_schedules_hold_and_fall(cifar):
    args = argparse.Namespace(seed=0, random_field="zeta")
    task = cifar.TASKS["cifar10"]
    optimizer = cifar.make_optimizer("saCSGHMC", 50_000, task, 1000, 50, args)
    rate, temperature = optimizer._learning_rate, optimizer.temperature
    at = {epoch: float(rate(epoch * 50)) for epoch in (0, 400, 401, 1000)}
    assert at[0] == at[400] == pytest.approx(0.1)
    assert at[401] == pytest.approx(0.1 / 1.01, rel=1e-5)
    assert at[1000] == pytest.approx(0.1 / 1.01**600, rel=1e-3)
    assert float(temperature(49)) == pytest.approx(0.01)
    assert float(temperature(500)) == pytest.approx(0.01 / 1.01**10, rel=1e-4)
    # The paper's numbers, for its number of images.
    config = optimizer.get_config()
    assert optimizer.arguments["partition"].energy_gap == pytest.approx(1000)
    assert config["zeta"] == pytest.approx(1e6)
    assert len(config["masses"]) == 200 and len(set(config["masses"])) == 1
    assert config["prior"]["config"]["scale"] == pytest.approx(25**-0.5)
    # A tenth of the epochs falls as far.
    short = cifar.make_optimizer("saSGHMC", 50_000, task, 100, 50, args)
    assert float(short._learning_rate(5000)) == pytest.approx(at[1000], rel=1e-3)


def test_cifar_augmentation_shifts_and_mirrors(cifar):
    rng = np.random.default_rng(0)
    x = rng.uniform(1.0, 2.0, (20, 8, 8, 3)).astype("float32")
    batches = cifar.data.Batches(x, np.arange(20), batch_size=10, seed=0)
    assert len(batches) == 2
    border = ((0, 0), (4, 4), (4, 4), (0, 0))
    padded, mirrored = np.pad(x, border), 0
    for index in range(2):
        for image, label in zip(*batches[index], strict=True):
            found = [
                side
                for side, source in ((0, image), (1, image[:, ::-1]))
                for top in range(9)
                for left in range(9)
                if np.array_equal(source, padded[label, top : top + 8, left : left + 8])
            ]
            assert len(found) == 1
            mirrored += found[0]
    assert 4 <= mirrored <= 16


def test_cifar_reads_jpeg_files_in_one_array(cifar, tmp_path):
    image = pytest.importorskip("PIL.Image")
    colours = np.array([[250, 10, 10], [10, 250, 10], [10, 10, 250]], "uint8")
    files = []
    for colour in colours:
        buffer = io.BytesIO()
        pixels = np.broadcast_to(colour, (32, 32, 3))
        image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "JPEG", quality=95)
        files.append(np.frombuffer(buffer.getvalue(), "uint8"))
    parts = {
        f"{key}_{part}": value
        for part in ("train", "test")
        for key, value in (
            ("jpg", np.concatenate(files)),
            ("off", np.cumsum([0, *map(len, files)])),
            ("y", np.array([3, 1, 2], "uint8")),
        )
    }
    np.savez(tmp_path / "cifar10.npz", **parts)
    (x, y), (x_test, _) = cifar.data.load("cifar10", tmp_path)
    assert x.shape == x_test.shape == (3, 32, 32, 3) and x.dtype == np.float32
    np.testing.assert_allclose(x.mean(axis=(1, 2)), colours / 255, atol=0.03)
    np.testing.assert_array_equal(y, [3, 1, 2])
