"""examples/why.py: the pictures of the page "Why sample?", and their numbers."""

import matplotlib

matplotlib.use("Agg")

import pytest

from tests.support.example_tools import load

PICTURES = ("one_call_gap.png", "why_moons.png", "why_temperature.png")


@pytest.mark.slow
def test_the_pictures_are_drawn(tmp_path, capsys):
    load("why").main(["--quick", "--out", str(tmp_path / "new")])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == list(PICTURES)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [
        "four",
        "mh.BayesianEnsemble,",
        "SGD",
        "ensemble",
    ]


def test_the_page_says_which_temperature_is_best():
    """Cold on images. On the regressions temperatures differ little."""
    found = load("why").by_temperature()
    for problem, losses in found.items():  # above the best temperature, in nats
        best = min(losses, key=losses.get)
        if problem in ("energy", "concrete"):
            assert best == 0.3 and losses[1.0] < 0.03
        else:
            assert best <= 0.03 and losses[1.0] > 0.05
    assert len(found) == 5
