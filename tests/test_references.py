"""The stored reference posteriors: their files, and samplers beside them."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.example_tools import load

pytestmark = pytest.mark.in_turn("jax")  # long chains

pytest.importorskip("sklearn")

references = load("references")
problems = references.reference_problems
STORED = sorted(path.stem for path in references.FOLDER.glob("*.npz"))


def test_the_files_are_small_and_known():
    assert set(STORED) == set(problems.NAMES)
    sizes = [(references.FOLDER / f"{name}.npz").stat().st_size for name in STORED]
    assert max(sizes) < 300_000 and sum(sizes) < 1_000_000


@pytest.mark.parametrize("name", STORED)
def test_a_stored_reference_has_converged_and_has_its_plan(name):
    reference = references.load(name)
    assert reference.r_hat.max() <= references.MAX_R_HAT
    assert reference.ess.min() > 1000.0
    plan, about = references.PLANS[name], reference.about
    assert about["chains"] == references.CHAINS
    # One of the 16,000 draws of "yacht" ended in a divergence.
    draws = about["chains"] * about["draws"] * about["every"]
    assert about["divergent"] <= 1e-4 * draws
    assert reference.about["draws"] == plan.chunks * plan.draws // plan.every
    assert len(reference.members) == plan.members


@pytest.mark.parametrize("name", ["digits", "logistic", "sine", "softmax"])
def test_a_stored_reference_is_of_its_problem(name):
    problem = problems.problem(name)
    reference = references.load(name, problem)
    assert len(reference.mean) == len(problem.x_test)
    if problem.is_identifiable:
        shapes = {key: value.shape for key, value in reference.weight_sd.items()}
        assert shapes == problem.shapes
    # A thinned set has the moments of all draws, up to its own Monte Carlo error.
    arguments = reference.arguments() | {"task": problem.task}
    score = mh.diagnostics.agreement(predictions=reference.members, **arguments)
    scale = np.sqrt(reference.ess.mean() / len(reference.members))
    assert score.mean_error < 2.0 * scale and score.sd_error < 2.0 * scale
    if problem.task == "classification":
        right = reference.mean.argmax(axis=-1) == problem.y_test
        assert right.mean() > 0.9
    else:
        error = np.abs(reference.mean - problem.y_test)
        assert np.all(error < 4.0 * reference.sd + 0.05)


def test_a_reference_of_other_data_is_refused():
    problem = problems.problem("sine")
    problem.x_test[0, 0] += 1e-3
    with pytest.raises(ValueError, match=r"`problem`.*fingerprint.*'sine'"):
        references.load("sine", problem)


def test_chains_that_disagree_are_not_stored(tmp_path):
    arrays = {"about_largest_r_hat": np.array(1.02)}
    with pytest.raises(ValueError, match=r"at most 1\.01.*1\.02"):
        references.write(tmp_path / "x.npz", arrays)
    assert list(tmp_path.iterdir()) == []


def test_the_density_of_the_logistic_regression_by_hand():
    problem = problems.problem("logistic")
    rng = np.random.default_rng(0)
    position = {k: rng.normal(size=s) for k, s in problem.shapes.items()}
    x, y = (problem.data[key].astype("float64") for key in ("x", "y"))
    logit = x @ position["w1"][:, 0] + position["b1"][0]
    expected = y * logit - np.logaddexp(0.0, logit)
    tensors = {k: v.astype("float32") for k, v in position.items()}
    found = problem.log_likelihood(tensors, problem.data)
    found = keras.ops.convert_to_numpy(found)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    prior = -0.5 * sum(np.sum(np.square(value)) for value in position.values())
    found = keras.ops.convert_to_numpy(problems.log_prior(tensors))
    assert found == pytest.approx(prior, rel=1e-5)


def draws_of(kernel, num_steps, burn_in, every):
    """Draws of a kernel, on all of the data, and the stored regression."""
    problem = problems.problem("logistic")
    reference = references.load("logistic", problem)
    draws = mh.sample(
        kernel,
        {k: v.astype("float32") for k, v in reference.weight_mean.items()},
        log_likelihood=problem.log_likelihood,
        log_prior=problems.log_prior,
        data=problem.data,
        num_steps=num_steps,
        burn_in=burn_in,
        every=every,
        num_chains=50,
        progress=False,
    )
    return draws, problem, reference


def of_kernel(kernel, num_steps=3000, burn_in=1000, every=20):
    """Agreement of a kernel, on all of the data, with the stored regression."""
    draws, problem, reference = draws_of(kernel, num_steps, burn_in, every)
    position = {k: np.asarray(v, "float32") for k, v in draws.position.items()}
    found = keras.ops.convert_to_numpy(problem.predict(position, problem.x_test))
    return mh.diagnostics.agreement(predictions=found, **reference.arguments())


def test_full_batch_metropolis_hastings_agrees_with_nuts():
    langevin = mh.proposals.Langevin()
    score = of_kernel(mh.kernels.mhbt(10.0, proposal=langevin))
    assert score.label_agreement == 1.0
    assert score.total_variation < 0.002 and score.w1 < 0.006
    # With JAX, steps of 5 and 15 gave errors between 1.2 and 1.8.
    assert score.mean_error < 3.0 and score.sd_error < 3.0


@pytest.mark.slow
def test_hamiltonian_monte_carlo_agrees_with_nuts():
    score = of_kernel(mh.kernels.hmc(warm_up=200), 440, burn_in=200, every=3)
    assert score.label_agreement == 1.0
    assert score.total_variation < 0.002 and score.w1 < 0.006
    assert score.mean_error < 3.0 and score.sd_error < 3.0


def test_microcanonical_langevin_agrees_with_nuts():
    score = of_kernel(mh.kernels.mclmc(warm_up=600), 1400, burn_in=600, every=5)
    assert score.label_agreement == 1.0
    assert score.total_variation < 0.002 and score.w1 < 0.006
    assert score.mean_error < 4.0 and score.sd_error < 4.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("energy_error", "least", "most"), [(5e-4, 0.98, 1.02), (0.1, 0.95, 0.985)]
)
def test_the_bias_of_microcanonical_langevin_is_as_the_page_says(
    energy_error, least, most
):
    kernel = mh.kernels.mclmc(warm_up=600, energy_error=energy_error)
    draws, _, reference = draws_of(kernel, 2600, 600, 5)
    ratios, offs = [], []
    for name, sd in reference.weight_sd.items():
        values = draws.position[name].astype("float64")
        ratios.append(np.ravel(values.std(axis=(0, 1)) / sd))
        mean = values.mean(axis=(0, 1))
        offs.append(np.ravel(np.abs(mean - reference.weight_mean[name]) / sd))
    # The mean over the weights; each by itself has an error of about 0.01.
    assert least < np.concatenate(ratios).mean() < most
    assert np.concatenate(offs).max() < 0.12
    assert draws.info["returns"].sum() <= 10


@pytest.mark.slow
def test_a_temperature_of_two_does_not():
    langevin = mh.proposals.Langevin()
    score = of_kernel(mh.kernels.mhbt(10.0, proposal=langevin, temperature=2.0))
    assert score.label_agreement == 1.0  # which labels alone do not show
    assert score.sd_error > 10.0 and score.w1 > 0.006


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="NUTS runs on JAX")
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    jax = pytest.importorskip("jax")
    pytest.importorskip("blackjax")
    problem = problems.problem("sine")
    plan = references.Plan(warmup=20, chunks=2, draws=4, every=2)
    before = jax.config.jax_enable_x64
    try:
        whole = references.run(problem, plan, tmp_path / "whole")
        assert references.run(problem, plan, tmp_path / "part", stop_after=2) is None
        parts = references.run(problem, plan, tmp_path / "part")
    finally:
        jax.config.update("jax_enable_x64", before)
    assert whole["predictions"].shape == (references.CHAINS, 4, 51)
    assert whole["predictions"].dtype == "float64"
    for key in whole.keys() - {"seconds"}:
        np.testing.assert_array_equal(parts[key], whole[key])
