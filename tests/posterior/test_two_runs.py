"""Samples of two runs, and two callbacks in one directory."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def chain(sampler, chains=None):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    if chains is not None:
        model = mh.ParallelChains(model, chains, seed=0)
    model.compile(sampler, mh.losses.GaussianNLL(1.0))
    return model


def sgld(**options):
    return mh.SGLD(**{"learning_rate": 1e-3, "train_size": 64, "seed": 0} | options)


def fit(model, epochs, *callbacks, batch_size=16):
    model.fit(X, Y, batch_size, epochs=epochs, verbose=0, callbacks=list(callbacks))


OTHERS = {
    "temperature=500.0, not 1.0": lambda: sgld(temperature=500.0),
    "seed=1, not 0": lambda: sgld(seed=1),
    "sampler='PSGLD', not 'SGLD'": lambda: mh.PSGLD(1e-3, train_size=64, seed=0),
}


@pytest.mark.parametrize("is_on_disk", [True, False])
@pytest.mark.parametrize("difference", OTHERS)
def test_samples_of_another_run_are_refused(difference, is_on_disk, tmp_path):
    directory = tmp_path / "samples" if is_on_disk else None
    posterior = mh.PosteriorSamples(every=1, directory=directory)
    model = chain(sgld())
    fit(model, 2, posterior)
    other = chain(OTHERS[difference]())
    fit(other, 3)  # a burn-in of its own, longer than the first run
    if is_on_disk:
        posterior = mh.PosteriorSamples(every=1, directory=directory)
    with pytest.raises(
        ValueError, match=f"of another run.* with 8 samples.*{difference}"
    ):
        fit(other, 1, posterior)
    assert list(posterior.iterations) == list(range(1, 9))
    if is_on_disk:
        assert len(mh.PosteriorSamples.load(directory)) == 8
    fit(model, 1, posterior)  # the first run goes on
    assert list(posterior.iterations) == list(range(1, 13))


def test_another_rate_is_no_other_run():
    model, posterior = chain(sgld()), mh.PosteriorSamples()
    fit(model, 2, posterior)
    model.optimizer.learning_rate = 1e-4
    fit(model, 2, posterior)
    assert len(posterior) == 4


def test_a_directory_belongs_to_one_callback(tmp_path):
    first, second = (
        mh.PosteriorSamples(every=every, directory=tmp_path) for every in (2, 3)
    )
    with pytest.raises(ValueError, match="`directory` must be that of one"):
        fit(chain(sgld()), 2, first, second)
