"""Other calibration errors, risk and coverage, precision and recall; planted faults."""

import itertools

import numpy as np
import pytest
from sklearn import metrics as oracle

from keras_mhmcmc.evaluation import metrics


def random_case(examples=200, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.7), size=examples)
    return probabilities, rng.integers(0, classes, size=examples)


def top_label(p, y):
    """Confidences, and whether the predictions are right, by confidence."""
    order = np.argsort(p.max(axis=1))
    return p.max(axis=1)[order], (p.argmax(axis=1) == y)[order]


class TestAdaptiveEce:
    @pytest.mark.parametrize("bins", [1, 3, 15, 200, 1000])
    def test_without_ties_it_splits_the_sorted_examples(self, bins):
        p, y = random_case()
        confidence, right = top_label(p, y)
        parts = np.array_split(np.arange(200), min(bins, 200))
        gaps = [abs(np.mean(right[i]) - np.mean(confidence[i])) for i in parts]
        expected = np.average(gaps, weights=[len(i) for i in parts])
        assert metrics.adaptive_ece(p, y, bins) == pytest.approx(expected, rel=1e-12)

    def test_one_bin_is_the_gap_of_the_means(self):
        p, y = random_case()
        gap = abs(metrics.accuracy(p, y) - p.max(axis=1).mean())
        assert metrics.adaptive_ece(p, y, bins=1) == pytest.approx(gap, rel=1e-12)
        assert metrics.adaptive_ece(p, y, bins=1) == pytest.approx(
            metrics.ece(p, y, bins=1), rel=1e-12
        )

    def test_the_order_of_equal_confidences_does_not_matter(self):
        p = np.tile([0.9, 0.1], (20, 1))
        for y in (np.arange(20) % 2, np.arange(20) >= 10):
            assert metrics.adaptive_ece(p, y, bins=4) == pytest.approx(0.4, abs=1e-12)

    def test_calibrated_sample(self):
        rng = np.random.default_rng(2)
        p = rng.uniform(size=100_000)
        y = rng.uniform(size=p.size) < p
        # The gap of each of 15 bins has a deviation of at most 0.5 / sqrt(6667).
        assert metrics.adaptive_ece(p, y) < 0.0062
        assert metrics.adaptive_ece(p**2, y) > 0.05


class TestClasswiseEce:
    def test_is_the_mean_of_the_errors_of_the_classes(self):
        p, y = random_case()
        expected = []
        for k in range(5):
            index = np.ceil(np.clip(p[:, k], 1e-9, 1.0) * 15) - 1  # (a, b] bins
            inside = [index == b for b in range(15)]
            expected += [abs(np.sum(p[i, k]) - np.sum(y[i] == k)) / 200 for i in inside]
        value = metrics.classwise_ece(p, y)
        assert value == pytest.approx(np.sum(expected) / 5, rel=1e-12)

    def test_two_classes_have_the_same_error(self):
        rng = np.random.default_rng(5)
        p, y = rng.uniform(size=300), rng.integers(0, 2, size=300)
        one = oracle_of_one_class(p, y == 1, 15)
        other = oracle_of_one_class(1 - p, y == 0, 15)
        assert metrics.classwise_ece(p, y) == pytest.approx((one + other) / 2)

    def test_sees_what_the_predicted_class_hides(self):
        """The predicted class is right as often as it says, the others are swapped."""
        p = np.tile([0.6, 0.4, 0.0], (10, 1))
        y = np.repeat([0, 2], [6, 4])
        assert metrics.ece(p, y) == pytest.approx(0.0, abs=1e-12)
        assert metrics.classwise_ece(p, y) == pytest.approx(0.8 / 3)


def oracle_of_one_class(p, is_class, bins):
    """scikit-learn's calibration curve, of bins closed on the left, weighted."""
    counts, _ = np.histogram(p, np.linspace(0, 1, bins + 1))
    from sklearn.calibration import calibration_curve

    shares, means = calibration_curve(is_class, p, n_bins=bins)
    return np.sum(np.abs(shares - means) * counts[counts > 0]) / len(p)


class TestAurc:
    def test_is_the_mean_risk_over_all_coverages(self):
        p, y = random_case()
        _, right = top_label(p, y)
        wrong = ~right[::-1]
        risks = [np.mean(wrong[:k]) for k in range(1, 201)]
        assert metrics.aurc(p, y) == pytest.approx(np.mean(risks), rel=1e-12)

    def test_ties_count_with_the_mean_over_their_orders(self):
        confidence = np.array([0.9, 0.7, 0.7, 0.7, 0.6])
        p = np.stack([confidence, 1 - confidence], axis=1)
        y = np.array([1, 0, 1, 0, 0])
        areas = []
        for order in itertools.permutations([1, 2, 3]):
            wrong = y[[0, *order, 4]]
            areas.append(np.mean(np.cumsum(wrong) / np.arange(1, 6)))
        assert metrics.aurc(p, y) == pytest.approx(np.mean(areas), rel=1e-12)

    def test_limits(self):
        p, _ = random_case()
        best = p.argmax(axis=1)
        assert metrics.aurc(p, best) == 0.0
        assert metrics.aurc(p, (best + 1) % 5) == 1.0
        flat = np.full((10, 2), 0.5)  # says nothing: the error rate
        assert metrics.aurc(flat, [0] * 7 + [1] * 3) == pytest.approx(0.3)


class TestAupr:
    @pytest.mark.parametrize("levels", [2, 5, 10**6])
    def test_against_scikit_learn(self, levels):
        rng = np.random.default_rng(levels)
        positive = rng.uniform(size=300) < 0.2
        scores = rng.integers(0, levels, 300) + positive * (levels // 4)
        expected = oracle.average_precision_score(positive, scores)
        assert metrics.aupr(scores, positive) == pytest.approx(expected, rel=1e-12)

    def test_ends_and_chance(self):
        assert metrics.aupr([1, 2, 3], [False, False, True]) == 1.0
        assert metrics.aupr([3, 2, 1], [False, False, True]) == pytest.approx(1 / 3)
        assert metrics.aupr([2, 2, 2, 2], [False, False, True, False]) == 0.25


def test_shifted_labels_are_seen():
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.full(4, 0.3), size=2000)
    y = np.array([rng.choice(4, p=row) for row in p])
    for metric in (metrics.adaptive_ece, metrics.classwise_ece, metrics.aurc):
        right, shifted = metric(p, y), metric(p, (y + 1) % 4)
        assert shifted > 2.5 * right, metric.__name__


def test_a_score_against_the_labels_is_seen():
    """Uncertainty as confidence, or in-distribution data as positive."""
    rng = np.random.default_rng(8)
    positive = rng.uniform(size=400) < 0.3
    scores = rng.normal(size=400) + 2 * positive
    assert metrics.aupr(scores, positive) > 0.8
    assert metrics.aupr(-scores, positive) < 0.3
