"""docs/minibatch_mh.md: its tables are those of the stored rows, its tests exist."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import keras_mhmcmc as mh
from tests.test_benchmarks import benchmark

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "minibatch_mh.md"

tall = benchmark("tall_logistic")
report = tall.report


def text():
    return PAGE.read_text(encoding="utf-8")


def stored():
    return tall.Rows(tall.RESULTS).rows


def is_filled():
    return report.filled(text(), report.tables(stored())) == text()


def test_the_tables_are_those_of_the_stored_rows():
    assert is_filled()


def test_an_error_in_the_tables_shows(monkeypatch):
    bugs = {
        "examples": lambda row: row["steps"] * row["batch_size"],
        "count": lambda value: f"{value:.0f}",
        "EXACT": ("TunaMH", "PoissonMH"),
    }
    for name, bug in bugs.items():
        with monkeypatch.context() as patch:
            patch.setattr(report, name, bug)
            assert not is_filled(), name


def problem(rows):
    """Features, signs, mode, and the posterior's usual standard deviation."""
    x, signs, mean, factor = tall.tuna.problem(rows, np.random.default_rng(0))
    return x, signs, mean, np.sqrt(np.mean(np.sum(np.square(factor), axis=1)))


def mean_batch(rows, reach):
    """TunaMH's expected number of examples: chi C M of a usual move is `reach`."""
    x, _, mean, deviation = problem(rows)
    d = len(mean)
    step = 0.25 * 2.4 / np.sqrt(d) * deviation
    total = np.linalg.norm(x, axis=1).sum()
    chi = reach / (total * step * np.sqrt(d))
    return chi * total**2 * step**2 * d + total * step * scipy.stats.chi(d).mean()


def rate_of_poisson(rows, multiple):
    """lambda + L of PoissonMH within 2.5 deviations, lambda a multiple of L."""
    x, signs, mean, deviation = problem(rows)
    distance = 2.5 * deviation * np.sqrt(len(mean))
    lower, upper = tall.bounded(x, signs, mean, distance)
    return (multiple + 1.0) * (upper - lower).sum()


@pytest.mark.parametrize("rows", [10_000, 100_000])
@pytest.mark.parametrize(
    ("kernel", "mean", "setting", "another"),
    [("TunaMH", mean_batch, 3.0, 2.8), ("PoissonMH", rate_of_poisson, 2.0, 1.9)],
)
def test_kernels_read_as_many_examples_as_they_should(
    kernel, mean, setting, another, rows
):
    (row,) = (
        row for row in stored() if (row.get("kernel"), row["rows"]) == (kernel, rows)
    )
    expected = mean(rows, setting)
    assert row["batch_size"] == pytest.approx(expected, rel=0.002)
    assert row["batch_size"] != pytest.approx(mean(rows, another), rel=0.002)
    assert f"{expected:,.0f}" in text()


def test_a_page_without_a_mark():
    with pytest.raises(ValueError, match="one place for 'exact'"):
        report.filled("no marks", report.tables(stored()))


def test_every_row_of_the_map_names_tests_that_exist():
    rows = [line for line in text().splitlines() if "`tests/" in line]
    assert len(rows) > 10
    for path in re.findall(r"`(tests/[\w/.]+)`", text()):
        assert (ROOT / path).exists(), path


def test_the_map_has_every_kernel_that_tests_on_mini_batches():
    kernels = {"amagold", "austerity", "barker", "confidence", "hmc", "mclmc", "mhbt"}
    kernels |= {"poisson", "smh", "tuna"}
    assert kernels <= set(mh.kernels.__all__)
    missing = [name for name in kernels if f"| `mh.kernels.{name}" not in text()]
    assert missing == ["amagold"]  # it stands behind the optimizer
    assert "| `mh.AMAGOLD`, `mh.kernels.amagold`" in text()


def test_rows_are_measured_once(tmp_path):
    rows = tall.Rows(tmp_path / "rows.jsonl")
    rows.add(kernel="TunaMH", rows=10, acceptance=0.123456789)
    again = tall.Rows(tmp_path / "rows.jsonl")
    assert again.has(kernel="TunaMH", rows=10) and not again.has(
        kernel="TunaMH", rows=9
    )
    assert again.rows[0]["acceptance"] == 0.12346
