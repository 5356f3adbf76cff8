"""What the suite compares with is compared in turn: numpy alone, no sampler."""

import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.statistics import literal
from tests.statistics import references
from tests.statistics import suite
from tests.statistics import table
from tests.statistics.targets import TARGETS

every_target = pytest.mark.parametrize("name", TARGETS)


@every_target
def test_slopes_are_derivatives_of_the_loss(name):
    target = TARGETS[name]
    x, batch = target.draw(np.random.default_rng(0), 50)
    width = 1e-5
    for axis, unit in enumerate(np.eye(target.dimension)):
        above, below = (target.energy(x + s * unit, batch) for s in (width, -width))
        derivative = (above - below) / (2 * width * target.train_size)
        np.testing.assert_allclose(
            target.gradient(x, batch)[:, axis], derivative, rtol=1e-5, atol=1e-7
        )


@every_target
def test_draws_have_the_expectations_of_the_target(name):
    target = TARGETS[name]
    x, _ = target.draw(np.random.default_rng(1), 20_000)
    values = target.functions(x)
    errors = values.std(axis=0) / len(x) ** 0.5
    scores = (values.mean(axis=0) - target.expectations()) / errors
    assert np.abs(scores).max() < suite.LIMIT


def test_the_moments_of_nuts_are_those_of_quadrature():
    """On a grid around them; the numbers have errors of about 5e-4."""
    target = TARGETS["logistic"]
    mean, covariance = target.mean_and_covariance()
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    z = np.stack(np.meshgrid(nodes, nodes, nodes), axis=-1).reshape(-1, 3)
    x = mean + z @ np.linalg.cholesky(1.5 * covariance).T
    log_mass = -target.energy(x, np.zeros(len(x), int)) + 0.5 * (z**2).sum(axis=1)
    mass = np.exp(log_mass - log_mass.max())
    mass *= np.einsum("i,j,k->jik", weights, weights, weights).ravel()
    mass /= mass.sum()
    np.testing.assert_allclose(mass @ x, mean, atol=2e-3)
    offset = x - mass @ x
    np.testing.assert_allclose((mass * offset.T) @ offset, covariance, atol=2e-3)


@pytest.mark.parametrize(("sampler", "shrink"), [("sgld", 1.0), ("sghmc", 1.6)])
def test_the_moments_are_the_closed_forms(sampler, shrink):
    """T / (L (1 - eta L / 2)), and with momentum T / (L (1 - eta L / (2 (1 + mu))))."""
    target = TARGETS["gaussian"]
    optimizer = table.SAMPLERS[sampler].make(target, 0)
    eta = optimizer.get_config()["learning_rate"] / target.train_size
    plan = references.Plan(chains=1, steps=1500, every=500)
    values = references.moments(optimizer, target, plan).values
    expected = 1.0 / (1.0 - eta * 4.0 / (2.0 * shrink))
    names = target.names()
    np.testing.assert_allclose(values[names.index("x0x0")], expected, rtol=1e-5)
    np.testing.assert_allclose(values[names.index("x0")], 0.0, atol=1e-9)


@pytest.mark.parametrize("target", ["correlated", "regression"])
@pytest.mark.parametrize("sampler", ["sgld", "sghmc"])
def test_the_moments_are_those_of_the_simulated_recursion(sampler, target):
    target = TARGETS[target]
    optimizer = table.SAMPLERS[sampler].make(target, 0)
    plan = references.Plan(chains=1, steps=60, every=6)
    exact = references.moments(optimizer, target, plan).values
    values, errors = references.simulated(optimizer, target, plan)
    scores = np.abs(values - exact) / errors
    assert np.nanmax(scores) < suite.LIMIT


# pSGLD is not here: with a step that goes to 0 its metric still follows the position,
# and the correction that the paper's experiments leave out would be needed.
@pytest.mark.slow
@pytest.mark.parametrize("target", ["skewed", "logistic", "bimodal"])
@pytest.mark.parametrize("sampler", ["sgld", "sghmc", "csgld", "csghmc"])
def test_recursions_come_to_the_target_with_smaller_steps(sampler, target):
    """The bias is linear in the step: extrapolated from two steps, it vanishes.

    At the same times, since chains start in the target; momentum starts at 0, which
    costs a time in proportion to the step as well.
    """
    target = TARGETS[target]
    optimizer = table.SAMPLERS[sampler].make(target, 0)
    config = optimizer.get_config()
    results = []
    for seed, divisor in ((1, 2), (2, 4)):
        smaller = {"learning_rate": config["learning_rate"] / divisor}
        if "masses" in config:
            smaller["step_size"] = config["step_size"] / divisor
        finer = type(optimizer).from_config(config | smaller)
        plan = references.Plan(chains=1, steps=120 * divisor, every=6 * divisor)
        results.append(references.simulated(finer, target, plan, 4000, seed))
    (coarse, fine) = results
    values = 2.0 * fine.values - coarse.values
    errors = np.hypot(2.0 * fine.errors, coarse.errors)
    # What is left is of the order of the step squared.
    allowance = 0.25 * np.abs(fine.values - coarse.values) + 0.01
    scores = (np.abs(values - target.expectations()) - allowance) / errors
    assert scores.max() < suite.LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("target", ["correlated", "skewed", "logistic", "bimodal"])
def test_the_recursion_of_sgnht_comes_to_the_target_with_smaller_steps(target):
    """The paper's step h / 6: rate / 36, friction / 6. Its velocities start at 0."""
    target, divisor = TARGETS[target], 6
    config = table.SAMPLERS["sgnht"].make(target, 0).get_config()
    config["learning_rate"] /= divisor**2
    config["momentum"] = 1.0 - (1.0 - config["momentum"]) / divisor
    rng = np.random.default_rng(1)
    position, _ = target.draw(rng, 2000)
    states = literal.steps(
        mh.SGNHT.from_config(config), target, position, None, rng, every=1
    )
    values = []
    for number in range(150 * divisor):
        position, _ = next(states)
        if number >= 30 * divisor and number % (3 * divisor) == 0:
            values.append(target.functions(position))
    values = np.array(values)
    means, errors = references.estimate(values, np.zeros(values.shape[:2]))
    assert np.abs((means - target.expectations()) / errors).max() < suite.LIMIT
