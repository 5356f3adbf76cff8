"""`Ensemble`: a Keras model over stacked samples."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential


def stacked(model, members, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (0.5 * rng.normal(size=(members, *v.shape))).astype("float32")
        for v in model.weights
    ]


def by_hand(model, values, x):
    """Each member's prediction, one after the other."""
    outputs = []
    for i in range(len(values[0])):
        model.set_weights([value[i] for value in values])
        outputs.append(model.predict(x, verbose=0))
    return np.array(outputs)


@pytest.mark.parametrize("chunk", [None, 1, 2, 5])
def test_predict_is_the_weighted_mean(chunk):
    model = sequential()
    x, _ = data()
    values, weights = stacked(model, 5), np.array([1.0, 0.0, 2.0, 0.5, 4.0])
    ensemble = mh.Ensemble(sequential(), 5, chunk=chunk)
    ensemble.set_members(values, weights)
    members = by_hand(model, values, x)
    np.testing.assert_allclose(ensemble.predict_members(x), members, atol=1e-6)
    mean = np.tensordot(weights / weights.sum(), members, axes=1)
    np.testing.assert_allclose(ensemble.predict(x, verbose=0), mean, atol=1e-6)


def test_convolutions_normalisation_and_dropout():
    def make():
        return keras.Sequential(
            [
                keras.Input((6, 6, 1)),
                keras.layers.Conv2D(3, 3, activation="relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Flatten(),
                keras.layers.Dense(4, "softmax"),
            ]
        )

    model = make()
    values = [np.abs(value) for value in stacked(model, 3)]
    x = np.random.default_rng(1).normal(size=(7, 6, 6, 1)).astype("float32")
    members = by_hand(model, values, x)
    assert np.abs(members[0] - members[1]).max() > 1e-2
    for chunk in (1, 3):
        ensemble = mh.Ensemble(make(), 3, chunk=chunk)
        ensemble.set_members(values, np.ones(3))
        np.testing.assert_allclose(ensemble.predict_members(x), members, atol=1e-5)


@pytest.mark.eager_and_compiled
def test_it_is_compiled_once():
    if keras.backend.backend() == "torch":
        pytest.skip("PyTorch runs it as it stands")
    calls = []

    class Counted(keras.layers.Layer):
        def call(self, inputs):
            calls.append(1)
            return inputs

    model = keras.Sequential(
        [keras.Input((FEATURES,)), Counted(), *sequential().layers]
    )
    ensemble = mh.Ensemble(model, 6)
    ensemble.set_members(stacked(model, 6), np.ones(6))
    x, _ = data()
    calls.clear()
    ensemble.predict(x, batch_size=32, verbose=0)
    traces = len(calls)
    assert 0 < traces < 6  # not one for each member, nor for each batch
    ensemble.set_members(stacked(model, 6, seed=1), np.ones(6))
    ensemble.predict(np.tile(x, (3, 1)), batch_size=32, verbose=0)
    assert len(calls) == traces


def logits_model():
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(3)])
    model.compile(
        optimizer=mh.SGLD(0.1, train_size=96, seed=0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def test_logits_become_mean_probabilities_and_evaluate_works():
    model = logits_model()
    posterior = mh.PosteriorSamples(every=3)
    fit(model, epochs=3, callbacks=[posterior])
    ensemble = posterior.ensemble(model)
    x, y = data()
    probabilities = ensemble.predict(x, verbose=0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    result = ensemble.evaluate(x, y, verbose=0, return_dict=True)
    nll = -np.log(probabilities[np.arange(len(y)), y]).mean()
    assert result["loss"] == pytest.approx(nll, rel=1e-4)
    accuracy = (probabilities.argmax(axis=1) == y).mean()
    assert result["accuracy"] == pytest.approx(accuracy)
    raw = posterior.ensemble(model, activation="linear").predict(x, verbose=0)
    assert np.abs(raw.sum(axis=1) - 1.0).max() > 0.1


def test_the_ensemble_keeps_its_samples_when_the_model_trains_on():
    model = logits_model()
    posterior = mh.PosteriorSamples()
    fit(model, callbacks=[posterior])
    ensemble = posterior.ensemble(model)
    x, _ = data()
    before = ensemble.predict(x, verbose=0)
    fit(model, epochs=3)
    np.testing.assert_array_equal(ensemble.predict(x, verbose=0), before)


def test_save_and_load_as_keras(tmp_path):
    model = logits_model()
    posterior = mh.PosteriorSamples()
    fit(model, epochs=3, callbacks=[posterior])
    ensemble = posterior.ensemble(model)
    ensemble.save(tmp_path / "ensemble.keras")
    loaded = keras.models.load_model(tmp_path / "ensemble.keras")
    x, y = data()
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), ensemble.predict(x, verbose=0)
    )
    np.testing.assert_allclose(
        loaded.evaluate(x, y, verbose=0), ensemble.evaluate(x, y, verbose=0)
    )
    assert loaded.num_members == 3


def test_its_weights_are_the_samples_and_none_is_trainable():
    ensemble = mh.Ensemble(sequential(), 4)
    assert ensemble.trainable_weights == []
    shapes = [tuple(v.shape) for v in ensemble.weights[:-1]]
    assert shapes == [(4, *v.shape) for v in sequential().weights]


def test_bad_arguments_are_named():
    member = sequential()
    for options, name in (
        ({"num_members": 0}, "num_members"),
        ({"num_members": 2, "chunk": 0}, "chunk"),
    ):
        with pytest.raises(ValueError, match=f"`{name}`"):
            mh.Ensemble(member, **options)
    with pytest.raises(ValueError, match=r"`posterior\.ensemble\(model\)`"):
        mh.Ensemble(member, mh.PosteriorSamples())
    with pytest.raises(ValueError, match="`member`"):
        mh.Ensemble("model", 2)
    with pytest.raises(ValueError, match="built"):
        mh.Ensemble(keras.Sequential([keras.layers.Dense(2)]), 2)
    ensemble = mh.Ensemble(member, 2)
    for weights in ([0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="`weights`"):
            ensemble.set_members(stacked(member, 2), weights)


def test_samples_of_another_architecture_are_refused():
    model = compiled(mh.SGLD(0.1, train_size=96))
    posterior = mh.PosteriorSamples()
    fit(model, callbacks=[posterior])
    with pytest.raises(ValueError, match="`model`"):
        posterior.ensemble(logits_model())
    assert numpy(posterior.ensemble(model).weights[0]).shape[0] == 2
