"""Conformal sets and intervals: ranks by hand, coverage by simulation, faults."""

import keras
import numpy as np
import pytest
from scipy import stats

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.calibrated import _threshold
from tests.support.attack_tools import linear


class TestThreshold:
    @pytest.mark.parametrize(
        "count, level, rank",
        [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (99, 0.9, 90), (100, 0.9, 91)]
        + [(19, 0.95, 19), (1, 0.5, 1), (3, 0.7, 3), (999, 0.3, 300), (9, 0.1, 1)],
    )
    def test_is_the_ceil_of_n_plus_1_times_level_th_smallest(self, count, level, rank):
        scores = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
        assert _threshold(scores, level) == rank

    @pytest.mark.parametrize("level, least", [(0.9, 9), (0.95, 19), (0.99, 99)])
    def test_too_few_examples(self, level, least):
        assert _threshold(np.zeros(least), level) == 0.0
        with pytest.raises(ValueError, match=f"at least {least} calibration examples"):
            _threshold(np.zeros(least - 1), level)

    @pytest.mark.parametrize("count, level", [(9, 0.9), (12, 0.7), (50, 0.5)])
    def test_coverage_of_uniform_scores_is_that_of_the_theorem(self, count, level):
        """Over calibration sets it is exactly rank / (n + 1), between both bounds."""
        rng = np.random.default_rng(1)
        thresholds = [_threshold(rng.uniform(size=count), level) for _ in range(20_000)]
        expected = np.ceil((count + 1) * level - 1e-9) / (count + 1)
        error = np.std(thresholds) / np.sqrt(len(thresholds))
        assert abs(np.mean(thresholds) - expected) < 4 * error
        assert level <= expected <= level + 1 / (count + 1)


def classes_case(examples, seed, spread=2.0):
    """Inputs that are the logits, and labels from other logits: a wrong model."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(examples, 4)).astype("float32")
    p = np.exp(x * spread)
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.uniform(size=(examples, 1))).sum(axis=1)
    return x, np.minimum(y, 3)


def is_binomial(hits, level, count, calibrated):
    """Whether a share fits `level`, given the spread of both samples, at 1 in 1e5."""
    # The coverage given the calibration data is Beta(rank, n + 1 - rank).
    rank = np.ceil((calibrated + 1) * level - 1e-9)
    law = stats.betabinom(count, rank, calibrated + 1 - rank)
    return law.ppf(1e-5) <= hits <= law.ppf(1 - 1e-5)


class TestSets:
    def model(self):
        return linear(np.eye(4), np.zeros(4), None)

    def sets(self, level=0.9, examples=500, shift=0):
        x, y = classes_case(examples, 0)
        return mh.conformal_sets(
            self.model(), x, (y + shift) % 4, level=level, from_logits=True
        )

    @pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
    def test_coverage_of_a_wrong_model(self, level):
        sets = self.sets(level)
        x, y = classes_case(4000, 1)
        inside = sets.predict(x)[np.arange(4000), y]
        assert is_binomial(inside.sum(), level, 4000, 500)

    def test_are_the_classes_above_a_probability(self):
        sets = self.sets()
        x, _ = classes_case(50, 3)
        probabilities = mh.Classifier(self.model(), from_logits=True).probabilities(x)
        found = sets.predict(x)
        assert found.dtype == bool and found.shape == (50, 4)
        np.testing.assert_array_equal(found, 1 - probabilities <= sets.threshold)
        assert sets.level == 0.9

    def test_of_an_ensemble_and_a_classifier(self):
        x, y = classes_case(100, 0)
        ensemble = mh.Ensemble(self.model(), 2, "softmax")
        kernels = np.stack([np.eye(4), 3 * np.eye(4)])
        ensemble.set_members([kernels, np.zeros((2, 4))], [0.25, 0.75])
        sets = mh.conformal_sets(ensemble, x, y)
        scores = 1 - mh.Classifier(ensemble).probabilities(x)[np.arange(100), y]
        assert sets.threshold == pytest.approx(np.sort(scores)[90], rel=1e-6)
        again = mh.conformal_sets(mh.Classifier(ensemble), x, np.eye(4)[y])
        assert again.threshold == sets.threshold

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"level": 0.99}, "`x` must have at least 99 calibration examples"),
            ({"from_logits": False}, "Pass from_logits=True"),
        ],
    )
    def test_bad_arguments(self, change, message):
        x, y = classes_case(50, 0)
        good = {"model": self.model(), "x": x, "y": y, "from_logits": True}
        with pytest.raises(ValueError, match=message):
            mh.conformal_sets(**(good | change))


def line(outputs=1):
    layer = keras.layers.Dense(outputs)
    model = keras.Sequential([keras.Input((1,)), layer])
    model.set_weights([np.ones((1, outputs)), np.zeros(outputs)])
    return model


def targets_case(examples, seed):
    """Skewed noise and a slope that is not the model's."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(examples, 1)).astype("float32")
    return x, 1.5 * x[:, 0] + rng.exponential(0.3, size=examples)


class TestIntervals:
    @pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
    def test_coverage_of_a_wrong_model(self, level):
        intervals = mh.conformal_intervals(line(), *targets_case(500, 0), level=level)
        x, y = targets_case(4000, 1)
        low, high = intervals.predict(x)
        inside = np.sum((low <= y) & (y <= high))
        assert is_binomial(inside, level, 4000, 500)
        # Targets of other inputs, as if shifted, are outside more often.
        moved = np.sum((low <= np.roll(y, 1)) & (np.roll(y, 1) <= high))
        assert level == 0.99 or not is_binomial(moved, level, 4000, 500)

    def test_are_the_mean_plus_and_minus_a_residual(self):
        x, y = targets_case(99, 0)
        intervals = mh.conformal_intervals(line(), x, y[:, None])
        residuals = np.sort(np.abs(y - x[:, 0]))
        assert intervals.threshold == pytest.approx(residuals[89], rel=1e-6)
        low, high = intervals.predict(x)
        np.testing.assert_allclose((low + high) / 2, x[:, 0], atol=1e-6)
        np.testing.assert_allclose(high - low, 2 * residuals[89], rtol=3e-5)
        assert low.shape == (99,) and intervals.level == 0.9

    def test_an_ensemble_predicts_its_weighted_mean(self):
        x, y = targets_case(99, 0)
        ensemble = mh.Ensemble(line(), 2)
        slopes = np.array([1.0, 2.0]).reshape(2, 1, 1)
        ensemble.set_members([slopes, np.zeros((2, 1))], [0.25, 0.75])
        low, high = mh.conformal_intervals(ensemble, x, y).predict(x)
        np.testing.assert_allclose((low + high) / 2, 1.75 * x[:, 0], atol=1e-6)

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"level": 0.999}, "`x` must have at least 999 calibration examples"),
            ({"model": line(2)}, "`model` must output one number"),
        ],
    )
    def test_bad_arguments(self, change, message):
        x, y = targets_case(50, 0)
        with pytest.raises(ValueError, match=message):
            mh.conformal_intervals(**({"model": line(), "x": x, "y": y} | change))
