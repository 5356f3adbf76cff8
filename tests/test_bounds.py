"""Bounds of single log-likelihoods hold, and are no larger than they must be."""

import numpy as np
import pytest
import scipy.special
import scipy.stats

import keras_mhmcmc as mh


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_bounds_hold_and_are_reached(scale):
    """Differences over distances come near each bound, and never above."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(7, 3))
    one = scale * rng.normal(size=(4000, 3, 4))
    two = one + 1e-3 * rng.normal(size=one.shape)
    distance = np.sqrt(np.sum((one - two) ** 2, axis=(1, 2)))
    log_softmax = lambda t: (
        (x @ t)
        - scipy.special.logsumexp(  # noqa: E731
            x @ t, axis=-1, keepdims=True
        )
    )
    change = np.abs(log_softmax(one) - log_softmax(two)).max(axis=-1)
    ratio = change / distance[:, None] / mh.bounds.softmax_regression(x)
    assert ratio.max() <= 1 + 1e-6
    one, two = one[:, :, 0], two[:, :, 0]
    distance = np.sqrt(np.sum((one - two) ** 2, axis=1))
    logistic = lambda t: -np.logaddexp(0, -t @ x.T)  # noqa: E731
    change = np.abs(logistic(one) - logistic(two)) / distance[:, None]
    assert (change / mh.bounds.logistic_regression(x)).max() <= 1 + 1e-6
    student = scipy.stats.t(3.0, scale=0.5)
    change = np.abs(student.logpdf(one @ x.T) - student.logpdf(two @ x.T))
    bound = mh.bounds.robust_regression(x, 3.0, scale=0.5)
    assert (change / distance[:, None] / bound).max() <= 1 + 1e-6


def test_bounds_are_reached_at_the_worst_place():
    """A bound that is too large would cost examples without a need."""
    x = np.array([[2.0, 0.0]])
    step = np.array([1e-4, 0.0])
    far = np.array([-40.0, 0.0])
    change = np.logaddexp(0, -(far @ x.T)) - np.logaddexp(0, -((far + step) @ x.T))
    np.testing.assert_allclose(
        change / 1e-4, mh.bounds.logistic_regression(x), rtol=1e-6
    )
    student = scipy.stats.t(3.0, scale=0.5)
    place = 0.5 * np.sqrt(3.0)
    slope = (student.logpdf(place) - student.logpdf(place + 1e-5)) / 1e-5
    bound = mh.bounds.robust_regression([[1.0]], 3.0, scale=0.5)
    np.testing.assert_allclose(slope, bound[0], rtol=1e-4)
    # Two classes, one of them certain and wrong: the gradient is sqrt(2) long.
    weights = np.array([[20.0, -20.0]])
    move = 1e-5 * np.array([[-1.0, 1.0]]) / np.sqrt(2)
    log_p = lambda w: (w - scipy.special.logsumexp(w))[0, 1]  # noqa: E731
    change = (log_p(weights + move) - log_p(weights)) / 1e-5
    np.testing.assert_allclose(change, mh.bounds.softmax_regression([[1.0]]), rtol=1e-4)
