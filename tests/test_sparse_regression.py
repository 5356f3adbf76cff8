"""The example examples/sparse_regression.py: its data, its EMVS, and small runs."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

from tests.support.example_tools import load


@pytest.fixture(scope="module")
def sparse():
    """The module examples/sparse_regression.py."""
    return load("sparse_regression")


@pytest.fixture
def small(sparse, monkeypatch):
    """The same with 40 predictors, fewer than examples, for speed."""
    monkeypatch.setattr(sparse, "PREDICTORS", 40)
    monkeypatch.setattr(sparse, "B", 40.0)
    return sparse


def test_data_are_the_papers(sparse):
    data = sparse.simulate(sparse.LINEAR, 0)
    assert data.x.shape == (100, 1000) and data.x_test.shape == (1000, 1000)
    x, y = data.x_test, data.y_test
    for lag, expected in ((0, 1.0), (1, 0.6), (2, 0.36)):
        assert np.mean(x[:, lag:] * x[:, : 1000 - lag]) == pytest.approx(
            expected, abs=0.01
        )
    np.testing.assert_allclose(data.beta[:3], [3, 2, 1], atol=0.8)
    assert not data.beta[3:].any()
    assert np.var(y - x @ data.beta) == pytest.approx(3.0, abs=0.5)
    again = sparse.simulate(sparse.LINEAR, 0)
    np.testing.assert_array_equal(data.y, again.y)


def test_labels_follow_the_logits(sparse):
    data = sparse.simulate(sparse.LOGISTIC, 1)
    assert set(np.unique(data.y)) == {0.0, 1.0} and len(data.y) == 500
    logits = data.x_test @ data.beta
    assert data.y_test[logits > 2].mean() > 0.9
    assert data.y_test[logits < -2].mean() < 0.1


def test_ridge_solves_the_normal_equations(sparse):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 8)), rng.normal(size=5)
    variances = rng.uniform(0.1, 2.0, 8)
    expected = np.linalg.solve(x.T @ x + np.diag(1.0 / variances), x.T @ y)
    np.testing.assert_allclose(sparse.ridge(x, y, variances), expected, rtol=1e-10)


def test_emvs_ends_at_a_fixed_point_with_the_true_three(sparse):
    data = sparse.simulate(sparse.LINEAR._replace(noise=0.1), 0)
    v0, sigma = 1e-3, 0.5
    beta, rho = sparse.emvs(data, v0, sigma)
    assert rho[:3].min() > 0.999 and rho[3:].max() < 0.5
    kappa = (1.0 - rho) / v0 + rho / sparse.V1
    np.testing.assert_allclose(
        beta, sparse.ridge(data.x, data.y, 1.0 / kappa), atol=1e-8
    )
    np.testing.assert_allclose(beta[:3], data.beta[:3], atol=0.15)


def test_evaluate_weighs_the_samples(sparse):
    data = sparse.simulate(sparse.LOGISTIC, 0)
    weights = np.array([0.25, 0.75])
    betas = np.stack([data.beta, -data.beta])
    outputs = betas @ sparse.inputs_of(data).T
    row = sparse.evaluate(sparse.LOGISTIC, data, outputs, weights)
    np.testing.assert_allclose(row["beta_mean"], -0.5 * data.beta[:3])
    np.testing.assert_allclose(row["beta_sd"], 0.75**0.5 * data.beta[:3])
    p = 1.0 / (1.0 + np.exp(-data.x_test @ data.beta))
    np.testing.assert_allclose(row["test"], 0.25 * p + 0.75 * (1.0 - p))
    plug_in = 1.0 / (1.0 + np.exp(0.5 * data.x_test @ data.beta))
    error = np.abs(plug_in - data.y_test).mean()
    assert row["plug_in_mae"] == pytest.approx(error)
    assert len(row["train"]) == 500


@pytest.mark.slow
def test_linear_run_finds_the_true_three(small, tmp_path, capsys):
    picture = tmp_path / "new" / "linear.png"
    rows = small.main(["--quick", "--steps", "901", "--output", str(picture)])
    text = capsys.readouterr().out
    assert "1,000 steps" in text and "This run is short" in text
    rows = {row["method"]: row for row in rows}
    assert list(rows) == ["SGLD-SA", "EMVS", "SGLD", "ridge"]
    zero = np.mean(np.square(small.simulate(small.LINEAR, 0).y_test))
    assert all(row["mse"] < 0.8 * zero for row in rows.values())
    assert rows["EMVS"]["rho"][:3].min() > 0.99 and rows["EMVS"]["rho"][3:].max() < 0.5
    # So early the latent variables have hardly left their start.
    rho = rows["SGLD-SA"]["rho"]
    assert rho[:3].min() > 0.05 + np.median(rho[3:])
    # The mean of SGLD's samples is on its way to the exact one.
    both = np.corrcoef(rows["SGLD"]["test"], rows["ridge"]["test"])
    assert both[0, 1] > 0.8
    assert rows["SGLD"]["beta_sd"].min() > 0.01
    # The rate falls, and later samples count less.
    weights = rows["SGLD"]["weights"]
    assert weights.sum() == pytest.approx(1.0) and np.all(np.diff(weights) < 0)
    height, width = pyplot.imread(picture).shape[:2]
    assert height > 300 and width > 800


@pytest.mark.slow
def test_logistic_run_learns(small, tmp_path):
    picture = tmp_path / "logistic.png"
    arguments = ["--logistic", "--quick", "--steps", "1000"]
    rows = small.main([*arguments, "--output", str(picture)])
    assert [row["method"] for row in rows] == ["SGLD-SA", "ESM", "SGLD"]
    for row in rows:
        assert row["mse"] < 0.2  # a probability of 1/2 would give 0.25
        assert np.all((row["test"] >= 0) & (row["test"] <= 1))
    assert picture.exists()


def test_table_has_the_papers_figures(sparse):
    row = {
        "method": "SGLD-SA",
        "pair": (1e-3, 0.5),
        "mae": 1.0,
        "mse": 2.0,
        "rho": np.array([0.99, 0.98, 0.97, 0.95, 0.6, 0.1]),
        "beta_mean": np.zeros(3),
        "seconds": 3.0,
    }
    other = row | {"method": "SGLD", "pair": None, "rho": None, "mse": 40.0}
    text = sparse.report.table([row, row | {"mse": 4.0}, other], sparse.LINEAR)
    head, first, second = text.split("\n")
    assert len(head) == len(first) == len(second)
    assert " ".join(first.split()).endswith("1 ± 0 3 ± 1.4 1.34 / 2.9 0.970 2, 1 3")
    assert "4.98 / 42.6" in second


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pairs", "0.1"],
        ["--pairs", "0,1"],
        ["--pairs", "200,1"],
        ["--steps", "0"],
        ["--methods", "ESM"],
    ],
)
def test_bad_arguments_are_refused(sparse, arguments, capsys):
    with pytest.raises(SystemExit):
        sparse.main(arguments)
    assert arguments[0] in capsys.readouterr().err.split("error:")[1]
