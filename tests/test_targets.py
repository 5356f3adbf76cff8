"""Targets with known moments: against numpy and quadrature on the raw data."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh


def gaussian_log_posterior(data, theta):
    theta = np.asarray(theta, "float64")
    return -0.5 * np.sum((data - theta) ** 2) - 0.5 * np.sum(theta**2)


def tied_log_posterior(data, theta):
    """Of every example by itself, in float64, with the constants of the model."""
    first, second = theta[0], theta[0] + theta[1]
    x = data.astype("float64")
    components = np.exp(-((x - first) ** 2) / 4), np.exp(-((x - second) ** 2) / 4)
    likelihood = np.log(0.5 * sum(components) / np.sqrt(4 * np.pi))
    return likelihood.sum() - theta[0] ** 2 / 20 - theta[1] ** 2 / 2


def test_gaussian_mean_has_the_moments_of_its_density():
    target = mh.targets.GaussianMean(50, 3, seed=1)
    data = target.data.astype("float64")
    mean, covariance = target.moments(temperature=7.0)
    # The log density is quadratic: its gradient and curvature by differences.
    for i in range(3):
        step = 0.1 * np.eye(3)[i]
        values = [gaussian_log_posterior(data, mean + k * step) for k in (-1, 0, 1)]
        assert values[2] - values[0] == pytest.approx(0.0, abs=1e-9)
        curvature = (values[0] - 2 * values[1] + values[2]) / 0.01
        assert covariance[i, i] == pytest.approx(-7.0 / curvature, rel=1e-9)
    assert np.count_nonzero(covariance) == 3


@pytest.mark.parametrize(
    "target, log_posterior",
    [
        (mh.targets.GaussianMean(300, 2, seed=2), gaussian_log_posterior),
        (mh.targets.TiedMeans(300, (0.3, -1.0), seed=3), tied_log_posterior),
    ],
    ids=["gaussian", "tied"],
)
def test_both_forms_of_a_density_are_the_exact_one(target, log_posterior):
    positions = np.array([[0.0, 0.0], [0.5, -1.5], [2.0, 1.8]], "float32")
    exact = np.array([log_posterior(target.data, p) for p in positions])
    whole = [float(target.log_density(ops.convert_to_tensor(p))) for p in positions]
    parts = []
    for position in map(ops.convert_to_tensor, positions):
        each = target.log_likelihood(position, ops.convert_to_tensor(target.data))
        assert tuple(each.shape) == (300,)
        parts.append(float(ops.sum(each) + target.log_prior(position)))
    # Both leave out a constant. float32 sums of a few hundred nats.
    np.testing.assert_allclose(np.diff(whole), np.diff(exact), rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(np.diff(parts), np.diff(exact), rtol=1e-4, atol=2e-3)


@pytest.mark.slow_on("jax", "tensorflow")
@pytest.mark.parametrize(
    "target", [mh.targets.GaussianMean(50, 2), mh.targets.TiedMeans(50)]
)
def test_both_forms_run_in_chains(target):
    kernel = mh.kernels.mhbt(0.1, proposal=mh.proposals.Langevin())
    common = {"num_steps": 3, "num_chains": 4, "progress": False}
    parts = {"log_prior": target.log_prior, "data": target.data}
    for law in (
        {"log_density": target.log_density},
        {"log_likelihood": target.log_likelihood, "batch_size": 10} | parts,
    ):
        draws = mh.sample(kernel, [0.0, 0.0], **law, **common)
        assert np.isfinite(draws.info["energy"]).all()


def test_tied_means_on_a_grid_agree_with_each_position():
    target = mh.targets.TiedMeans(20_000, (0.0, 2.0), seed=0)
    axis_1, axis_2 = np.array([-0.1, 0.0, 0.1]), np.array([1.9, 2.0])
    grid = target.log_density_grid(axis_1, axis_2)
    assert grid.shape == (3, 2)
    exact = np.array(
        [[tied_log_posterior(target.data, (a, b)) for b in axis_2] for a in axis_1]
    )
    # The documented error of the cells: 1e-6 n nats.
    assert np.ptp(grid - exact) < 1e-6 * 20_000


def test_tied_means_mirror_keeps_the_likelihood():
    target = mh.targets.TiedMeans(500, (0.0, 1.0), seed=0)
    points = np.random.default_rng(0).normal(size=(5, 2)).astype("float32")
    data = ops.convert_to_tensor(target.data)
    for point, image in zip(points, mh.targets.mirrored(points), strict=True):
        values = [
            keras.ops.convert_to_numpy(
                target.log_likelihood(ops.convert_to_tensor(p), data)
            )
            for p in (point, image)
        ]
        np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mh.targets.mirrored(mh.targets.mirrored(points)), points)


@pytest.mark.parametrize(
    "given, kept",
    [("float32", "float32"), ("float64", "float64"), ("uint8", "float64")],
)
def test_mirrored_keeps_the_dtype_of_floats(given, kept):
    image = mh.targets.mirrored(np.array([1, 2], given))
    assert image.dtype == kept
    assert image.tolist() == [3.0, -2.0]


@pytest.mark.parametrize("temperature", [1.0, 10.0])
def test_tied_means_moments_by_brute_force(temperature):
    target = mh.targets.TiedMeans(200, (0.0, 2.0), seed=5)
    axis_1, axis_2 = np.linspace(-3, 6, 181), np.linspace(-7, 7, 281)
    x = target.data.astype("float64")
    first = np.exp(-((x - axis_1[:, None]) ** 2) / 4)
    values = np.empty((181, 281))
    for i, a in enumerate(axis_1):
        second = np.exp(-((x - a - axis_2[:, None]) ** 2) / 4)
        values[i] = np.log(first[i] + second).sum(1) - a**2 / 20 - axis_2**2 / 2
    weights = np.exp((values - values.max()) / temperature).ravel()
    grid = np.stack([g.ravel() for g in np.meshgrid(axis_1, axis_2, indexing="ij")])
    mean, covariance = target.moments(temperature)
    np.testing.assert_allclose(
        mean, np.average(grid, axis=1, weights=weights), atol=5e-3
    )
    expected = np.cov(grid, aweights=weights, ddof=0)
    np.testing.assert_allclose(covariance, expected, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(
    "build",
    [
        lambda: mh.targets.GaussianMean(0, 2),
        lambda: mh.targets.GaussianMean(10, 0),
        lambda: mh.targets.GaussianMean(10, 2, true_mean="two"),
        lambda: mh.targets.GaussianMean(10, 2).moments(0.0),
        lambda: mh.targets.TiedMeans(10, (0.0, 0.0)),
        lambda: mh.targets.TiedMeans(10, (0.0, 1.0, 2.0)),
        lambda: mh.targets.TiedMeans(10, seed=-1),
    ],
)
def test_bad_arguments_are_named(build):
    with pytest.raises(ValueError, match="Argument `"):
        build()


def test_positions_that_are_not_finite_are_refused():
    with pytest.raises(
        ValueError, match="`theta` must be finite and.* Received: .*nan"
    ):
        mh.targets.mirrored([0.0, np.nan])


@pytest.mark.parametrize(
    "train_size, temperature",
    [(100, 100.0), (3, 1.0), pytest.param(2000, 1, marks=pytest.mark.slow)],
)
def test_tied_means_moments_of_wide_and_of_narrow_densities(train_size, temperature):
    target = mh.targets.TiedMeans(train_size)
    reach = 8.0 if train_size == 2000 else 80.0
    axis = np.linspace(-reach, reach, 801)
    values = target.log_density_grid(axis, axis) / temperature
    weights = np.exp(values - values.max()).ravel()
    grid = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")])
    expected = np.average(grid, axis=1, weights=weights)
    mean, covariance = target.moments(temperature)
    np.testing.assert_allclose(mean, expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(
        covariance, np.cov(grid, aweights=weights, ddof=0), rtol=5e-3, atol=2e-3
    )
