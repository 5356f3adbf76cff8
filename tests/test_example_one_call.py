"""examples/one_call.py: `mh.BayesianEnsemble` with its defaults, row by row."""

import pytest

from tests.support.example_tools import load


@pytest.mark.slow  # 10 seconds
def test_it_prints_a_row_and_its_mean(capsys):
    (row,) = load("one_call").main(["--quick"])
    assert row["set"] == "diabetes"
    assert row["ensemble"] < 6.0  # of the constant prediction: 5.77
    ensemble, members = capsys.readouterr().out.splitlines()[-2:]
    assert ensemble.startswith("diabetes") and f"{row['ensemble']:.3f}" in ensemble
    assert members.startswith("  members") and f"{row['members']:.3f}" in members
