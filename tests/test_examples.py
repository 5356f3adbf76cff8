"""The examples run, from the command line's arguments to the files that they write."""

import matplotlib

matplotlib.use("Agg")

import keras
import numpy as np
import pytest
from matplotlib import pyplot

from tests.support.example_tools import load

PICTURES = ("adversarial.png", "reliability.png", "robustness.png")


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """Rows and folder of one quick run of examples/digits.py."""
    folder = tmp_path_factory.mktemp("digits") / "new" / "out"
    rows = load("digits").main(["--quick", "--out", str(folder)])
    yield {row["method"]: row for row in rows}, folder
    pyplot.close("all")


@pytest.mark.slow
def test_digits_compares_six_methods(quick_run):
    rows, _ = quick_run
    assert list(rows) == ["SGD", "Adam", "PSGLD", "SGHMC", "RSGLD", "CMINT"]
    assert rows["SGD"]["members"] == rows["Adam"]["members"] == 1
    assert all(rows[name]["members"] > 1 for name in list(rows)[2:])
    for name, row in rows.items():
        # After four epochs; guessing would give 0.1. The steps down are half of those
        # of a Metropolis-Hastings sampler, and some are rejected.
        assert row["accuracy"] > (0.9 if name in ("SGD", "SGHMC") else 0.5)
        assert 0.0 < row["nll"] < np.log(10)
        assert 0.0 <= row["ece"] <= 1.0
        assert row["seconds"] > 0.0


@pytest.mark.slow
def test_digits_reports_acceptance_where_there_is_any(quick_run):
    rows, _ = quick_run
    assert rows["SGD"]["acceptance"] is None and rows["SGHMC"]["acceptance"] is None
    for name in ("RSGLD", "CMINT"):
        assert 0.0 <= rows[name]["acceptance"] <= 1.0


@pytest.mark.slow
def test_digits_attacks_hurt(quick_run):
    for row in quick_run[0].values():
        # The attacks take the first 60 test images, and the accuracy has all 360.
        assert row["fgsm"][0.0] == pytest.approx(row["accuracy"], abs=0.1)
        assert row["fgsm"][0.3] < row["fgsm"][0.1] < row["fgsm"][0.0]
        assert row["pgd"][0.3] < row["pgd"][0.1] < row["pgd"][0.0]
        assert row["pgd"][0.0] == row["fgsm"][0.0]
        assert row["strongest"][0.1] <= row["pgd"][0.1] <= row["fgsm"][0.1]


@pytest.mark.slow
def test_digits_tells_mirror_images_by_their_entropy(quick_run):
    for row in quick_run[0].values():
        assert 0.5 < row["auroc"] < 1.0


@pytest.mark.slow
def test_digits_saves_its_pictures(quick_run):
    _, folder = quick_run
    assert sorted(path.name for path in folder.iterdir()) == list(PICTURES)
    for name in PICTURES:
        height, width = pyplot.imread(folder / name).shape[:2]
        assert height > 300 and width > 300


def test_digits_table_is_aligned():
    digits = load("digits")
    row = {
        "method": "SGD",
        "members": 1,
        "accuracy": 0.9,
        "nll": 12.5,
        "ece": 0.1,
        "fgsm": dict.fromkeys(digits.STRENGTHS, 0.25),
        "pgd": dict.fromkeys(digits.STRENGTHS, 0.125),
        "strongest": {0.1: 0.0625},
        "auroc": None,
        "acceptance": None,
        "seconds": 1.0,
    }
    text = digits.as_text([row, row | {"method": "RSGLD", "acceptance": 0.3}])
    head, rule, first, second = text.split("\n")
    assert len(head) == len(rule) == len(first) == len(second)
    assert first.split()[-2:] == ["—", "1.0"] and second.split()[-2:] == ["0.30", "1.0"]
    for word in (
        "method",
        "accuracy",
        "NLL",
        "ECE",
        "acceptance",
        "FGSM 0.1",
        "PGD 0.1",
        "strongest 0.1",
        "OOD",
    ):
        assert word in head


def test_digits_keeps_the_right_iterations():
    digits = load("digits")
    model = digits.make_model((8, 8, 1), hidden=4)
    methods = digits.make_methods(model, 640, steps=1000, settings=digits.SMALL)
    assert methods["SGD"][1] is None  # its last iterate is all that it finds
    assert methods["SGHMC"][1] == {"burn_in": 500, "every": 20}
    optimizer, keep = methods["CMINT"]
    assert keep == {"burn_in": 500, "every": 100}
    # A kept sample was made at the lowest rate of its round: the next step's is higher.
    rate = [float(optimizer._learning_rate(step)) for step in range(1000)]
    rises = [step for step in range(1, 1000) if rate[step] > rate[step - 1]]
    assert rises == list(range(100, 1000, 100))
    np.testing.assert_allclose(rate[::100], 0.4, rtol=1e-4)


@pytest.mark.parametrize("steps", [10, 23, 45])
def test_digits_methods_suit_short_runs(steps):
    digits = load("digits")
    model = digits.make_model((8, 8, 1), hidden=4)
    methods = digits.make_methods(model, 64, steps, digits.SMALL)
    for optimizer, keep in methods.values():
        assert isinstance(optimizer, keras.optimizers.Optimizer)
        assert keep is None or keep["burn_in"] + keep["every"] <= steps


def test_digits_has_images_of_another_kind(tmp_path):
    digits = load("digits")
    x = np.random.default_rng(0).uniform(size=(20, 8, 8, 1)).astype("float32")
    y = np.arange(20) % 10
    others, what = digits.out_of_distribution(digits.parse([]), x, y)
    assert len(others) == 14 and "mirror" in what
    np.testing.assert_array_equal(others[0], x[2, :, ::-1])  # 0 and 1 are left out
    args = digits.parse(["--dataset", "mnist", "--data-dir", str(tmp_path)])
    others, what = digits.out_of_distribution(args, x, y)
    assert others is None and "KMNIST cannot be loaded" in what


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--dataset", "cifar"],
        ["--epochs", "many"],
        ["--steps", "0"],
    ],
)
def test_digits_refuses_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit):
        load("digits").main(arguments)
    assert arguments[0] in capsys.readouterr().err.split("error:")[1]


def run_example(name, arguments, folder):
    """Rows of an example, which has to save a picture that is not tiny."""
    picture = folder / "new" / f"{name}.png"
    rows = load(name).main(["--quick", *arguments, "--output", str(picture)])
    height, width = pyplot.imread(picture).shape[:2]
    assert height > 300 and width > 800
    pyplot.close("all")
    return rows


@pytest.mark.slow
def test_tempered_gaussian_nears_the_exact_law(tmp_path):
    arguments = ["--chains=200", "--steps=120", "--train-size=5000", "--batch-size=200"]
    rows = run_example("tempered_gaussian", arguments, tmp_path)
    assert [row["dimension"] for row in rows] == [2, 2, 5, 5]
    for row in rows:
        assert row["distances"][0] > 0.8  # chains start far away
        assert row["distances"][-1] < row["distances"][0] - 0.3


@pytest.mark.slow
def test_gaussian_mixture_crosses_where_tempering_joins(tmp_path):
    arguments = ["--steps=2000", "--train-size=5000", "--batch-size=500"]
    rows = run_example("gaussian_mixture", arguments, tmp_path)
    mini = [row for row in rows if row["method"] == "MHBT"]
    full = [row for row in rows if row["method"] == "full batch"]
    assert mini[0]["crossings"] > 20 and mini[1]["crossings"] > 5
    assert all(row["crossings"] == 0 for row in full if row["distance"] > 1)


@pytest.mark.slow
def test_acceptance_of_reversible_moves_is_higher(tmp_path):
    arguments = ["--steps=50", "--dimensions", "20", "--train-size=2000"]
    rows = run_example("acceptance", [*arguments, "--batch-size=500"], tmp_path)
    rows = {row["name"]: row for row in rows}
    for row in rows.values():
        assert row["acceptance"][0] > 0.8 and row["acceptance"][-1] < 0.1
    reversible, langevin = rows["RSGLD, beta = 2"], rows["SGLD"]
    assert reversible["largest"][0] > langevin["largest"][0]


@pytest.mark.slow
def test_mint_mixture_has_one_sampler_that_changes_modes(tmp_path):
    arguments = ["--steps=400", "--train-size=20000", "--batch-size=400"]
    rows = run_example("mint_mixture", [*arguments, "--runs=1"], tmp_path)
    changes = {row["method"]: row["changes"] for row in rows}
    assert changes["MINT"] > 1
    assert changes["SGLD"] == changes["SGHMC"] == 0


@pytest.mark.slow
def test_contour_mixture_has_one_sampler_that_stays(tmp_path):
    rows = run_example("contour_mixture", ["--steps=1000", "--runs=200"], tmp_path)
    assert [row["method"] for row in rows] == ["CSGLD", "SGLD", "KSGLD"]
    csgld, sgld, ksgld = (row["draws"] for row in rows)
    assert np.abs(rows[1]["means"][:, -1]).mean() > 3.5
    # CSGLD has begun to flatten the mode it is in; KSGLD does so from the start.
    assert csgld.position.std(1).mean() > 1.25 * sgld.position.std(1).mean()
    theta = csgld.info["masses"]
    assert np.all(theta[:, 0] > 10 * theta[:, 5])
    assert 0.25 < (ksgld.position < -1).mean() < 0.45
    # 200 chains, each of which is off by about 3.5, on their way from 4 to 0.
    assert abs(rows[2]["means"][:, -1].mean()) < 1.8


def test_contour_mixture_knows_the_masses():
    mixture = load("contour_mixture")
    truth = mixture.Truth()
    assert truth.masses.sum() == pytest.approx(1.0)
    assert np.sum(truth.density * truth.x) == pytest.approx(0.0, abs=1e-6)
    # Weights that are constant within a subregion are biased, as the page says.
    assert truth.mean_with_theta_weights() == pytest.approx(0.25, abs=0.02)
    # Psi is continuous, and the mass itself at the upper end of a subregion.
    log_psi = truth.log_psi()
    inside = np.abs(truth.x) < 8
    assert np.abs(np.diff(log_psi[inside])).max() < 0.01


@pytest.mark.slow
def test_contour_modes_compares_four_samplers(tmp_path):
    rows = run_example("contour_modes", ["--steps=400", "--chains=300"], tmp_path)
    rows = {row["method"]: row for row in rows}
    assert list(rows) == ["SGLD", "cycSGLD", "reSGLD", "CSGLD"]
    # Nearly all of a chain's draws are in the corner where it started.
    distance = rows["SGLD"]["distances"].mean()
    assert 0.93 < distance < 0.951
    assert rows["reSGLD"]["distances"].mean() < distance - 0.03
    assert rows["SGLD"]["ess"] == pytest.approx(1.0, abs=1e-3)
    assert 0.5 < rows["CSGLD"]["ess"] < 0.995


def test_contour_modes_knows_the_nine_shares():
    modes = load("contour_modes")
    truth = modes.Truth()
    shares = truth.shares.reshape(3, 3)
    np.testing.assert_allclose(shares, shares.T, atol=1e-6)
    assert shares.argmax() == 4 and shares.sum() == pytest.approx(1.0)
    # Without the regulariser the two coordinates are independent.
    np.testing.assert_allclose(
        shares, np.outer(shares.sum(0), shares.sum(1)), atol=2e-3
    )
    centres = [[x, y] for x in (-1.6, 0, 1.6) for y in (-1.6, 0, 1.6)]
    assert truth.distance(np.array(centres), truth.shares) == pytest.approx(0.0)
    only_one = truth.distance(np.array([[0.0, 0.0]]), np.ones(1))
    assert only_one == pytest.approx(1.0 - shares[1, 1])


@pytest.mark.parametrize(
    ("draws", "skewness", "kurtosis", "is_normal"),
    [("standard_normal", 0.0, 0.0, True), ("standard_exponential", 2.0, 6.0, False)],
)
def test_normality_of_known_laws(draws, skewness, kurtosis, is_normal):
    """Moments of the normal and the exponential law; the gap's 5% limit is 0.006."""
    t = getattr(np.random.default_rng(0), draws)(50_000)
    t = (t - t.mean()) / t.std()
    found = load("logistic_1v7").normality(t)
    np.testing.assert_allclose(found[:2], (skewness, kurtosis), atol=0.4)
    assert (found[2] < 0.006) == is_normal


@pytest.mark.slow
def test_logistic_learns(tmp_path):
    arguments = ["--chains=3", "--passes=0.1"]
    rows = run_example("logistic_1v7", arguments, tmp_path)
    accuracy = {row["method"]: row["accuracy"][:, -1].mean() for row in rows}
    assert list(accuracy) == ["MINT", "tempered MCMC", "MCMC"]
    assert min(accuracy.values()) > 0.8


def test_cifar_cnn_has_the_layers_of_the_paper():
    model = load("cifar_cnn").network((32, 32, 3), 10)
    pooled = [
        layer.output.shape[1:]
        for layer in model.layers
        if isinstance(layer, keras.layers.MaxPooling2D)
    ]
    assert pooled == [(16, 16, 32), (8, 8, 32), (4, 4, 64)]
    assert model.count_params() == 89_578


@pytest.mark.slow
def test_cifar_cnn_learns(capsys):
    arguments = ["--quick", "--examples", "500", "--rates", "0.04", "--epochs", "6"]
    rows = load("cifar_cnn").main(arguments)
    errors = {row["method"]: row["errors"] for row in rows}
    assert list(errors) == ["RSGLD", "SGD", "SGLD"]
    # Four classes. In 30 steps few of RSGLD's moves are accepted.
    assert max(errors["SGD"].max(), errors["SGLD"].max()) < 20
    assert errors["RSGLD"].shape == (1,) and errors["RSGLD"][0] <= 80
    assert "accepted" in capsys.readouterr().out
