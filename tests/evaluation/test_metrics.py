"""Metrics against scikit-learn, torchmetrics, closed forms and limiting cases."""

import itertools

import numpy as np
import pytest
from keras import ops
from sklearn import metrics as sklearn_metrics

from keras_mhmcmc.evaluation import metrics

LOG2 = np.log(2.0)


def random_case(examples=200, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.7), size=examples)
    return probabilities, rng.integers(0, classes, size=examples)


class TestAgainstScikitLearn:
    def test_several_classes(self):
        p, y = random_case()
        one_hot = np.eye(5)[y]
        right = sklearn_metrics.accuracy_score(y, p.argmax(1))
        assert metrics.accuracy(p, y) == pytest.approx(right, abs=1e-15)
        assert metrics.nll(p, y) == pytest.approx(sklearn_metrics.log_loss(y, p))
        columns = [
            sklearn_metrics.brier_score_loss(one_hot[:, k], p[:, k]) for k in range(5)
        ]
        assert metrics.brier(p, y) == pytest.approx(sum(columns))

    @pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
    def test_two_classes(self, shape):
        rng = np.random.default_rng(1)
        p, y = rng.uniform(size=300), rng.integers(0, 2, size=300)
        column = p.reshape(shape)
        right = sklearn_metrics.accuracy_score(y, p > 0.5)
        assert metrics.accuracy(column, y) == pytest.approx(right, abs=1e-15)
        assert metrics.nll(column, y) == pytest.approx(sklearn_metrics.log_loss(y, p))
        binary = sklearn_metrics.brier_score_loss(y, p)
        assert metrics.brier(column, y) == pytest.approx(2.0 * binary)


class TestForms:
    def test_labels_in_three_forms(self):
        p, y = random_case()
        for metric in (metrics.accuracy, metrics.nll, metrics.brier, metrics.ece):
            expected = metric(p, y)
            assert metric(p, y[:, None]) == expected
            assert metric(p, np.eye(5)[y]) == expected
            assert metric(p, y.astype("float32")) == expected
            assert metric(p, y.tolist()) == expected

    def test_two_columns_and_one_are_the_same(self):
        p, y = random_case(classes=2)
        for metric in (metrics.nll, metrics.brier, metrics.ece):
            assert metric(p[:, 1], y) == pytest.approx(metric(p, y), abs=1e-12)
        entropy = metrics.predictive_entropy(p[:, 1:])
        np.testing.assert_allclose(entropy, metrics.predictive_entropy(p), atol=1e-12)

    def test_tensors(self):
        p, y = random_case()
        tensor = ops.convert_to_tensor(p, "float32")
        labels = ops.convert_to_tensor(y, "int32")
        assert metrics.nll(tensor, labels) == pytest.approx(metrics.nll(p, y), rel=1e-5)


def test_small_probabilities_cost_at_most_87_nats():
    found = metrics.nll([[1.0, 1e-30]], [1])
    assert found == pytest.approx(30.0 * np.log(10.0))
    assert metrics.nll([[1.0, 0.0]], [1]) == pytest.approx(126.0 * LOG2)
    assert metrics.nll([[1.0, 0.0]], [0]) == 0.0


class TestCalibration:
    def test_calibrated_sample(self):
        """Labels are drawn from p: the gap of a bin is its standard error."""
        rng = np.random.default_rng(2)
        p = rng.uniform(size=100_000)
        y = rng.uniform(size=p.size) < p
        # About 13 000 examples in each bin in use: its gap has a deviation <= 0.0044.
        assert metrics.ece(p, y, bins=15) < 0.0044
        assert metrics.ece(p**2, y, bins=15) > 0.05

    @pytest.mark.parametrize("bins", [5, 15])
    def test_is_that_of_torchmetrics(self, bins):
        torch = pytest.importorskip("torch")
        functional = pytest.importorskip("torchmetrics.functional.classification")
        p, y = random_case()
        expected = functional.multiclass_calibration_error(
            torch.tensor(p), torch.tensor(y), num_classes=5, n_bins=bins
        )
        assert 0.05 < float(expected) < 0.5
        assert metrics.ece(p, y, bins) == pytest.approx(float(expected), abs=1e-6)

    def test_reliability_by_hand(self):
        p = [[0.5, 0.5], [0.6, 0.4], [0.2, 0.8], [0.0, 1.0]]
        table = metrics.reliability(p, [0, 1, 1, 1], bins=5)
        np.testing.assert_array_equal(table.count, [0, 0, 2, 1, 1])
        nan = np.nan
        np.testing.assert_allclose(table.confidence, [nan, nan, 0.55, 0.8, 1.0])
        np.testing.assert_allclose(table.accuracy, [nan, nan, 0.5, 1.0, 1.0])
        assert metrics.ece(p, [0, 1, 1, 1], bins=5) == pytest.approx(0.3 / 4)

    def test_bins_are_closed_on_the_right(self):
        p = [[k / 10, 1 - k / 10] for k in range(6, 11)]
        table = metrics.reliability(p, [0] * 5, bins=10)
        np.testing.assert_array_equal(table.count, [0] * 5 + [1] * 5)


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

    def test_sees_what_the_predicted_class_hides(self):
        """The predicted class is right as often as it says, the others are swapped."""
        p = np.tile([0.6, 0.4, 0.0], (10, 1))
        y = np.repeat([0, 2], [6, 4])
        assert metrics.ece(p, y) == pytest.approx(0.0, abs=1e-12)
        assert metrics.classwise_ece(p, y) == pytest.approx(0.8 / 3)


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


@pytest.mark.parametrize("levels", [2, 5, 10**6])
def test_areas_against_scikit_learn(levels):
    rng = np.random.default_rng(levels)
    positive = rng.uniform(size=300) < 0.2
    scores = rng.integers(0, levels, 300) + positive * (levels // 4)
    for area, oracle in (
        (metrics.auroc, sklearn_metrics.roc_auc_score),
        (metrics.aupr, sklearn_metrics.average_precision_score),
    ):
        expected = oracle(positive, scores)
        assert area(scores, positive) == pytest.approx(expected, rel=1e-12)


class TestUncertainty:
    def test_entropy_closed_forms(self):
        p = [[0.25] * 4, [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
        np.testing.assert_allclose(
            metrics.predictive_entropy(p), [2 * LOG2, 0.0, LOG2], atol=1e-15
        )

    def test_opposite_certain_members(self):
        members = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
        np.testing.assert_allclose(metrics.mutual_information(members), [LOG2])
        # One column does not tell how far below 3e-8 the other class is.
        found = metrics.mutual_information(members[:, :, 1:])
        np.testing.assert_allclose(found, LOG2, rtol=1e-6)

    def test_weight_is_the_same_as_copies(self):
        rng = np.random.default_rng(3)
        members = rng.dirichlet(np.ones(4), size=(3, 20))
        copies = members[[0, 1, 1, 2, 2, 2]]
        np.testing.assert_allclose(
            metrics.mutual_information(members, [1, 2, 3]),
            metrics.mutual_information(copies),
            atol=1e-12,
        )

    def test_is_the_mean_divergence_from_the_mean(self):
        """Mutual information is the mean KL divergence of a member from the mean."""
        members = np.random.default_rng(4).dirichlet(np.ones(4), size=(5, 30))
        ratio = np.log(members / members.mean(0))
        expected = np.mean(np.sum(members * ratio, axis=2), axis=0)
        np.testing.assert_allclose(metrics.mutual_information(members), expected)


OF_LABELS = (metrics.accuracy, metrics.nll, metrics.brier, metrics.ece, metrics.aurc)
OF_LABELS += (metrics.adaptive_ece, metrics.classwise_ece)
TWO = [[0.5, 0.5], [0.2, 0.8]]


@pytest.mark.parametrize(
    "probabilities, labels, message",
    [
        ([[0.5, 0.6]], [0], "`probabilities` must have rows that sum to 1"),
        ([-3.0, 0.5], [0, 1], "Apply a softmax"),
        (TWO, [0, 2], r"`labels` must be integers in \[0, 2\).*Received: 2 at"),
        (TWO, [[1, 1], [0, 1]], "`labels` must be one-hot"),
        (TWO, [[1, 0, 0], [0, 1, 0]], "`labels` must have one label"),
    ],
)
def test_bad_input(probabilities, labels, message):
    for metric in OF_LABELS:
        with pytest.raises(ValueError, match=message):
            metric(probabilities, labels)


def test_rounding_of_half_precision_is_allowed():
    p = np.array([[0.3337, 0.3337, 0.333]])
    assert metrics.accuracy(p, [0]) == 1.0
