"""Models that are trained in part: frozen layers, last-layer Bayes, LoRA."""

import os

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.samplers import AT_ONCE

WIDE = 400


def sgld(**options):
    return mh.SGLD(0.05, train_size=96, seed=0, **options)


def rsgld(**options):
    return mh.RSGLD(0.05, train_size=96, batch_size=16, seed=0, **AT_ONCE | options)


def pretrained(seed=0):
    """A wide body, frozen, with a head to sample."""
    keras.utils.set_random_seed(seed)
    body = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(WIDE, "tanh"),
            keras.layers.BatchNormalization(),
        ],
        name="body",
    )
    body.trainable = False
    return keras.Sequential([body, keras.layers.Dense(CLASSES, "softmax")])


def with_lora(seed=0):
    """A network whose first kernel moves by products of rank 2 alone."""
    keras.utils.set_random_seed(seed)
    first = keras.layers.Dense(WIDE, "tanh")
    last = keras.layers.Dense(CLASSES, "softmax", trainable=False)
    model = keras.Sequential([keras.Input((FEATURES,)), first, last])
    first.enable_lora(rank=2)
    return model


MODELS = [
    pytest.param(pretrained, id="last layer"),
    pytest.param(with_lora, id="lora"),
]


@pytest.mark.parametrize("sampler", [sgld, rsgld], ids=["sgld", "rsgld"])
@pytest.mark.parametrize("make", MODELS)
def test_only_what_is_trainable_moves(make, sampler):
    model = compiled(sampler(prior=mh.priors.Gaussian(1.0)), make())
    fit(model, epochs=1)
    trainable = {v.path for v in model.trainable_variables}
    assert 0 < len(trainable) < len(model.weights)
    before = {v.path: numpy(v) for v in model.weights}
    fit(model, epochs=3)
    for variable in model.weights:
        changed = np.any(numpy(variable) != before[variable.path])
        assert changed == (variable.path in trainable), variable.path
    # No slot is kept for a frozen weight.
    size = sum(np.size(numpy(v)) for v in model.optimizer.variables)
    assert size < 3 * sum(np.size(before[path]) for path in trainable) + 100


@pytest.mark.parametrize("make", MODELS)
def test_the_ensemble_keeps_frozen_weights_once(make, tmp_path):
    model = compiled(rsgld(), make())
    memory = mh.PosteriorSamples(burn_in=6)
    files = mh.PosteriorSamples(burn_in=6, directory=tmp_path / "samples")
    fit(model, epochs=9, callbacks=[memory, files])
    x, _ = data()
    ensemble = memory.ensemble(model)
    members = ensemble.predict_members(x)
    assert len(members) == 8
    assert np.ptp(members, axis=0).max() > 1e-3
    np.testing.assert_allclose(ensemble.predict(x, verbose=0), members.mean(0), 1e-5)

    sizes = {v.path: np.size(numpy(v)) for v in model.weights}
    moved = sum(sizes[v.path] for v in model.trainable_variables)
    kept = sum(np.size(numpy(v)) for v in ensemble.weights)
    assert kept == sum(sizes.values()) - moved + 8 * moved + 8  # and 8 log weights

    loaded = mh.PosteriorSamples.load(tmp_path / "samples").ensemble(model)
    np.testing.assert_array_equal(loaded.predict_members(x), members)
    np.testing.assert_array_equal(model.predict(x, verbose=0), members[-1])
    sample = max(p.stat().st_size for p in (tmp_path / "samples").glob("sample-*"))
    assert (
        sample
        < 4 * moved + 8000
        < os.path.getsize(tmp_path / "samples" / "base.h5") + 4 * moved
    )

    ensemble.save(tmp_path / "ensemble.keras")
    again = keras.models.load_model(tmp_path / "ensemble.keras")
    np.testing.assert_array_equal(again.predict_members(x), members)
    assert again.shared == ensemble.shared
    assert memory.ensemble(model, chunk=4).chunk == 4


def test_layers_that_thaw_in_a_second_fit_are_kept(tmp_path):
    model = compiled(sgld(), pretrained())
    stores = [mh.PosteriorSamples(), mh.PosteriorSamples(directory=tmp_path)]
    fit(model, epochs=2, callbacks=stores)
    x, _ = data()
    states = [model.predict(x, verbose=0)]
    model.layers[0].trainable = True
    iterations = model.optimizer.iterations
    model = compiled(sgld(), model)
    model.optimizer.iterations.assign(numpy(iterations))
    fit(model, epochs=2, callbacks=stores)
    states.append(model.predict(x, verbose=0))
    for store in (stores[0], mh.PosteriorSamples.load(tmp_path)):
        members = store.ensemble(model).predict_members(x)
        assert len(members) == 4
        np.testing.assert_array_equal(members[[1, 3]], states)


def test_chains_of_a_frozen_model():
    model = mh.ParallelChains(pretrained(), 3)
    compiled(sgld(), model)
    posterior = mh.PosteriorSamples()
    fit(model, epochs=2, callbacks=[posterior])
    x, _ = data()
    members = posterior.ensemble(model).predict_members(x)
    assert members.shape == (6, len(x), CLASSES)
    assert np.ptp(members, axis=0).max() > 1e-3
