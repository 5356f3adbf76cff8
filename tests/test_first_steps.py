"""The example of one network's ensemble beside SGD and Adam, and by temperature."""

import json

import pytest

from tests.support.example_tools import load


@pytest.fixture
def first_steps():
    """The module examples/first_steps.py."""
    return load("first_steps")


def test_the_table_counts_seeds(first_steps, tmp_path):
    rows = []
    for seed, nlls in enumerate(((0.3, 0.2, 0.1), (0.2, 0.4, 0.3))):
        for method, nll in zip(
            ("SGD", first_steps.LAST, first_steps.ENSEMBLE), nlls, strict=True
        ):
            rows.append({"seed": seed, "method": method, "accuracy": 0.5, "nll": nll})
            rows[-1] |= {"ece": 0.1, "seconds": 2.0}
    lines = first_steps.table(rows).splitlines()
    assert "| 0.250 | 0.100 | +0.050 ± 0.150 | 1 of 2 seeds | 2 |" in lines[2]
    assert "+0.100 ± 0.000 | 2 of 2 seeds" in lines[3]


@pytest.mark.slow_on("jax", "tensorflow")
def test_a_second_call_goes_on(first_steps, tmp_path, capsys):
    path = tmp_path / "new" / "rows.jsonl"
    command = ["--epochs", "4", "--out", str(path)]
    first_steps.main([*command, "--seeds", "1"])
    rows = first_steps.main([*command, "--seeds", "1"])
    assert len(path.read_text().splitlines()) == len(rows) == 5
    assert json.loads(path.read_text().splitlines()[0]) == rows[0]
    assert [row["method"] for row in rows][3:] == [
        first_steps.LAST,
        first_steps.ENSEMBLE,
    ]


@pytest.mark.slow
def test_the_ensemble_pays(first_steps):
    found = {
        row["method"]: row["nll"] for row in first_steps.run(0, first_steps.EPOCHS)
    }
    ensemble = found[first_steps.ENSEMBLE]
    assert ensemble < min(found["SGD"], found[first_steps.LAST])


@pytest.mark.slow
def test_temperatures_are_compared(capsys):
    temperatures = load("temperatures")
    means = temperatures.main(["--seeds", "1", "--epochs", "20"])
    assert list(means) == list(temperatures.TEMPERATURES)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| 1 | 0.") and len(lines) == 2 + len(means)
    # The hottest chain is far from having learned.
    assert means[1.0][1] > means[0.01][1]
