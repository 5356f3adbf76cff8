"""examples/mnist_table1.py: its data, its runs, and what it keeps of them."""

import json

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

from keras_mhmcmc.fit import arguments as defaults
from keras_mhmcmc.samplers import mhbt
from tests.support.example_tools import load

pytestmark = pytest.mark.slow


@pytest.fixture
def table1(monkeypatch):
    """The module examples/mnist_table1.py, with a small network and short blocks."""
    module = load("mnist_table1")
    sizes = {"HIDDEN": 16, "STDDEV": 0.3, "BLOCK": 1, "SHOWN": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.fixture
def command(tmp_path):
    """A command line with 1,200 small images, with a white pixel for the label."""
    rng = np.random.default_rng(0)
    labels = np.arange(1200) % 10
    images = rng.integers(100, size=(1200, 3, 4), dtype="uint8")
    images.reshape(1200, 12)[np.arange(1200), labels] = 255
    arrays = {"x_train": images, "y_train": labels}
    path = tmp_path / "images.npz"
    np.savez(path, **arrays, x_test=images[:200], y_test=labels[:200])
    folder = ["--data", str(path), "--out", str(tmp_path / "out")]
    return [*folder, "--rates", "0.4", "--chains", "2"]


def test_the_first_twelfth_is_held_out(table1):
    x, y = np.arange(60)[:, None], np.arange(60)
    data = table1.split([x, y, x[:3], y[:3]])
    np.testing.assert_array_equal(data.y, np.arange(5, 60))
    np.testing.assert_array_equal(data.x[:, 0], data.y)
    np.testing.assert_array_equal(data.y_held, np.arange(5))
    data = table1.split([x, y, x[:3], y[:3]], "last")
    np.testing.assert_array_equal(data.x[:, 0], np.arange(55))
    np.testing.assert_array_equal(data.y_held, np.arange(55, 60))


def test_other_data_and_other_seeds_are_other_runs(table1, command, tmp_path):
    sgd = [*command, "--methods", "SGD", "--epochs", "1"]
    table1.main(sgd)
    table1.main([*sgd, "--held-out", "last"])
    records = table1.main([*sgd, "--seed", "1"])
    assert [table1.label(record) for record in records] == [
        "SGD",
        "SGD, last held out",
        "SGD, seed 1",
    ]
    assert len({record["last"][0][1] for record in records}) == 3
    assert table1.main([*sgd, "--held-out", "last"]) == records


def test_the_warm_ups_are_those_of_the_names(table1):
    wanted = {"RSGLD": 5500, "RSGLD-500-steps": 500, "RSGLD-5-epochs": 2750}
    wanted |= {"RSGLD-20-epochs": 11_000, "RSGLD-refreshes": 500, "RSGLD-paper": 0}
    for name, steps in wanted.items():
        made = table1.make_optimizer(name, 0.4, 55_000, 0, 100)
        assert made.warm_up_argument == ("warm_up", steps)
    assert made.get_config()["forward_probability"] == 0.5


def test_a_longer_run_of_another_warm_up_is_refused(table1, command, monkeypatch):
    for module in (mhbt, defaults):
        monkeypatch.setattr(module, "WARM_UP", 2)
    words = [*command, "--methods", "RSGLD", "--epochs"]
    table1.main([*words, "2"])
    with pytest.raises(SystemExit, match="a run of another default warm-up"):
        table1.main([*words, "8"])


def test_a_run_of_other_chains_or_of_more_epochs_is_refused(table1, command):
    sgd = [*command, "--methods", "SGD", "--epochs"]
    table1.main([*sgd, "2"])
    for words in ([*sgd, "3", "--chains", "3"], [*sgd, "1"]):
        with pytest.raises(SystemExit, match="a run of 2 epochs with 2 chains, not"):
            table1.main(words)


def test_a_network_that_broke_down_has_an_error_and_no_nll(table1):
    labels = np.arange(10)
    assert table1.mlp.three(np.eye(10), labels)[0] == 1.0
    scores = table1.mlp.three(np.full((10, 10), np.nan), labels)
    np.testing.assert_equal(scores, [0.1, np.nan, np.nan])
    record = {"method": "SGD-naive", "rate": 0.4, "epochs": 1, "errors": [[90.0]]}
    text = table1.table([record | {"last": [scores], "ensemble": [], "seconds": 0}])
    assert "| 90.00 (90.00 to 90.00) | NaN | — |" in text


@pytest.mark.slow_on("torch")
def test_a_run_goes_on_and_is_kept(table1, command, tmp_path, capsys):
    sgd = [*command, "--methods", "SGD"]
    table1.main([*sgd, "--epochs", "2"])
    stopped = json.loads((tmp_path / "out/SGD_0.4/record.json").read_text())
    records = table1.main([*sgd, "--epochs", "3"])
    assert [record["epochs"] for record in records] == [2, 3]
    # The first epochs were not run again.
    assert records[1]["errors"][:2] == records[0]["errors"]
    assert records[1]["seconds"] >= round(stopped["seconds"])
    assert np.shape(records[1]["last"]) == np.shape(records[1]["ensemble"]) == (2, 3)
    # The average of two states of one chain predicts like one of them.
    last, together = np.array(records[1]["last"]), np.array(records[1]["ensemble"])
    np.testing.assert_allclose(together[:, 1], last[:, 1], rtol=0.5)
    # A network that has learned nothing has an error of 90%.
    assert max(records[1]["errors"][-1]) < 80
    capsys.readouterr()
    assert table1.main([*sgd, "--epochs", "3"]) == records
    assert "SGD 0.4:" not in capsys.readouterr().out  # nothing was trained


@pytest.mark.slow
def test_every_method_has_a_row_and_a_curve(table1, command, tmp_path, monkeypatch):
    picture = tmp_path / "picture.png"
    long = "RSGLD-5-epochs", "RSGLD-20-epochs"  # longer than the run
    for module in (mhbt, defaults):
        monkeypatch.setattr(module, "WARM_UP", 2)
    methods = [name for name in table1.METHODS if name not in long]
    arguments = ["--methods", *methods, "--epochs", "3", "--picture", str(picture)]
    records = table1.main([*command, *arguments])
    assert {record["method"] for record in records} == set(methods)
    rows = {record["method"]: record for record in records}
    assert rows["Adam"]["rate"] == rows["RMSprop"]["rate"] == 0.001
    assert 0 <= rows["RSGLD-paper"]["forward_acceptance"] <= 1
    assert "forward_acceptance" not in rows["SGD"]
    text = table1.table(records)
    assert all(f"| {method} |" in text for method in methods)
    height, width = pyplot.imread(picture).shape[:2]
    assert height > 500 and width > height
