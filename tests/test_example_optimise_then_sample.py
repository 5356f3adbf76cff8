"""examples/optimise_then_sample.py: it chooses, goes on, and pairs the seeds."""

import pathlib

import numpy as np
import pytest

from tests.support.example_tools import load

ROOT = pathlib.Path(__file__).parent.parent
SHORT = ["--epochs", "2", "--hidden", "8", "--draws", "10", "--seeds", "1"]


@pytest.fixture
def example(monkeypatch):
    """The module, with one setting of each method, and two for the first."""
    module = load("optimise_then_sample")
    grids = {name: settings[:1] for name, settings in module.GRIDS.items()}
    grids[module.ADAM] = module.GRIDS[module.ADAM][:2]
    monkeypatch.setattr(module, "GRIDS", grids)
    return module


def test_the_recipe_has_the_settings_of_the_example(example):
    page = (ROOT / "docs/recipes/optimise_then_sample.md").read_text()
    assert f"num_chains={example.MEMBERS}," in page
    assert f"batch_size={example.BATCH}, epochs={example.EPOCHS}," in page
    assert f"epochs={example.SAMPLING * example.EPOCHS}," in page
    assert f"keras.layers.Dense({example.HIDDEN}, " in page


def test_the_lowest_finite_score_chooses(example, tmp_path):
    rows = example.Rows(tmp_path / "rows.jsonl", {})
    nlls = {example.ADAM: (float("nan"), 0.5)}
    for method, settings in example.GRIDS.items():
        for setting, nll in zip(settings, nlls.get(method, (0.1,)), strict=True):
            rows.add(seed=example.CHOICE, method=method, setting=setting, nll=nll)
    chosen = example.choose(rows, None, None)
    assert chosen[example.ADAM] == chosen[example.MORE]
    assert chosen[example.EACH] == chosen[example.CHAIN]
    assert chosen[example.ADAM] == example.GRIDS[example.ADAM][1]


def test_differences_are_paired(example, tmp_path):
    rows = example.Rows(tmp_path / "rows.jsonl", {"backend": "x"})
    entries = {"accuracy": 0.9, "ece": 0.1, "seconds": 2.0, "setting": {}}
    for seed, each in enumerate((0.2, 0.4)):
        for method in (example.ADAM, example.MORE, example.CHAIN, example.SGD):
            rows.add(seed=seed, method=method, nll=each + 0.1 * (1 + seed), **entries)
        rows.add(seed=seed, method=example.EACH, nll=each, **entries)
    again = example.Rows(tmp_path / "rows.jsonl", {"backend": "x"})
    lines = example.table(again, 2).splitlines()
    assert "| 0.9000 | 0.4500 | 0.1000 | +0.1500 ± 0.0500 | 2 |" in lines[2]
    assert "| 0.3000 | 0.1000 | — |" in lines[3]


@pytest.mark.slow
def test_a_second_call_goes_on(example, tmp_path, capsys):
    path = tmp_path / "new" / "rows.jsonl"
    command = [*SHORT, "--out", str(path)]
    rows = example.main(command)
    lines = path.read_text().splitlines()
    assert len(lines) == 4 + 5
    # A seed that stopped after its first method goes on from the same networks.
    found = rows.find(seed=0, method=example.EACH)
    kept = [line for line in lines if '"seed": 0' not in line or "4 Adam" in line]
    path.write_text("\n".join(kept) + "\n")
    again = example.main(command).find(seed=0, method=example.EACH)
    assert again["nll"] == pytest.approx(found["nll"], rel=1e-5)
    assert again["r_hat"] > 0.5 and 0.0 <= again["agree"] <= 1.0
    assert np.isfinite([again[score] for score in example.SCORES]).all()
    assert "R-hat of the probability of the label" in capsys.readouterr().out
