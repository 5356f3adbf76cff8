"""examples/advice.py chooses settings, goes on where it stopped, and scores exactly."""

import json

import numpy as np
import pytest
from scipy import stats

from tests.support.example_tools import load

pytestmark = pytest.mark.slow

SMALL = {"rate": 0.03, "decay": 0.0}


@pytest.fixture
def advice():
    """The module, with two epochs of the digits and few settings."""
    module = load("advice")
    kept = dict(module.PROBLEMS), dict(module.METHODS)
    module.PROBLEMS["digits"] = module.PROBLEMS["digits"]._replace(epochs=4, hidden=8)
    for name, method in kept[1].items():
        module.METHODS[name] = method._replace(settings=method.settings[:2])
    yield module
    module.PROBLEMS.update(kept[0])
    module.METHODS.update(kept[1])


def row(problem, method, setting, seed, nll, kind="last"):
    """A row without a run."""
    scores = {"accuracy": 0.9, "nll": nll, "ece": 0.1}
    found = {"problem": problem, "method": method, "setting": setting, "seed": seed}
    return {**found, "steps": 7, "last": scores, kind: scores}


def test_the_lowest_finite_score_chooses(advice, tmp_path):
    rows = advice.Rows(tmp_path / "rows.jsonl")
    settings = advice.settings_of("digits", "SGD")
    assert len(settings) == 2
    rows.add(row("digits", "SGD", settings[0], advice.SEED, float("nan")))
    assert advice.choose(rows, "digits", "SGD") is None  # one lacks
    rows.add(row("digits", "SGD", settings[1], advice.SEED, 5.0))
    assert advice.choose(rows, "digits", "SGD") == settings[1]
    again = advice.Rows(tmp_path / "rows.jsonl")
    assert advice.choose(again, "digits", "SGD") == settings[1]


def test_an_ensemble_of_several_takes_the_settings_of_one(advice, tmp_path):
    rows = advice.Rows(tmp_path / "rows.jsonl")
    for setting, nll in zip(
        advice.settings_of("digits", "Adam"), (2.0, 1.0), strict=True
    ):
        rows.add(row("digits", "Adam", setting, advice.SEED, nll))
    best = advice.settings_of("digits", "Adam")[1]
    assert advice.choose(rows, "digits", "4 Adam") == best


def test_the_table_has_paired_differences(advice, tmp_path):
    rows = advice.Rows(tmp_path / "rows.jsonl")
    chosen = {}
    for method, kind in (("SGD", "last"), ("SGHMC", "ensemble")):
        for setting in advice.settings_of("digits", method):
            rows.add(row("digits", method, setting, advice.SEED, 1.0, kind))
        chosen[method] = advice.choose(rows, "digits", method)
    less = np.array([-0.1, -0.3, -0.2])
    for seed, difference in enumerate(less):
        for method, kind, nll in (
            ("SGD", "last", 1.0 + seed),
            ("SGHMC", "ensemble", 1.0 + seed + difference),
        ):
            rows.add(row("digits", method, chosen[method], seed, nll, kind))
    *_, line = advice.table(rows, "digits", 3)
    assert line.startswith("| SGHMC | rate 0.03, T 1, prior")
    difference = f"−0.200 ± {0.1 / 3**0.5:.3f}"
    assert difference in line
    # Only problems on which all methods have run are in the summary.
    assert advice.summary(rows, ["digits"], 3) == []


@pytest.mark.slow_on("jax", "tensorflow")
def test_runs_are_scored_and_not_repeated(advice, tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    methods = ["SGD", "SGD, mean", "Adam", "4 Adam", "SGHMC"]
    command = ["--problems", "digits", "--seeds", "1", "--out", str(path)]
    advice.main([*command, "--methods", *methods])
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(found) == 3 * 2 + len(methods)
    tested = {r["method"]: r for r in found if r["seed"] == 0}
    assert list(tested) == methods
    steps = {name: r["steps"] for name, r in tested.items()}
    assert steps["4 Adam"] == 4 * steps["Adam"] == 4 * steps["SGHMC"]
    for r in tested.values():
        assert 0.0 < r["robust"]["pgd 0.05"] <= r["last"]["accuracy"] + 0.1
        assert 0.0 < r["ensemble"]["nll"] < np.log(10)
    assert len(advice.table(advice.Rows(path), "digits", 1)) == 2 + len(methods)
    advice.main([*command, "--methods", *methods])
    assert len(path.read_text().splitlines()) == len(found)


@pytest.mark.slow_on("jax", "tensorflow")
@pytest.mark.parametrize("method", ["CSGHMC", "RSGLD", "CMINT", "SGHMC-SA"])
@pytest.mark.parametrize("problem", ["digits", "energy"])
def test_every_method_trains_on_both_kinds(advice, problem, method, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    y = x @ np.ones(4) + 0.1 * rng.normal(size=600)
    monkeypatch.setattr("keras_mhmcmc.datasets.rows", lambda *a: (x, y))
    epochs = {"digits": 50, "energy": 100}[problem]  # beyond the warm-up
    advice.PROBLEMS[problem] = advice.PROBLEMS[problem]._replace(epochs=epochs)
    data = advice.problems.load(problem, None, 0, held_out=True)
    assert len(data.x_test) == len(data.x) // 4
    setting = advice.settings_of(problem, method)[0]
    found = advice.run(problem, method, setting, 0, data, robust=False)
    assert np.isfinite(found["last"]["nll"]) and np.isfinite(found["ensemble"]["nll"])


def test_a_mixture_of_normal_distributions_is_scored_exactly(advice):
    problems = advice.problems
    rng = np.random.default_rng(0)
    y, outputs = rng.normal(size=50), rng.normal(size=(3, 50))
    weights, noise, unit = np.array([0.5, 0.3, 0.2]), 0.7, 3.0
    data = problems.Data(None, None, None, y, unit=unit)
    found = problems.quality("energy", outputs, weights, data, noise)
    density = weights @ stats.norm(unit * outputs, unit * noise).pdf(unit * y)
    assert found["nll"] == pytest.approx(-np.log(density).mean())
    below = weights @ stats.norm(outputs, noise).cdf(y)
    assert found["coverage"] == np.mean((below > 0.05) & (below < 0.95))
    error = unit * (y - weights @ outputs)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))


def test_no_test_data_choose_the_settings(advice, monkeypatch):
    """Each row has its own target, so targets tell where a row went."""
    x, y = np.random.default_rng(0).normal(size=(97, 3)), np.arange(97.0)
    monkeypatch.setattr("keras_mhmcmc.datasets.rows", lambda *a: (x, y))

    def rows(seed, held_out):
        """The numbers of the rows that train and of those that score."""
        found = advice.problems.load("energy", None, seed, held_out)
        values = [found.unit * part for part in (found.y, found.y_test)]
        # Targets are centred: the smallest one of all was 0.
        low = min(map(np.min, values))
        return [set(np.round(part - low).astype(int)) for part in values]

    tests = [rows(seed, False) for seed in range(5)]
    for train, test in tests:
        assert not train & test and len(train) + len(test) == 97
    choosing, scoring = rows(advice.SEED, True)
    assert not choosing & scoring
    assert len(choosing) + len(scoring) + sum(len(test) for _, test in tests) == 97
