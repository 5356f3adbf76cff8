"""Every model of the list trains, is sampled, averaged, saved and gone on with."""

import shutil

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.ensemble import activations
from tests.support.inputs_people_write import EXAMPLES
from tests.support.models import numpy
from tests.support.models_people_write import MODELS

BATCH_SIZE, EVERY = 16, 2  # three iterations an epoch
SAMPLERS = {
    # At this temperature most proposals are accepted, whatever their batch.
    "metropolis": lambda: mh.MHBT(
        5e-4,
        train_size=EXAMPLES,
        batch_size=BATCH_SIZE,
        proposal=mh.proposals.Langevin(),
        temperature=float(EXAMPLES),
        seed=3,
    ),
    "gradient": lambda: mh.SGHMC(0.01, train_size=EXAMPLES, seed=3),
}

# Of two that are alike one is enough on JAX and TensorFlow, where all is compiled.
ALIKE = {
    "sequential",
    "added",
    "functional",
    "two_inputs",
    "two_outputs",
    "two_outputs_and_a_dict",
    "binary",
    "bag_of_words",
    "tagger",
    "waves",
}


def models(*marks):
    """All models; those that are alike have no marks, and take turns."""
    rows = [pytest.param(n, marks=() if n in ALIKE else marks) for n in MODELS]
    return pytest.mark.parametrize("name", rows)


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


def kinds(name):
    """The sampler whose ensemble is looked at, and the other: in turn."""
    ordered = sorted(SAMPLERS)
    return ordered if list(MODELS).index(name) % 2 else ordered[::-1]


def check_run(kind, model, posterior):
    assert np.isfinite(posterior.energies).all()
    assert all(np.isfinite(value).all() for value in values(model))
    if kind == "metropolis":
        assert model.optimizer.diagnostics()["nonfinite"] == 0


def predicted(model, x):
    return model.predict(x, batch_size=BATCH_SIZE, verbose=0)


def check_members(x, model, posterior, ensemble):
    """Each is the model with the weights of a sample; the last is the model itself."""
    members = ensemble.predict_members(x, batch_size=BATCH_SIZE)
    flat = keras.tree.flatten(members)
    assert all(len(outputs) == len(posterior) for outputs in flat)
    assert max(np.abs(outputs[0] - outputs[-1]).max() for outputs in flat) > 1e-5

    def is_member(i):
        outputs = activations.applied(ensemble.activation, predicted(model, x))
        member = keras.tree.map_structure(lambda outputs: outputs[i], members)
        assert_close(keras.tree.map_structure(numpy, outputs), member)

    is_member(-1)
    for i, sample in enumerate(zip(*posterior._store.read(model), strict=True)):
        model.set_weights(sample)
        is_member(i)
    return keras.tree.map_structure(
        lambda y: np.tensordot(ensemble.averaging_weights, y, axes=1), members
    )


@models(pytest.mark.in_turn("jax", "tensorflow"))
def test_a_model_is_sampled_averaged_saved_attacked_and_gone_on_with(name, tmp_path):
    kind, _ = kinds(name)
    written = MODELS[name]
    x, y = written.data()
    model = compiled(name, kind)
    posterior = mh.PosteriorSamples(every=EVERY, directory=tmp_path / "samples")
    fit(model, name, posterior)
    model.save(tmp_path / "model.keras")
    shutil.copytree(tmp_path / "samples", tmp_path / "copy")
    fit(model, name, posterior)
    assert posterior.iterations.tolist() == [2, 4, 6]
    check_run(kind, model, posterior)

    # What was saved goes on as the model that was never saved.
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = mh.PosteriorSamples(every=EVERY, directory=tmp_path / "copy")
    fit(loaded, name, again)
    assert again.iterations.tolist() == [2, 4, 6]
    assert_same(values(loaded), values(model))
    assert_same(again.energies, posterior.energies)

    ensemble = posterior.ensemble(model)
    mean = check_members(x, model, posterior, ensemble)
    ensemble.save(tmp_path / "ensemble.keras")
    ensemble = keras.models.load_model(tmp_path / "ensemble.keras")
    predictions = predicted(ensemble, x)
    keras.tree.assert_same_structure(predictions, mean)
    assert_close(predictions, mean)
    if written.metrics is not None:
        results = ensemble.evaluate(x, y, batch_size=BATCH_SIZE, verbose=0)
        assert np.isfinite(results).all()
    if written.attack is not None:
        adversarial = mh.adversarial.fgsm(ensemble, x, 0.1, **written.attack)
        assert 0 < np.abs(adversarial - x).max() <= 0.1 + 1e-4
