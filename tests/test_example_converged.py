"""examples/converged.py: the run of docs/parallel_chains.md and its picture."""

import pathlib
import re

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

from tests.support.example_tools import load

pytestmark = pytest.mark.slow

PAGE = (pathlib.Path(__file__).parent.parent / "docs/parallel_chains.md").read_text()


@pytest.fixture
def converged():
    """The module examples/converged.py."""
    return load("converged")


def test_the_page_has_the_settings_of_the_example(converged):
    block = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    steps = -(-1437 // converged.BATCH) * converged.EPOCHS
    for shown in (
        f"num_chains={converged.CHAINS},",
        f"mh.SGHMC({converged.RATE}, ",
        f"mh.priors.Gaussian({converged.PRIOR})",
        f"burn_in={steps // 10}, every={converged.EVERY})",
        f"batch_size={converged.BATCH}, epochs={converged.EPOCHS},",
    ):
        assert shown in block


@pytest.mark.slow_on("torch")
def test_the_average_is_better_than_its_members(
    converged, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(converged, "SGD_EPOCHS", 2)
    monkeypatch.setattr(converged, "EVERY", 30)
    picture = tmp_path / "picture.png"
    found = converged.main(["--epochs", "60", "--picture", str(picture)])
    draws = (60 * 15 - 90) // 30
    assert found["members"].shape == (draws, 4)
    assert found["average"].shape == (draws,) and found["r_hat"].shape == (360,)
    assert found["energy"].shape == (60, 4)
    # The first average has one draw of each chain, the last has all.
    assert found["average"][0] < found["members"][0].mean()
    assert found["average"][-1] < np.median(found["members"])
    # Sixty epochs are too few, and R-hat says so.
    assert found["r_hat"].max() > 1.05
    assert "below 1.01" in capsys.readouterr().out
    height, width = pyplot.imread(picture).shape[:2]
    assert width > 2 * height > 1000
