"""Decisions of the kernels with growing batches: their tables, errors and biases."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from keras import ops

from keras_mhmcmc import kernels
from keras_mhmcmc.samplers import barker
from keras_mhmcmc.samplers import growing
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.sampling import starts
from tests.oracles import growing as oracle
from tests.samplers.test_transitions import _plain_loops  # noqa: F401


def test_blocks_of_a_permutation_are_the_batch():
    uniforms = np.random.default_rng(0).random((8, 5)).astype("float32")
    keys = ops.convert_to_tensor(uniforms)
    whole = ops.convert_to_numpy(batches.draw_batches(keys, 101, 101))
    assert (np.sort(whole, axis=1) == np.arange(101)).all()
    for places in (np.arange(30), np.arange(30, 101)):
        found = batches.permuted(keys, 101, ops.convert_to_tensor(places, "int32"))
        np.testing.assert_array_equal(ops.convert_to_numpy(found), whole[:, places])


def values_and_probabilities():
    """X_corr as the kernel draws it, in order."""
    table = barker.correction_table()
    probabilities = np.diff(np.concatenate([[0.0], table, [1.0]]))
    half = len(barker.PROBABILITIES) - 1
    return barker.SPACING * np.arange(-half, half + 1), probabilities


def test_the_table_and_a_normal_make_a_logistic_distribution():
    values, probabilities = values_and_probabilities()
    assert probabilities.min() >= 0.0
    y = np.linspace(-60.0, 60.0, 60_001)
    error = oracle.mixture(values, probabilities, y) - scipy.special.expit(y)
    assert np.abs(error).max() < 6.5e-7
    variance = probabilities @ values**2 + barker.SIGMA**2
    assert variance == pytest.approx(np.pi**2 / 3, abs=1e-6)


def test_the_table_is_the_non_negative_least_squares_solution():
    values = barker.SPACING * np.arange(len(barker.PROBABILITIES))
    y = np.linspace(0.0, 35.0, 1401)
    columns = scipy.special.ndtr(y[:, None] - values)
    columns = 0.5 * (columns + scipy.special.ndtr(y[:, None] + values))
    target = scipy.special.expit(y)

    def residual(probabilities):
        return np.sum(np.square(columns @ probabilities - target))

    # A heavy row keeps the sum of the probabilities at 1.
    rows = np.vstack([columns, 1e3 * np.ones(len(values))])
    found, _ = scipy.optimize.nnls(rows, np.append(target, 1e3), maxiter=10_000)
    found /= found.sum()
    np.testing.assert_allclose(barker.PROBABILITIES, found, atol=2e-7)
    assert residual(np.array(barker.PROBABILITIES)) < 1.01 * residual(found)


def test_the_noise_of_barkers_test_is_logistic():
    """X_nc + X_corr of a batch of all of the data."""
    rng = np.random.default_rng(0)
    u, v, w = (ops.convert_to_tensor(rng.random(100_000, "float32")) for _ in range(3))
    table = ops.convert_to_tensor(barker.correction_table().astype("float32"))
    normal = ops.convert_to_numpy(barker.standard_normal(u, v))
    assert scipy.stats.kstest(normal, "norm").pvalue > 1e-3
    noise = normal + ops.convert_to_numpy(barker.correction(table, w))
    assert scipy.stats.kstest(noise, "logistic").pvalue > 1e-3


@pytest.mark.parametrize("epsilon", [0.49, 0.05, 1e-3, 1e-8])
def test_quantiles_of_student(epsilon):
    freedoms = np.array([1, 2, 5, 49, 499, 99_999])
    found = growing.student_quantiles(epsilon, freedoms)
    expected = scipy.stats.t.isf(epsilon, freedoms)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_the_least_epsilon_reads_all_of_the_data():
    assert np.isinf(growing.student_quantiles(0.0, np.array([1, 100]))).all()
    assert np.isinf(growing.student_quantiles(1e-13, np.array([1, 100]))).all()


def test_the_levels_of_the_looks_share_delta():
    found = growing.levels(0.2, 1000)
    looks = np.flatnonzero(np.isfinite(found)) + 1
    np.testing.assert_array_equal(looks, 2 ** np.arange(10))
    shares = 3.0 * np.exp(-found[looks - 1])
    assert 0.7 * 0.2 < shares.sum() < 0.2
    assert np.isfinite(growing.levels(0.2, 1)).all()


DRAWS = 8000


class OneMove:
    """Many tests of one proposal, for examples whose differences are given."""

    def __init__(self, kernel, differences, seed=0, draws=DRAWS):
        self.draws = draws
        self.train_size = len(differences)
        self.kernel = kernel.bind_data_size(self.train_size, None)
        self.arrays = [ops.convert_to_tensor(array) for array in self.kernel.arrays]
        self.differences = ops.convert_to_tensor(differences.astype("float32"))
        count = self.kernel.num_uniforms + batches.num_rounds(self.train_size)
        rng = np.random.default_rng(seed)
        self.noise = rng.random((count, draws, 1), "float32")

    def log_likelihoods(self, positions, index):
        found = ops.take(self.differences, index)
        return [ops.zeros_like(found), found]

    def log_prior(self, position):
        return ops.zeros((self.draws,), "float32")

    def uniforms(self, count, size, part):
        return ops.convert_to_tensor(self.noise[:count])

    def normals(self, part):
        return [ops.ones((self.draws, 1), "float32")]

    def run(self):
        """Decisions and batch sizes, (draws,) each."""
        start = ops.zeros((self.draws, 1), "float32")
        state = starts.first_state(self.kernel, [start])
        counts = self.kernel.step(state, self)[2]
        found = [ops.convert_to_numpy(counts[k]) for k in ("accepted", "examples")]
        return found[0] > 0, found[1]


def of_examples(log_ratio, spread, size=2000, skew=0):
    """Differences with a sum, and a standard deviation of that sum; maybe skewed."""
    rng = np.random.default_rng(4)
    values = rng.exponential(size=size) ** skew if skew else rng.normal(size=size)
    values = (values - values.mean()) / values.std()
    return log_ratio / size + spread / np.sqrt(size) * values


@pytest.mark.parametrize("log_ratio", [-1.5, 0.3])
@pytest.mark.parametrize("spread", [0.4, 2.0])
def test_barkers_acceptance_is_near_the_exact_one(log_ratio, spread):
    """Within 0.01, for batches of a fifth of the examples and more."""
    kernel = kernels.barker(1.0, block_size=200)
    wins, sizes = OneMove(kernel, of_examples(log_ratio, spread)).run()
    assert 200 <= sizes.mean() < 1800
    exact = scipy.special.expit(log_ratio)
    error = np.sqrt(exact * (1 - exact) / DRAWS)
    assert abs(wins.mean() - exact) < 0.01 + 4 * error


def test_barkers_error_falls_with_the_batch():
    """A few examples have large differences: small batches are far from normal."""
    differences = of_examples(0.0, 0.6, skew=4)
    draws = 2000
    error = 4 * 0.5 / np.sqrt(draws)
    found = {}
    for size in (20, 2000):
        move = OneMove(kernels.barker(1.0, block_size=size), differences, draws=draws)
        wins, _ = move.run()
        found[size] = abs(wins.mean() - 0.5)
    assert found[20] > 0.05 + error
    assert found[2000] < error


def test_skewed_differences_bias_barkers_test():
    """A batch that ends because its variance is small has a small mean, too."""
    kernel = kernels.barker(1.0, block_size=200)
    wins, _ = OneMove(kernel, of_examples(0.3, 2.0, skew=1)).run()
    bias = wins.mean() - scipy.special.expit(0.3)
    assert -0.06 < bias < -0.02


@pytest.mark.parametrize("epsilon", [0.2, 0.02, 0.0])
def test_austerity_decides_wrongly_as_rarely_as_it_says(epsilon):
    """The errors of all looks add up to what the paper allows: epsilon for each."""
    kernel = kernels.austerity(1.0, epsilon=epsilon, block_size=200)
    move = OneMove(kernel, of_examples(-0.7, 2.0))
    wins, sizes = move.run()
    is_wrong = wins != (np.log(move.noise[0, :, 0]) < -0.7)
    # At epsilon = 0 decisions differ by rounding alone.
    assert is_wrong.mean() <= 10 * epsilon + 1e-3
    if epsilon == 0.0:
        assert (sizes == 2000).all()
    else:
        assert sizes.mean() < 1900 and is_wrong.any()


@pytest.mark.slow_on("jax", "tensorflow")
@pytest.mark.parametrize("delta", [0.5, 0.01])
def test_the_confidence_sampler_decides_wrongly_with_less_than_delta(delta):
    differences = np.random.default_rng(4).uniform(-1.0, 1.0, size=20_000)
    differences = 2e-3 * (differences - differences.mean()) - 0.7 / 20_000
    bounds = np.full(20_000, np.abs(differences).max())
    kernel = kernels.confidence(1.0, bounds=bounds, delta=delta, block_size=500)
    move = OneMove(kernel, differences, draws=1000)
    wins, sizes = move.run()
    is_wrong = wins != (np.log(move.noise[0, :, 0]) < -0.7)
    assert is_wrong.mean() <= delta
    assert sizes.mean() < 19_000
