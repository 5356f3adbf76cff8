"""The law of `mh.AMAGOLD` in `fit`: a regression whose posterior is normal."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.shuffled import Shuffled

N, FEATURES, BATCH = 400, 2, 40
RATE, STEPS, EPOCHS, BURN_IN = 0.05, 5, 620, 20
PASSES = 200  # through the data, of a short run


def regression():
    rng = np.random.default_rng(3)
    x, _ = np.linalg.qr(rng.normal(size=(N, FEATURES)))
    x = (x * N**0.5).astype("float32")  # x^T x = N: one precision for all weights
    y = x @ rng.normal(size=FEATURES) + rng.normal(size=N)
    return x, y.astype("float32")[:, None]


def relative_variances(sampler, epochs=EPOCHS, passes=1, seed=0, **options):
    """Squares of the samples over the posterior's variance, (epochs,), and the fit."""
    x, y = regression()
    prior = mh.priors.Gaussian(0.1)
    precision = N + 100.0
    mean = x.T.astype("float64") @ y[:, 0] / precision
    start = keras.initializers.GlorotUniform(seed=seed)
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=start)
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    options |= dict(train_size=N, momentum=0.8, prior=prior, seed=seed)
    optimizer = sampler(RATE, **options)
    model.compile(optimizer, mh.losses.GaussianNLL(noise_std=1.0))
    every = None if passes == 1 else N // BATCH
    posterior = mh.PosteriorSamples(burn_in=BURN_IN * N // BATCH, every=every)
    batches = Shuffled(x, y, BATCH, seed, passes)
    history = model.fit(
        batches, epochs=epochs, shuffle=False, verbose=0, callbacks=[posterior]
    )
    (samples,) = posterior._store.read(model)
    return (samples[..., 0] - mean) ** 2 * precision, history.history, posterior


@pytest.mark.slow
# It takes two minutes on TensorFlow.
@pytest.mark.in_turn("jax")
def test_samples_have_the_variance_of_the_posterior_where_those_of_sghmc_do_not():
    squares, logs, posterior = relative_variances(
        mh.AMAGOLD, steps_per_test=STEPS, warm_up=BURN_IN * N // BATCH
    )
    per_epoch = squares.mean(1)
    batches = per_epoch.reshape(20, -1).mean(1)
    error = batches.std(ddof=1) / 20**0.5
    assert error < 0.12
    assert abs(per_epoch.mean() - 1.0) < 3.5 * error
    # The same step without the test is too hot, by 18%.
    assert relative_variances(mh.SGHMC)[0].mean() > 1.08
    # The logs say what was accepted; both numbers estimate the same share.
    accepted = np.array(logs["acceptance"][BURN_IN:])
    probability = np.array(logs["acceptance_probability"][BURN_IN:])
    assert set(accepted) == {0.0, 0.5, 1.0}  # two paths an epoch
    assert 0.2 < accepted.mean() < 0.6
    difference = accepted - probability
    assert abs(difference.mean()) < 4 * difference.std() / len(difference) ** 0.5
    # A rejected path leaves the sample, and its energy, as they were.
    kept = accepted[1:] == 0.0
    np.testing.assert_array_equal(kept, (np.diff(squares, axis=0) == 0.0).all(1))
    np.testing.assert_array_equal(kept, np.diff(posterior.energies) == 0.0)


def error_of_a_short_run():
    """The difference from the posterior's variance, over it, and its standard error.

    In one long epoch, since each epoch of Keras takes time.
    """
    squares = relative_variances(
        mh.AMAGOLD,
        epochs=1,
        passes=PASSES,
        steps_per_test=STEPS,
        warm_up=BURN_IN * N // BATCH,
    )[0].mean(1)
    parts = squares[: len(squares) // 20 * 20].reshape(20, -1).mean(1)
    return parts.mean() - 1.0, parts.std(ddof=1) / 20**0.5


@pytest.mark.filterwarnings("ignore:An epoch of `fit` has")
def test_a_short_run_has_the_variance_of_the_posterior():
    difference, error = error_of_a_short_run()
    assert error < 0.2
    assert abs(difference) < 4.0 * error
