"""examples/robustness.py attacks, goes on where it stopped, and reports pairs."""

import json

import numpy as np
import pytest

from tests.support.example_tools import load

pytestmark = pytest.mark.slow

EPSILON = "0.1"
BUDGET = ["--images", "40", "--steps", "3", "--restarts", "1", "--queries", "5"]


@pytest.fixture
def robustness(monkeypatch):
    """The module, with few epochs of the digits."""
    module = load("robustness")
    small = module.PROBLEMS["digits"]._replace(epochs=8, hidden=32)
    monkeypatch.setitem(module.PROBLEMS, "digits", small)
    return module


def row(method, seed, strongest):
    """A row without a run."""
    attacks = dict.fromkeys(("clean", "transfer", "FGSM", "Square", "PGD"), 0.9)
    attacks |= {"APGD": 0.8, "APGD margin": 0.8, "strongest": strongest}
    found = {"problem": "digits", "method": method, "seed": seed, "members": 1}
    return {**found, "accuracy": 0.9, "nll": 0.3, "attacks": {EPSILON: attacks}}


@pytest.mark.slow_on("jax", "tensorflow")
def test_runs_are_attacked_and_not_repeated(robustness, tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    methods = ["SGD", "SGHMC", robustness.ADVERSARIAL]
    command = ["--problems", "digits", "--seeds", "1", "--out", str(path), *BUDGET]
    command += ["--methods", *methods, "--figure", str(tmp_path / "picture.png")]
    robustness.main(command)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["method"] for r in found] == methods
    for r in found:
        for under in r["attacks"].values():
            attacks = {k: v for k, v in under.items() if k != "strongest"}
            assert under["strongest"] <= min(attacks.values())
            assert under["clean"] == pytest.approx(r["accuracy"], abs=0.2)
    sgd, _, trained_on_attacks = (r["attacks"][EPSILON] for r in found)
    # PGD on SGD's own network is what is transferred from it.
    assert sgd["transfer"] == sgd["PGD"] < sgd["clean"]
    assert trained_on_attacks["clean"] > 0.3
    assert found[1]["members"] > 1
    robustness.main(command)
    assert len(path.read_text().splitlines()) == len(found)
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    with pytest.raises(SystemExit, match=r"rows of digits with \{'steps': 3\}"):
        robustness.main([*command, "--steps", "4"])


def test_the_table_has_paired_differences(robustness):
    less = np.array([-0.1, -0.3, -0.2])
    rows = []
    for seed, difference in enumerate(less):
        rows.append(row("SGD", seed, 0.5 + 0.1 * seed))
        rows.append(row("PSGLD", seed, 0.5 + 0.1 * seed + difference))
    rows.append(row("PSGLD", 7, 0.0))  # without its SGD
    lines = robustness.report.table(rows, "digits", EPSILON, robustness.METHODS)
    *_, last = lines
    assert len(lines) == 4 and last.startswith("| PSGLD | 1 |")
    assert last.endswith(f"| −0.200 ± {0.1 / 3**0.5:.3f} |")
    assert robustness.report.table(rows, "mnist", EPSILON, robustness.METHODS) == []


def test_a_method_has_one_colour_in_all_panels(robustness, tmp_path, monkeypatch):
    """Also if a panel lacks another method; the legend has the methods of all."""
    report, rows = robustness.report, []
    for problem, methods in (
        ("mnist", ("SGD", "SGHMC", "RSGLD")),
        ("fashion", ("SGD", "4 Adam", "RSGLD")),
    ):
        epsilon = f"{robustness.PROBLEMS[problem].strengths[0]:g}"
        for method in methods:
            attacks = row(method, 0, 0.5)["attacks"][EPSILON]
            attacks = {epsilon: attacks}
            rows.append(row(method, 0, 0.5) | {"problem": problem, "attacks": attacks})
    monkeypatch.setattr(report.pyplot, "close", lambda figure: None)
    path = tmp_path / "picture.png"
    report.draw(rows, robustness.METHODS, robustness.PROBLEMS, path)
    figure = report.pyplot.gcf()
    colours = [
        {bars.get_label(): bars.lines[0].get_color() for bars in axis.containers}
        for axis in figure.axes[:2]
    ]
    assert [set(found) for found in colours] == [
        {"SGHMC", "RSGLD"},
        {"4 Adam", "RSGLD"},
    ]
    assert colours[0]["RSGLD"] == colours[1]["RSGLD"]
    assert len({*colours[0].values(), *colours[1].values()}) == 3
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["4 Adam", "SGHMC", "RSGLD"]


def test_a_lost_image_counts_once(robustness):
    """What survives is what no attack fooled, and not the lowest accuracy."""

    class Model:
        has_members = False

        def probabilities(self, x):
            return np.eye(10)[np.asarray(x)[:, 0].astype(int)]

    class Attacks:
        def images(self, model):
            yield "PGD", np.array([[0.0], [1.0], [9.0], [3.0]])
            yield "Square", np.array([[0.0], [9.0], [2.0], [3.0]])

    x = np.array([[0.0], [1.0], [2.0], [5.0]])
    data = robustness.advice_problems.Data(None, None, x, np.arange(4))
    attacks = dict.fromkeys(robustness.PROBLEMS["digits"].strengths, Attacks())
    found = robustness.scored("digits", Model(), data, attacks, 4)["attacks"][EPSILON]
    assert found["PGD"] == found["Square"] == 0.75  # the last is lost without attack
    assert found["clean"] == 0.75
    assert found["strongest"] == 0.25


def test_settings_that_lack_are_told(robustness, tmp_path):
    command = ["--problems", "digits", "--chosen", str(tmp_path / "none.jsonl")]
    with pytest.raises(SystemExit, match=r"no settings of SGD for digits"):
        robustness.main([*command, "--out", str(tmp_path / "rows.jsonl")])
