"""examples/why.py: the pictures of the page "Why sample?", and their numbers."""

import matplotlib

matplotlib.use("Agg")

import pytest

from tests.support.example_tools import load

PICTURES = ("why_moons.png", "why_regression.png", "why_temperature.png")


@pytest.mark.slow
def test_the_pictures_are_drawn(tmp_path, capsys):
    load("why").main(["--steps", "60", "--out", str(tmp_path / "new")])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == list(PICTURES)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [
        "where",
        "in",
        "outside",
        "SGD",
        "ensemble",
    ]


def test_the_page_says_which_temperature_is_best():
    """Cold on four problems, 1 on Concrete."""
    found = load("why").by_temperature()
    best = {problem: min(curve, key=curve.get) for problem, curve in found.items()}
    assert best.pop("concrete") == 1.0
    assert len(best) == 4 and max(best.values()) <= 0.03
