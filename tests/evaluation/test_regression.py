"""Scores of regressions against SciPy, scoringrules, closed forms; planted faults."""

import math

import numpy as np
import pytest
from scipy import special
from scipy import stats

from keras_mhmcmc import _laws
from keras_mhmcmc import losses
from keras_mhmcmc.evaluation.metrics import NormalMixture

MEANS = np.array([[-1.0, 0.5, 2.0], [0.4, 0.6, -2.5]])
WEIGHTS = [0.3, 0.7]
NOISE = 0.8
Y = np.array([0.1, 0.5, 3.0])
PREDICTION = NormalMixture(MEANS, NOISE, WEIGHTS)


def scipy_cdf(x, example):
    return np.dot(WEIGHTS, stats.norm.cdf(x, MEANS[:, example], NOISE))


class TestNormal:
    def test_probabilities_below_are_those_of_scipy(self):
        x = np.append(np.linspace(-37, 37, 999), [-np.inf, np.inf, -50.0])
        np.testing.assert_allclose(_laws.normal_cdf(x), special.ndtr(x), rtol=1e-12)

    @pytest.mark.parametrize("mean", [-3.0, 0.0, 0.2])
    def test_absolute_mean_is_that_of_the_folded_normal(self, mean):
        expected = stats.foldnorm.mean(abs(mean) / 0.7, scale=0.7)
        assert _laws.normal_distance(np.array(mean), 0.7) == pytest.approx(expected)


class TestMixture:
    def test_nll_of_a_single_member_is_the_loss(self):
        loss = losses.GaussianNLL(NOISE)
        means, y = MEANS.T[None], np.stack([Y, 2 * Y], axis=1)  # two outputs
        nats = float(loss(y.astype("float32"), means[0].astype("float32")))
        assert NormalMixture(means, NOISE).nll(y) == pytest.approx(nats, rel=1e-6)

    def test_nll_of_outputs_is_joint(self):
        """Outputs are independent given the member, not in the mixture."""
        means = np.array([[[0.0, 0.0]], [[4.0, 4.0]]])
        joint = NormalMixture(means, 1.0).nll([[0.0, 0.0]])
        apart = NormalMixture(means[..., 0], 1.0).nll([0.0])
        assert joint == pytest.approx(math.log(2) + math.log(2 * math.pi), rel=1e-6)
        assert 2 * apart == pytest.approx(math.log(2) + joint, rel=1e-3)

    def test_nll_far_away_is_finite(self):
        assert NormalMixture([[0.0], [0.0]], 1e-3).nll([1.0]) == pytest.approx(
            0.5e6 + math.log(1e-3) + 0.5 * math.log(2 * math.pi)
        )

    def test_a_member_of_weight_zero_does_not_count(self):
        both = NormalMixture([[0.0], [1e6]], 0.5, [1.0, 0.0])
        one = NormalMixture([[0.0]], 0.5)
        for y in ([0.3], [1e6]):
            assert both.nll(y) == one.nll(y)
            np.testing.assert_allclose(both.crps(y), one.crps(y), rtol=1e-12)
        np.testing.assert_array_equal(both.quantile(0.2), one.quantile(0.2))

    def test_quantiles_of_many_members_in_blocks(self, monkeypatch):
        rng = np.random.default_rng(0)
        means, weights = rng.normal(size=(30, 7)), rng.uniform(size=30)
        at_once = NormalMixture(means, 0.1, weights).quantile(0.3)
        module = "keras_mhmcmc.evaluation.mixture._BLOCK"
        monkeypatch.setattr(module, 16)
        in_blocks = NormalMixture(means, 0.1, weights).quantile(0.3)
        np.testing.assert_allclose(in_blocks, at_once, atol=1e-12)

    def test_interval_of_one_member_is_that_of_the_normal(self):
        low, high = NormalMixture([[1.0, 5.0]], 2.0).interval(0.95)
        np.testing.assert_allclose(
            low[:, 0], [1 - 2 * 1.959964, 5 - 2 * 1.959964], rtol=1e-6
        )
        np.testing.assert_allclose(high - low, 4 * 1.959964, rtol=1e-6)

    @pytest.mark.parametrize("level", [0.5, 0.9])
    def test_coverage_counts_targets_between_the_ends(self, level):
        y = np.random.default_rng(1).normal(size=200)
        means = np.random.default_rng(2).normal(size=(4, 200))
        prediction = NormalMixture(means, 0.5, [1, 2, 3, 4])
        low, high = prediction.interval(level)
        assert prediction.coverage(y, level) == np.mean(
            (low[:, 0] <= y) & (y <= high[:, 0])
        )


class TestCrps:
    def test_of_a_mixture_is_that_of_scoringrules(self):
        oracle = pytest.importorskip("scoringrules")
        rng = np.random.default_rng(5)
        means, weights = rng.normal(size=(5, 30)), rng.uniform(size=5)
        y, noises = rng.normal(size=30), np.full((5, 30), 0.4)
        tiled = np.tile(weights[:, None] / weights.sum(), 30)
        expected = np.mean(oracle.crps_mixnorm(y, means, noises, tiled, m_axis=0))
        prediction = NormalMixture(means, 0.4, weights)
        assert prediction.crps(y).mean() == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("noise", [1.0, 0.3, 0.01])
    def test_of_many_members_is_that_of_the_same_law(self, noise):
        rng = np.random.default_rng(7)
        means, y = rng.standard_t(3.0, size=(6, 30)), rng.normal(size=30)
        weights = rng.dirichlet(0.3 * np.ones(6))
        few = NormalMixture(means, noise, weights).crps(y)  # in closed form
        many = NormalMixture(np.tile(means, (50, 1)), noise, np.tile(weights, 50))
        np.testing.assert_allclose(many.crps(y), few, rtol=1e-5)


def calibrated(examples=20_000, seed=0):
    """A prediction, and targets that are drawn from it."""
    rng = np.random.default_rng(seed)
    means, weights = rng.normal(size=(3, examples)), np.array([0.6, 0.3, 0.1])
    chosen = means[rng.choice(3, p=weights, size=examples), np.arange(examples)]
    y = chosen + 0.4 * rng.normal(size=examples)
    return means, weights, y


class TestCalibration:
    def test_targets_drawn_from_the_prediction(self):
        means, weights, y = calibrated()
        prediction = NormalMixture(means, 0.4, weights)
        assert stats.kstest(prediction.cdf(y)[:, 0], "uniform").pvalue > 0.01
        curve = prediction.calibration(y)
        np.testing.assert_allclose(curve.expected, np.arange(1, 20) / 20)
        deviation = np.sqrt(curve.expected * (1 - curve.expected) / len(y))
        assert np.all(np.abs(curve.observed - curve.expected) < 4 * deviation)
        assert prediction.calibration_error(y) < 0.01
        for level in (0.5, 0.9, 0.95):
            width = 4 * math.sqrt(level * (1 - level) / len(y))
            assert abs(prediction.coverage(y, level) - level) < width

    def test_curve_and_coverage_agree(self):
        means, weights, y = calibrated(100)
        prediction = NormalMixture(means, 0.4, weights)
        curve = prediction.calibration(y, [0.5, 0.25])
        assert curve.observed.tolist() == [
            prediction.coverage(y, 0.5),
            prediction.coverage(y, 0.25),
        ]

    def test_intervals_that_hold_nothing_or_all(self):
        y = np.zeros(50)
        assert NormalMixture(np.full((1, 50), 1e3), 1.0).calibration_error(y) == 0.5
        assert NormalMixture(np.zeros((1, 50)), 1.0).calibration_error(y) == 0.5
