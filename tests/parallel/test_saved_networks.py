"""What users save of a run with several chains, and what they load again."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh
from tests.support.models import data
from tests.support.models import fit

FORMS = ["ensemble", "template", "dropout", "scaled"]


def network():
    dense = layers.Dense(3)
    return keras.Sequential([keras.Input((5,)), layers.Dropout(0.5), dense])


def sampled(model, loss=None):
    """The chains after a fit, and their samples."""
    chains = mh.ParallelChains(model, 2, seed=0)
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    chains.compile(mh.SGLD(0.05, train_size=96, seed=0), loss)
    posterior = mh.PosteriorSamples()
    fit(chains, callbacks=[posterior])
    return chains, posterior


def saved_form(form):
    chains, posterior = sampled(network())
    x, y = data()
    if form == "template":
        return chains.template
    if form == "dropout":
        return mh.MCDropout(chains.template, 3, "softmax")
    ensemble = posterior.ensemble(chains)
    return mh.temperature_scaling(ensemble, x, y) if form == "scaled" else ensemble


@pytest.mark.parametrize("form", FORMS)
def test_files(form, tmp_path):
    model, (x, _) = saved_form(form), data()
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, atol=1e-6)
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    if form != "dropout":  # a copy draws masks from the seed again
        np.testing.assert_allclose(copy.predict(x, verbose=0), expected, atol=1e-6)


def test_the_network_keeps_its_optimizer():
    model = network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(mh.SGHMC(0.01, train_size=96, seed=0), loss)
    fit(model)
    optimizer, steps = model.optimizer, int(model.optimizer.iterations)
    chains, _ = sampled(model)
    assert chains.template is model and model.optimizer is optimizer
    fit(model)
    assert int(optimizer.iterations) == 2 * steps > 0


def test_an_ensemble_with_a_loss_that_keras_does_not_know(tmp_path):
    """Files hold the loss of the ensemble alone, which `compile=False` leaves out."""

    def own_loss(y, outputs):
        return keras.losses.sparse_categorical_crossentropy(y, outputs, True)

    chains, posterior = sampled(network(), own_loss)
    ensemble = posterior.ensemble(chains, activation="softmax")
    path, (x, _) = tmp_path / "ensemble.keras", data()
    ensemble.save(path)
    loaded = keras.saving.load_model(path, compile=False)
    expected = ensemble.predict(x, verbose=0)
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, atol=1e-6)


@pytest.mark.parametrize("form", ["ensemble", "chains"])
def test_quantization_is_refused_before_anything_changes(form):
    chains, posterior = sampled(network())
    model = chains if form == "chains" else posterior.ensemble(chains)
    x, _ = data()
    expected = model.predict(x, verbose=0)
    with pytest.raises(NotImplementedError, match="Quantize a copy of the network"):
        model.quantize("int8")
    model.predict_function = None  # traced anew
    np.testing.assert_array_equal(model.predict(x, verbose=0), expected)
