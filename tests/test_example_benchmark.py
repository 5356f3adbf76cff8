"""examples/benchmark.py: one call beside its peers, each row in its own process."""

import pytest

from tests.support.example_tools import load

WORDS = ["--quick", "--methods", "one call", "4 AdamW"]


@pytest.mark.slow  # 30 seconds
def test_it_prints_rows_and_a_table_of_paired_differences(capsys):
    rows = load("benchmark").main(WORDS)
    assert [row["method"] for row in rows] == WORDS[2:]
    for row in rows:
        assert row["nll"] < 6.0  # of the constant prediction: 5.77
        assert 0.7 < row["coverage"] <= 1.0
    lines = capsys.readouterr().out.splitlines()
    cells = [f"{row['nll']:.3f}" for row in rows]
    assert f"| diabetes, 16-16 | {' | '.join(cells)} |" in lines


def test_the_table_pairs_the_splits():
    found = [
        {"set": "yacht", "network": "50", "split": split, "method": method, "nll": nll}
        for split, nlls in enumerate([(1.0, 3.0), (2.0, 5.0), (4.0, 6.0)])
        for method, nll in zip(["one call", "bde"], nlls, strict=True)
    ]
    table = load("benchmark").table(found[:-1], "nll")
    # Differences of the first two splits: 2 and 3, with a standard error of 0.5.
    assert table.endswith("| yacht, 50 | 2.333 | 4.000 (+2.500 ± 0.500) |")
