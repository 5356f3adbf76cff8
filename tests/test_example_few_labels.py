"""examples/few_labels.py: what a frozen network's new layer should be."""

import numpy as np
import pytest
from scipy import special

from tests.support.example_tools import load


def test_the_mode_has_no_gradient():
    example, rng = load("few_labels"), np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)), rng.integers(3, size=40)
    w = example.mode(x, y, 3, prior=0.7)
    inputs = np.column_stack([x, np.ones(40)])
    misses = special.softmax(inputs @ w, axis=1) - np.eye(3)[y]
    np.testing.assert_allclose(inputs.T @ misses, -w / 0.7**2, atol=1e-2)


@pytest.mark.slow
def test_few_labels_goes_on_where_it_stopped(tmp_path, capsys):
    example = load("few_labels")
    words = ["--seeds", "1", "--labels", "20", "--out", str(tmp_path / "rows.jsonl")]
    rows = example.main(words)
    assert [row["method"] for row in rows] == list(example.METHODS)
    by = {row["method"]: row for row in rows}
    assert by["HMC"]["nll"] < np.log(5) and by["HMC"]["auroc"] > by["MAP"]["auroc"]
    capsys.readouterr()
    assert example.main(words) == rows
    assert "| digits | 20 | HMC |" in capsys.readouterr().out
