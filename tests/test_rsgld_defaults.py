"""The benchmark of RSGLD's refreshes runs, goes on, and pairs its runs by seed."""

import json
import sys

import keras
import numpy as np
import pytest

from tests.support.example_tools import EXAMPLES
from tests.support.example_tools import load


@pytest.fixture(scope="module")
def defaults():
    folder = str(EXAMPLES / "benchmarks")
    sys.path.append(folder)  # as Python does for a script
    yield load("benchmarks/rsgld_defaults")
    sys.path.remove(folder)


def row(setting, seed, nll):
    scores = [0.9, nll + 0.1, 0.01]
    return {
        "problem": "digits",
        "setting": list(setting),
        "seed": seed,
        "backend": "jax",
        "epochs": 60,
        "forward": [0.5, float("nan"), 0.25],
        "last": scores,
        "ensemble": [0.9, nll, 0.01],
    }


def test_differences_are_those_of_the_same_seed(defaults):
    first, second = defaults.GRID[:2]
    # The first setting has one more seed, whose NLL would hide the difference.
    rows = [row(first, seed, nll) for seed, nll in enumerate((0.3, 0.5, 9.0))]
    rows += [row(second, seed, nll) for seed, nll in enumerate((0.2, 0.38))]
    # A run of another length is compared with runs of its own length only.
    rows += [row(second, 0, 0.7) | {"epochs": 90}]
    lines = defaults.table(rows).splitlines()
    assert len(lines) == 5
    assert lines[2].endswith("| — |")
    # -0.10 and -0.12: the mean is -0.11, its standard error 0.01.
    assert lines[3].endswith("| 0.2900 | −0.1100 ± 0.0100 |")
    assert "| 2 | 0.38, 0.25 | 10.00 |" in lines[3]
    assert lines[4].startswith("| digits | 90 |") and lines[4].endswith("| — |")


@pytest.mark.slow
def test_a_stopped_run_goes_on(defaults, monkeypatch, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    command = ["--seeds", "1", "--epochs", "60", "--out", str(path)]
    defaults.main([*command, "--settings", "1"])
    monkeypatch.setattr(defaults, "GRID", defaults.GRID[:2])
    rows = defaults.main(command)
    assert [tuple(row["setting"]) for row in rows] == list(defaults.GRID)
    assert all(row["backend"] == keras.backend.backend() for row in rows)
    written = [json.loads(line) for line in path.read_text().splitlines()]
    np.testing.assert_equal(written, rows)
    assert all(0.8 < row["ensemble"][0] <= 1.0 for row in rows)
    assert "| digits | 60 | 2 | 0.1 | 0.9 |" in capsys.readouterr().out
