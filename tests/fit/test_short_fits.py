"""Two epochs of a small set: a sampler is ready to sample, and says what it did not."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

X = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
Y = (X.sum(1) > 0.0).astype("int32")
ARGUMENTS = {"train_size": 64, "seed": 0}
SAMPLERS = {
    "RSGLD": lambda: mh.RSGLD(0.1, batch_size=8, **ARGUMENTS),
    "CSGLD": lambda: mh.CSGLD(0.1, **ARGUMENTS),
    "CSGHMC": lambda: mh.CSGHMC(0.05, **ARGUMENTS),
    "AMAGOLD": lambda: mh.AMAGOLD(0.01, **ARGUMENTS),
}


def compiled(sampler):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sampler, loss)
    return model


def fit(model, epochs, **options):
    posterior = mh.PosteriorSamples(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, Y, 8, epochs, 0, callbacks=[posterior], shuffle=False)
    return posterior


@pytest.mark.parametrize("name", SAMPLERS)
def test_two_epochs_give_samples_and_go_on(name, tmp_path):
    sampler = SAMPLERS[name]()
    model = compiled(sampler)
    posterior = fit(model, 2)
    assert sampler.warm_up_argument[1] == 4  # a quarter of 16 steps
    assert 0 < len(posterior) <= 2
    assert posterior.ensemble(model).predict(X, verbose=0).shape == (64, 2)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.warm_up_argument[1] == 4
    assert len(fit(loaded, 2)) == 2
    again = fit(model, 2)
    for one, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(again) == 2


@pytest.mark.parametrize("name, longest", [("RSGLD", 500), ("CSGLD", 1000)])
def test_how_long_a_first_phase_is(name, longest):
    for burn_in, steps, wanted in [
        (0, 10_000, longest),
        (0, 400, 100),
        (600, 800, 300),
        (0, 4, 4),
        (0, float("inf"), longest),
    ]:
        sampler = SAMPLERS[name]()
        sampler.plan_warm_up(burn_in, steps)
        assert sampler.warm_up_argument[1] == wanted


def test_what_was_given_stays():
    sampler = mh.CSGLD(0.1, pilot_steps=40, **ARGUMENTS)
    assert sampler.plan_warm_up(0, 16) == 40


def test_a_fit_that_keeps_nothing_says_so_once():
    model = compiled(mh.SGLD(0.1, **ARGUMENTS))
    with pytest.warns(UserWarning, match="kept no sample of the posterior"):
        model.fit(X, Y, 8, 1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, Y, 8, 1, 0)
    model = compiled(mh.SGLD(0.1, **ARGUMENTS))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, Y, 8, 1, 0, callbacks=[mh.PosteriorSamples()])
    assert not any("kept no sample" in str(w.message) for w in caught)
