"""`sample_last_layer` of two weights, beside sums over a grid in float64."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.baselines import head as heads
from keras_mhmcmc.baselines import last_layer
from tests.support.models import numpy

SIZE, SCALE, CHAINS = 30, 0.7, 800
RNG = np.random.default_rng(6)
X = RNG.normal(size=(SIZE, 2)).astype("float32") * np.array([1.0, 0.6], "float32")
Y = (X @ [1.5, -1.0] + RNG.logistic(size=SIZE) > 0).astype("int32")
# Many chains that begin near the posterior, so that a run is short.
STEPS = dict(num_steps=40)


def moments_of_a_grid():
    """Means, variances and the covariance of the two weights."""
    axis = np.linspace(-5.0, 5.0, 201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    logits = (1 - 2 * Y) * (grid @ X.T.astype("float64"))
    energy = np.logaddexp(0.0, logits).sum(axis=1)
    energy += 0.5 * np.sum(grid**2, axis=1) / SCALE**2
    weights = np.exp(energy.min() - energy)
    weights /= weights.sum()
    mean = weights @ grid
    return mean, (weights * (grid - mean).T) @ (grid - mean)


def draws_of():
    keras.utils.set_random_seed(0)
    layer = keras.layers.Dense(1, "sigmoid", use_bias=False)
    model = keras.Sequential([keras.Input((2,)), layer])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of runs that are too short
        ensemble, _ = mh.sample_last_layer(
            model,
            X,
            Y,
            prior=mh.priors.Gaussian(SCALE),
            members=2 * CHAINS,
            num_chains=CHAINS,
            progress=False,
            **STEPS,
        )
    (draws,) = [v for v in ensemble.weights if tuple(v.shape) == (2 * CHAINS, 2, 1)]
    return numpy(draws)[..., 0].astype("float64")


def draws_of_short_runs(classes=1):
    """The draws that choose the width of the prior.

    A softmax of two classes has the law of a sigmoid in the difference of its columns,
    whose prior is wider by the root of 2.
    """
    layer = keras.layers.Dense(classes, use_bias=False)
    head = heads.head_of(keras.Sequential([keras.Input((2,)), layer]), X, 64, Y)
    tau = np.full((2, classes), classes * SCALE**-2.0)
    posterior = heads.whitened(head, tau, Y)
    runs = heads._short_run(posterior, Y, np.random.default_rng(0))
    found = np.concatenate(list(runs))
    return found[..., -1] - (found[..., 0] if classes == 2 else 0.0)


def assert_law(draws_of=draws_of):
    """Within four standard errors of as many independent draws as there are chains."""
    mean, covariance = moments_of_a_grid()
    draws = draws_of()
    # In coordinates in which the exact covariance is the identity.
    found = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    error = 4.0 / CHAINS**0.5
    assert np.abs(found.mean(axis=1)).max() < error
    squares = np.cov(found) - np.eye(2)
    assert np.abs(squares).max() < error * 2.0**0.5


def test_two_weights_have_the_moments_of_the_grid():
    assert_law()


@pytest.mark.parametrize("classes", [1, 2])
def test_short_runs_have_the_moments_of_the_grid(monkeypatch, classes):
    monkeypatch.setattr(heads, "_CHAINS", CHAINS)
    assert_law(lambda: draws_of_short_runs(classes))
    real = heads._energy

    def free(logits, targets, tau, w):
        return real(logits, targets, 0.0 * tau, w)

    monkeypatch.setattr(heads, "_energy", free)
    with pytest.raises(AssertionError):  # the test sees a prior that is forgotten
        assert_law(lambda: draws_of_short_runs(classes))


def without_a_prior(monkeypatch):
    monkeypatch.setattr(last_layer, "_log_prior", lambda posterior: None)


def with_a_prior_around_the_mode(monkeypatch):
    real = last_layer._log_prior

    def log_prior(posterior):
        centred = {"mode": 0.0 * posterior.mode}
        return real(heads.WhitenedHead(**{**vars(posterior), **centred}))

    monkeypatch.setattr(last_layer, "_log_prior", log_prior)


@pytest.mark.parametrize("plant", [without_a_prior, with_a_prior_around_the_mode])
def test_bugs_of_the_prior_are_found(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_law()
