"""Expansions of log-likelihoods: their bounds hold and are reached, their polynomials
are Taylor's, and their Gaussian is the one at the mode."""

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import taylor

RNG = np.random.default_rng(11)
X = np.column_stack([RNG.normal(size=(60, 2)), np.ones(60)])
Y = (RNG.random(60) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype("float64")
SIGN = 1 - 2 * Y


def log_likelihoods(theta):
    return -np.logaddexp(0.0, SIGN * (X @ theta))


def numpy(function, *arrays):
    """What a function of tensors returns, float64."""
    tensors = [ops.convert_to_tensor(np.asarray(a, "float32")) for a in arrays]
    return ops.convert_to_numpy(function(*tensors)).astype("float64")


def sigmoid(s):
    return 1 / (1 + np.exp(-s))


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("order", [1, 2])
def test_remainders_stay_within_their_bounds(order, scale):
    expansion = mh.expansions.logistic_regression(X, Y, order=order)
    own = taylor.whitened(expansion, 1.0)
    here = scale * RNG.normal(size=(2000, 3))
    step = RNG.choice([0.05, 0.5, 2.0], size=(2000, 1))
    there = here + step * scale * RNG.normal(size=here.shape)
    phi = numpy(lambda a, b: taylor.reach(a, b, order), here, there)
    largest = 0.0
    for z, w, reach in zip(here, there, phi, strict=True):
        change = (own.rows @ (w - z)) * (
            expansion.slopes + 0.5 * own.curvatures * (own.rows @ (w + z))
        )
        before, after = (expansion.reference + own.factor @ v for v in (z, w))
        remainder = log_likelihoods(after) - log_likelihoods(before) - change
        ratio = np.abs(remainder) / (own.limits * reach)
        largest = max(largest, ratio.max())
    assert largest <= 1 + 1e-5
    if scale < 1:
        assert largest > 0.3


@pytest.mark.parametrize("order", [1, 2])
def test_the_bound_is_reached_in_one_dimension(order):
    """Where |f^(k+1)| is largest, along the line of the features."""
    place = {1: 0.0, 2: np.log(2 + np.sqrt(3))}[order]
    expansion = mh.expansions.Expansion(
        features=[[1.0]],
        reference=[place],
        covariance=[[1.0]],
        slopes=[-sigmoid(place)],
        curvatures=None if order == 1 else [-sigmoid(place) * sigmoid(-place)],
        bounds=[{1: 0.25, 2: 1 / (6 * np.sqrt(3))}[order]],
    )
    f = lambda t: -np.logaddexp(0.0, place + t)  # noqa: E731
    curvature = 0.0 if order == 1 else expansion.curvatures[0]
    for one, two in [(0.0, 1e-2), (1e-2, 1.1e-2)]:
        change = (two - one) * (expansion.slopes[0] + curvature * (one + two) / 2)
        remainder = abs(f(two) - f(one) - change)
        reach = numpy(lambda a, b: taylor.reach(a, b, order), [[one]], [[two]])[0]
        assert 0.97 < remainder / (expansion.bounds[0] * reach) <= 1 + 1e-3


@pytest.mark.parametrize("order", [1, 2])
def test_a_move_and_its_reverse_have_one_reach(order):
    here, there = RNG.normal(size=(2, 500, 4))
    one = numpy(lambda a, b: taylor.reach(a, b, order), here, there)
    two = numpy(lambda a, b: taylor.reach(a, b, order), there, here)
    np.testing.assert_allclose(one, two, rtol=1e-6)
    assert (one > 0).all()
    nothing = numpy(lambda a, b: taylor.reach(a, b, order), here, here)
    np.testing.assert_array_equal(nothing, 0.0)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("order", [1, 2])
def test_polynomials_of_all_are_the_sum_of_those_of_each(order, temperature):
    expansion = mh.expansions.logistic_regression(X, Y, order=order, prior_scale=0.5)
    own = taylor.whitened(expansion, temperature)
    here, there = RNG.normal(size=(2, 5, 3))
    rows = np.broadcast_to(own.rows, (5, *own.rows.shape))
    slopes, curvatures = (
        np.broadcast_to(a, (5, len(X))) for a in (expansion.slopes, own.curvatures)
    )
    each = numpy(taylor.change_of_each, here, there, rows, slopes, curvatures)
    both = numpy(taylor.change_of_all, here, there, own.gradient, own.hessian)
    np.testing.assert_allclose(each.sum(axis=1), both, rtol=1e-4, atol=1e-4)


def test_slopes_and_curvatures_are_derivatives():
    expansion = mh.expansions.logistic_regression(X, Y)
    logits, h = X @ expansion.reference, 1e-4
    f = lambda s: -np.logaddexp(0.0, SIGN * s)  # noqa: E731
    slopes = (f(logits + h) - f(logits - h)) / (2 * h)
    curvatures = (f(logits + h) - 2 * f(logits) + f(logits - h)) / h**2
    np.testing.assert_allclose(expansion.slopes, slopes, atol=1e-6)
    np.testing.assert_allclose(expansion.curvatures, curvatures, atol=1e-6)


@pytest.mark.parametrize("prior_scale", [None, 0.3, 1.0, 1e3])
def test_the_reference_is_the_mode_and_the_gaussian_fits_there(prior_scale):
    expansion = mh.expansions.logistic_regression(X, Y, prior_scale=prior_scale)
    precision = 0.0 if prior_scale is None else prior_scale**-2
    energy = lambda t: -log_likelihoods(t).sum() + precision * t @ t / 2  # noqa: E731
    mode, h = expansion.reference, 1e-3
    basis = h * np.linalg.cholesky(expansion.covariance).T
    for step in basis:
        # U rises by h^2 / 2 in each direction of the Gaussian.
        rise = [energy(mode + sign * step) - energy(mode) for sign in (1, -1)]
        np.testing.assert_allclose(rise, h**2 / 2, rtol=2e-3)


def test_a_mode_far_away_is_found():
    """Newton's full steps diverge from 0 here."""
    x = np.column_stack([np.ones(2000), 30.0 * RNG.normal(size=2000)])
    y = RNG.random(2000) < sigmoid(x @ [6.0, 1.0])
    expansion = mh.expansions.logistic_regression(x, y, prior_scale=None)
    residual = x.T @ (y - sigmoid(x @ expansion.reference))
    newton = expansion.covariance @ residual
    assert residual @ newton < 1e-6
    np.testing.assert_allclose(expansion.reference, [6.0, 1.0], rtol=0.3)


@pytest.mark.parametrize(
    "x, y",
    [
        ([[-1.0], [1.0]], [0, 1]),  # separated
        ([[1.0, 1.0], [2.0, 2.0], [1.5, 1.5]], [0, 1, 0]),  # one direction is free
    ],
)
def test_a_posterior_without_a_mode_is_refused(x, y):
    with pytest.raises(ValueError, match="must give a posterior with a mode.*prior"):
        mh.expansions.logistic_regression(x, y, prior_scale=None)
    assert mh.expansions.logistic_regression(x, y).order == 2
