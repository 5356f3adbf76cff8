"""Every model of the list trains, is sampled, averaged, saved and gone on with."""

import shutil

import keras
import numpy as np
import pytest
from models import numpy
from models import optimizer_state
from models_people_write import EXAMPLES
from models_people_write import MODELS

import keras_mhmcmc as mh

BATCH_SIZE, EVERY = 16, 2  # three iterations an epoch
SAMPLERS = {
    "metropolis": lambda: mh.MHBT(
        0.005,
        train_size=EXAMPLES,
        batch_size=BATCH_SIZE,
        proposal=mh.proposals.Langevin(),
        seed=3,
    ),
    "gradient": lambda: mh.SGHMC(0.01, train_size=EXAMPLES, seed=3),
}

every_model = pytest.mark.parametrize("name", MODELS)


def made(part):
    """Losses and metrics have state, so that each model needs its own."""
    return keras.tree.map_structure(lambda p: p() if callable(p) else p, part)


def compiled(name, kind):
    keras.utils.set_random_seed(1)
    written = MODELS[name]
    model = written.build()
    model.compile(
        optimizer=SAMPLERS[kind](),
        loss=made(written.loss),
        metrics=made(written.metrics),
        **written.options,
    )
    return model


def fit(model, name, posterior, epochs=1):
    x, y = MODELS[name].data()
    return model.fit(
        x,
        y,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[posterior],
    )


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_close(one, other):
    for a, b in zip(*map(keras.tree.flatten, (one, other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def values(model):
    return [numpy(variable) for variable in model.weights]


class Run:
    """A model after one epoch, saved, and one more."""

    def __init__(self, name, kind, directory=None):
        self.model = compiled(name, kind)
        self.posterior = mh.PosteriorSamples(every=EVERY, directory=directory)
        fit(self.model, name, self.posterior, epochs=2)


def is_first(name, kind):
    """Of the two kinds of samplers, whether this one's samples go to a directory."""
    return sorted(SAMPLERS)[list(MODELS).index(name) % 2] == kind


def check_run(name, kind, model, posterior):
    assert posterior.iterations.tolist() == [2, 4, 6]
    assert np.isfinite(posterior.energies).all()
    assert all(np.isfinite(value).all() for value in values(model))
    if kind == "metropolis":
        report = model.optimizer.diagnostics()
        assert report["acceptance"] > 0 and report["nonfinite"] == 0


def check_members(name, model, posterior, ensemble):
    """Each is the model with the weights of a sample; the last is the model itself."""
    x, _ = MODELS[name].data()
    members = ensemble.predict_members(x, batch_size=BATCH_SIZE)
    flat = keras.tree.flatten(members)
    assert all(len(outputs) == 3 for outputs in flat)
    moved = [np.abs(outputs[0] - outputs[2]).max() for outputs in flat]
    assert max(moved) > 1e-5

    def at(i):
        return keras.tree.map_structure(lambda outputs: outputs[i], members)

    activation = ensemble.activation

    def plain():
        outputs = model.predict(x, batch_size=BATCH_SIZE, verbose=0)
        return keras.tree.map_structure(lambda y: numpy(activation(y)), outputs)

    assert_close(plain(), at(2))
    for i, sample in enumerate(zip(*posterior._store.read(model), strict=True)):
        model.set_weights(sample)
        assert_close(plain(), at(i))

    mean = keras.tree.map_structure(
        lambda y: np.tensordot(ensemble.averaging_weights, y, axes=1), members
    )
    predictions = ensemble.predict(x, batch_size=BATCH_SIZE, verbose=0)
    keras.tree.assert_same_structure(predictions, mean)
    assert_close(predictions, mean)
    return predictions


@every_model
def test_everything(name, tmp_path):
    kind = sorted(SAMPLERS)[list(MODELS).index(name) % 2]
    written = MODELS[name]
    x, y = written.data()
    model = compiled(name, kind)
    posterior = mh.PosteriorSamples(every=EVERY, directory=tmp_path / "samples")
    fit(model, name, posterior)
    model.save(tmp_path / "model.keras")
    shutil.copytree(tmp_path / "samples", tmp_path / "copy")
    fit(model, name, posterior)
    check_run(name, kind, model, posterior)

    # What was saved goes on as the model that was never saved.
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = mh.PosteriorSamples(every=EVERY, directory=tmp_path / "copy")
    fit(loaded, name, again)
    assert again.iterations.tolist() == [2, 4, 6]
    if written.goes_on:
        assert_same(values(loaded), values(model))
        assert_same(again.energies, posterior.energies)

    ensemble = posterior.ensemble(model)
    predictions = check_members(name, model, posterior, ensemble)
    if written.loss is not None:
        results = ensemble.evaluate(x, y, batch_size=BATCH_SIZE, verbose=0)
        assert np.isfinite(results).all()
    ensemble.save(tmp_path / "ensemble.keras")
    ensemble = keras.models.load_model(tmp_path / "ensemble.keras")
    again = ensemble.predict(x, batch_size=BATCH_SIZE, verbose=0)
    assert_close(again, predictions)
    if written.attack is not None:
        adversarial = mh.adversarial.fgsm(ensemble, x, 0.1, **written.attack)
        assert adversarial.shape == x.shape
        assert 0 < np.abs(adversarial - x).max() <= 0.1 + 1e-4


@every_model
def test_the_other_sampler(name):
    kind = sorted(SAMPLERS)[1 - list(MODELS).index(name) % 2]
    model = compiled(name, kind)
    posterior = mh.PosteriorSamples(every=EVERY)
    fit(model, name, posterior, epochs=2)
    check_run(name, kind, model, posterior)
    first, *_, last = zip(*posterior._store.read(model), strict=True)
    assert max(np.abs(a - b).max() for a, b in zip(first, last, strict=True)) > 1e-5
    assert_same(last, values(model))
