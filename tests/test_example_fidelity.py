"""examples/fidelity.py: its runs, its closed forms, its tables and its page."""

import json
import math
from pathlib import Path

import keras
import matplotlib
import numpy as np
import pytest

from tests.support.example_tools import load

pytestmark = pytest.mark.slow

matplotlib.use("Agg")
pytest.importorskip("sklearn")
pytest.importorskip("arviz")

PAGE = Path(__file__).parents[1] / "docs" / "fidelity.md"

fidelity = load("fidelity")
report, samplers = fidelity.report, fidelity.samplers
theory, references = samplers.theory, load("references")


def setup_of(name):
    """A setup whose networks are not trained; the starts are given weights."""
    setup = fidelity.Setup(name, fidelity.size_of(name, True))
    rng = np.random.default_rng(0)
    shapes, k = setup.problem.shapes, setup.chains
    setup.starts = {n: 0.3 * rng.normal(size=(k, *s)) for n, s in shapes.items()}
    return setup


@pytest.mark.slow_on("tensorflow", "torch")
def test_runs_are_scored_and_not_repeated(tmp_path):
    path, picture = tmp_path / "new" / "rows.jsonl", tmp_path / "picture.png"
    names = ["HMC", "SGLD", "deep ensemble", "last-layer Laplace"]
    command = ["--quick", "--problems", "logistic", "--samplers", *names]
    command += ["--out", str(path), "--figure", str(picture)]
    fidelity.main(command)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["sampler"] for row in found] == names
    rows = {row["sampler"]: row for row in found}
    # Too short for a verdict, but near the posterior.
    assert 0.7 < rows["HMC"]["sd_ratio"] < 1.3
    assert 0.7 < rows["SGLD"]["sd_ratio"] < 1.5
    assert 0.7 < rows["last-layer Laplace"]["sd_ratio"] < 1.5
    assert rows["deep ensemble"]["sd_ratio"] < 0.7
    assert rows["HMC"]["predicted"] == 1.0
    assert rows["last-layer Laplace"]["predicted"] is None
    assert all(row["label_agreement"] > 0.9 for row in found)
    assert rows["HMC"]["passes"] == 240 * 6  # five gradients and an energy in a path
    fidelity.main(command)
    assert len(path.read_text().splitlines()) == len(found)
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["logistic", "sine"])
@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_every_sampler_runs(problem, name):
    if problem not in samplers.ONLY.get(name, fidelity.SIZES):
        pytest.skip("the sampler needs more than the problem has")
    (run,) = samplers.SAMPLERS[name](name, setup_of(problem))
    assert np.all(np.isfinite(run.predictions)) and run.passes > 0.0
    assert run.weights.shape == run.predictions.shape[:2]


def test_groups_are_parts_of_one_run():
    """A sampler runs once; each group has its own chains."""
    setup = setup_of("logistic")
    setup.size = setup.size._replace(groups=2, chains=2, steps=100, draws=10)
    runs = samplers.by_kernel("SGLD", setup)
    assert [run.predictions.shape[:2] for run in runs] == [(2, 10), (2, 10)]
    assert not np.allclose(runs[0].predictions, runs[1].predictions)


# The models.


def tensors(arrays):
    """A dict of tensors, float32."""
    convert = keras.ops.convert_to_tensor
    return {name: convert(value, "float32") for name, value in arrays.items()}


# The data of "yacht" are not with the project.
@pytest.mark.parametrize("name", sorted({*fidelity.SIZES} - {"yacht"}))
def test_a_network_has_the_likelihood_of_its_problem(name):
    setup = setup_of(name)
    model = setup.first_network()
    position = tensors({k: v[0] for k, v in setup.starts.items()})
    data = tensors(setup.problem.data)
    outputs = model(data["x"])
    np.testing.assert_allclose(
        setup.of_outputs(keras.ops.convert_to_numpy(outputs)),
        keras.ops.convert_to_numpy(setup.problem.predict(position, data["x"])),
        atol=1e-5,
    )
    loss = keras.ops.mean(keras.losses.get(setup.loss())(setup.targets(), outputs))
    expected = keras.ops.mean(setup.problem.log_likelihood(position, data))
    loss = keras.ops.convert_to_numpy(loss)
    assert float(loss) == pytest.approx(-float(expected), rel=1e-4)
    decay = keras.ops.convert_to_numpy(sum(model.losses))
    prior = samplers.reference_problems.log_prior(position)
    assert float(decay) == pytest.approx(-float(prior) / setup.n, rel=1e-4)
    for key, value in setup.starts.items():
        np.testing.assert_allclose(setup.weight(model, key), value[0], rtol=1e-6)


def test_temperatures_are_the_defaults_of_the_samplers():
    setup = setup_of("logistic")
    found = [samplers.temperature_of(n, setup) for n in ("SGLD", "MHBT, Langevin")]
    assert found == [1.0, 5.0]
    assert samplers.temperature_of("RSGLD", setup) == 455 / (2 * 91**0.5)
    assert samplers.temperature_of("MINT", setup) == 455 / 91**0.99


# The closed forms.


@pytest.mark.parametrize("name", ["logistic", "sine"])
def test_slopes_are_those_of_the_likelihood(name):
    """In a random direction, by differences of the energy in float64."""
    setup = setup_of(name)
    position = {k: v[0] for k, v in setup.starts.items()}
    mode = theory.Mode(setup.problem, position)
    direction = np.random.default_rng(1).normal(size=len(mode.center))
    direction *= 1e-2 / np.linalg.norm(direction)

    def energies(weights):
        point = tensors(theory.unflat(setup.problem, weights))
        found = setup.problem.log_likelihood(point, tensors(setup.problem.data))
        return -keras.ops.convert_to_numpy(found).astype("float64")

    jacobian, slope, _ = mode._model(mode.center)
    gradients = np.einsum("nc,nck->nk", slope, jacobian)
    up, down = (energies(mode.center + sign * direction) for sign in (1, -1))
    np.testing.assert_allclose(
        gradients @ direction, (up - down) / 2, rtol=0.02, atol=2e-3 * np.abs(up).max()
    )
    if name == "logistic":
        middle = energies(mode.center)
        bend = (up + down - 2 * middle).sum() + direction @ direction
        assert direction @ mode.precision @ direction == pytest.approx(bend, rel=0.02)


class OneDimension:
    """A Gaussian target with one weight, as a `Mode`."""

    size, center = 50, np.zeros(1)
    precision, covariance = np.array([[30.0]]), np.array([[1 / 30.0]])

    def __init__(self, variance):
        self.variance = variance

    def noise(self, batch_size):
        return np.array([[self.variance]])


@pytest.mark.parametrize("variance", [0.0, 0.02])
def test_covariances_are_those_of_the_page_on_units(variance):
    mode, rate = OneDimension(variance), 0.4
    n, eta, scale = 50, rate / 50, 30.0
    heat = 1.0 + 0.5 * rate * n * variance
    (found,) = theory.overdamped(mode, rate, 5).ravel()
    assert found == pytest.approx(heat / (scale * (1 - 0.5 * eta * scale)))
    (found,) = theory.with_momentum(mode, rate, 5, 0.8).ravel()
    heat = 1.0 + 0.5 * rate * n * variance / 0.2
    assert found == pytest.approx(heat / (scale * (1 - 0.5 * eta * scale / 1.8)))
    # One direction: the thermostat absorbs all of the noise, and the step's bias.
    friction = theory.thermostat(mode, rate, 5, 0.8)
    (found,) = theory.with_momentum(mode, rate, 5, 0.8, friction).ravel()
    assert found == pytest.approx(1.0 / scale)


def test_too_much_noise_has_no_first_order():
    quiet, loud = OneDimension(1e-4), OneDimension(0.2)
    (found,) = theory.on_batches(quiet, 10.0, 5).ravel()
    assert found == pytest.approx(1.0 / (3.0 - 25.0 * 1e-4))
    assert theory.on_batches(loud, 10.0, 5) is None


def test_an_unstable_recursion_is_told():
    with pytest.raises(ValueError, match=r"lower the rate.*1\.1"):
        theory.stationary(np.full((1, 1, 1), 1.1), np.ones((1, 1, 1, 1)))


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_rates_have_the_acceptance_that_they_are_for(temperature):
    rng = np.random.default_rng(0)
    scale = np.linspace(1.0, 20.0, 200)  # many directions, as the limit supposes
    x = rng.normal(size=(2000, 200)) * np.sqrt(temperature / scale)

    def energy(x):
        return np.sum(scale * x**2, axis=1) / (2.0 * temperature)

    def accepted(log_ratio):
        return np.minimum(np.exp(log_ratio), 1.0).mean()

    step = theory.walk_rate(scale, temperature)
    other = x + step * rng.normal(size=x.shape)
    assert accepted(energy(x) - energy(other)) == pytest.approx(0.234, abs=0.03)
    eta = theory.langevin_rate(scale, 50) / 50
    other = (
        x
        - eta * scale * x
        + math.sqrt(2 * eta * temperature) * rng.normal(size=x.shape)
    )
    back = np.sum((x - other + eta * scale * other) ** 2, axis=1)
    forth = np.sum((other - x + eta * scale * x) ** 2, axis=1)
    ratio = energy(x) - energy(other) + (forth - back) / (4 * eta * temperature)
    assert accepted(ratio) == pytest.approx(0.574, abs=0.04)


# The scores.


def reference_of(rng, spread=0.5):
    """A reference whose predictions are normal numbers, and a maker of exact runs."""
    members = spread * rng.normal(size=(200, 7))
    found = references.Reference(
        members,
        np.zeros(7),
        np.full(7, spread),
        np.full(7, 5000.0),
        np.ones(7),
        {},
        {},
        {},
    )

    def run(factor=1.0, shift=0.0):
        values = shift + factor * spread * rng.normal(size=(8, 250, 7))
        return samplers.Run(values, np.ones((8, 250)), 1.0)

    return found, run


def test_the_spread_is_found_with_its_error():
    rng = np.random.default_rng(0)
    reference, run = reference_of(rng)
    for factor in (1.0, 2.0):
        found = [
            fidelity.scored(run(factor), reference, "regression") for _ in range(30)
        ]
        ratios = np.array([one["sd_ratio"] for one in found])
        errors = np.array([one["sd_ratio_error"] for one in found])
        assert ratios.mean() == pytest.approx(factor, rel=0.01)
        assert ratios.std() == pytest.approx(errors.mean(), rel=0.5)
    assert found[0]["r_hat"] < 1.02
    # Exact draws: 2,000 against 5,000 of the reference.
    assert found[0]["mean_error_if_exact"] == pytest.approx(3.5**0.5, rel=0.1)


def test_weights_count():
    """Draws of twice the spread, weighted back to the reference."""
    rng = np.random.default_rng(0)
    reference, run = reference_of(rng)
    wide = run(2.0)
    logs = -np.square(wide.predictions[..., 0]) * (1.0 - 0.25) / (2 * 0.25)
    weighted = wide._replace(
        predictions=np.repeat(wide.predictions[..., :1], 7, axis=-1),
        weights=np.exp(logs),
    )
    found = fidelity.scored(weighted, reference, "regression")
    assert found["sd_ratio"] == pytest.approx(1.0, abs=0.06)
    chosen = fidelity.resampled(np.array([[1.0, 0.0], [2.0, 1.0]]))
    np.testing.assert_array_equal(chosen, [0, 2, 2, 3])


# The tables.


def row(group, ratio, **changes):
    """A row without a run."""
    found = {"problem": "sine", "sampler": "SGLD", "group": group, "backend": "jax"}
    found |= {"rate": 0.25, "temperature": 1.0, "batch_size": 8, "passes": 1200.0}
    found |= {"chains": 4, "acceptance": None, "predicted": 1.2, "r_hat": 1.01}
    found |= {"label_agreement": None, "total_variation": None, "w1": 0.01}
    found |= {"mean_error": 3.0, "mean_error_if_exact": 2.5, "sd_ratio": ratio}
    found |= {"sd_ratio_error": 0.01, "reference_error": 0.001}
    return found | changes


def test_a_line_has_means_and_errors_of_groups():
    runs = [row(group, ratio) for group, ratio in enumerate((1.1, 1.2, 1.3))]
    (line,) = report.tables(runs)["sine"][2:]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    found = dict(zip(report.HEADS, cells, strict=True))
    # Not the scatter of the groups, 0.058, but their Monte Carlo errors.
    error = (0.01**2 / 3 + (1.2 * 0.001) ** 2) ** 0.5
    assert found["spread"] == f"1.200 ± {error:.3f}"
    assert found["predicted"] == "1.200" and found["seen"] == "20% too wide"
    assert (found["mean error"], found["if exact"]) == ("3.0", "2.5")
    assert (found["accepted"], found["passes"]) == ("—", "1,200")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "agrees"),
        ({"sd_ratio": 0.9}, "10% too narrow"),
        ({"sd_ratio": 1.02, "sd_ratio_error": 0.001}, "2% too wide"),
        ({"mean_error": 4.0}, "mean shifted"),
        ({"r_hat": 1.2}, "not converged"),
        ({"sd_ratio": 0.5, "r_hat": 1.2}, "50% too narrow, not converged"),
    ],
)
def test_a_finding_is_outside_of_monte_carlo_errors(changes, words):
    assert report.seen([row(group, 1.0, **changes) for group in range(3)]) == words


def test_backends_stand_side_by_side():
    rows = [row(0, 1.0), row(0, 1.1, backend="torch"), row(0, 1.0, sampler="HMC")]
    names = [line.split(" | ")[0] for line in report.tables(rows)["backends"][2:]]
    assert names == ["| SGLD, JAX", "| SGLD, PyTorch"]
    assert "backends" not in report.tables(rows[:1])


def stored():
    return fidelity.Rows(fidelity.OUT).rows


def test_the_page_has_the_tables_of_the_stored_rows():
    text = PAGE.read_text(encoding="utf-8")
    assert report.filled(text, report.tables(stored())) == text


def test_an_error_in_the_tables_shows(monkeypatch):
    """Bugs in the code of the tables make them another page."""
    text = PAGE.read_text(encoding="utf-8")

    def is_caught():
        return report.filled(text, report.tables(stored())) != text

    def inverted(runs):
        ratio, error = spread_of(runs)
        return 1.0 / ratio, error

    spread_of, seen = report.spread_of, report.seen
    bugs = {
        "spread_of": inverted,
        "mean_errors": lambda runs: [1.0, 1.0],
        "mean_of": lambda runs, name, digits: f"{runs[0][name]}",
        "runs_of": lambda rows, problem, sampler, backend="jax": [
            row for row in rows if row["sampler"] == sampler
        ],
        "seen": lambda runs: seen(runs[:1]),
    }
    for name, bug in bugs.items():
        with monkeypatch.context() as patch:
            patch.setattr(report, name, bug)
            assert is_caught(), name
    assert not is_caught()


def test_the_stored_rows_are_complete():
    rows = stored()
    for problem in fidelity.SIZES:
        for name in samplers.SAMPLERS:
            if problem not in samplers.ONLY.get(name, fidelity.SIZES):
                continue
            groups = [r["group"] for r in report.runs_of(rows, problem, name)]
            assert groups == [0, 1, 2], (problem, name)
    others = {r["sampler"] for r in rows if r["backend"] != "jax"}
    assert len(others) == 2


@pytest.mark.parametrize(
    "problem, name",
    [
        *(("logistic", name) for name in ("HMC", "MHBT, all data", "SMH", "AMAGOLD")),
        *((problem, "HMC") for problem in ("softmax", "sine", "digits")),
        *((problem, "MCLMC") for problem in fidelity.SIZES),
    ],
)
def test_what_is_exact_agrees_with_nuts(problem, name):
    """Where the chains have converged. The bias of MCLMC is smaller than the error."""
    runs = report.runs_of(stored(), problem, name)
    assert report.seen(runs) == "agrees"


@pytest.mark.parametrize("name", ["SGLD", samplers.CONTROLLED, "SGHMC", "SGNHT"])
def test_the_formulas_hold_on_the_softmax_regression(name):
    runs = report.runs_of(stored(), "softmax", name)
    spread, error = report.spread_of(runs)
    assert abs(spread - runs[0]["predicted"]) < report.ERRORS * error


def test_predictions_are_near_what_is_seen():
    """Of the samplers without a test, on the logistic regression."""
    for name in ("SGLD", "SGHMC", "SGNHT", "CSGLD", "CSGHMC", "PSGLD"):
        runs = report.runs_of(stored(), "logistic", name)
        ratio, error = report.spread_of(runs)
        assert abs(ratio - runs[0]["predicted"]) < 0.03 + 3.0 * error
