"""Scores that torchmetrics has as well, of the same predictions."""

import numpy as np
import pytest

from keras_mhmcmc import metrics

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torchmetrics.functional")


def predictions(seed, examples=1000, classes=4):
    """Probabilities of shape (N, C), and labels that are drawn from warmer ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(examples, classes))
    sharp, flat = (np.exp(scale * logits) for scale in (1.0, 0.5))
    sharp, flat = (x / x.sum(axis=1, keepdims=True) for x in (sharp, flat))
    labels = (rng.uniform(size=(examples, 1)) > flat.cumsum(axis=1)).sum(axis=1)
    return sharp, np.minimum(labels, classes - 1)


@pytest.mark.parametrize("seed", [0, 1, 2])
class TestClassification:
    @pytest.mark.parametrize("bins", [5, 15])
    def test_ece(self, seed, bins):
        p, y = predictions(seed)
        expected = functional.classification.multiclass_calibration_error(
            torch.tensor(p), torch.tensor(y), num_classes=4, n_bins=bins
        )
        assert 0.05 < float(expected) < 0.5
        assert metrics.ece(p, y, bins) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("members", [2, 7])
def test_crps(members):
    rng = np.random.default_rng(members)
    samples, y = rng.normal(size=(members, 50)), rng.normal(size=50)
    expected = functional.regression.continuous_ranked_probability_score(
        torch.tensor(samples.T.copy()), torch.tensor(y)
    )
    assert metrics.crps_samples(samples, y) == pytest.approx(float(expected), rel=1e-6)
