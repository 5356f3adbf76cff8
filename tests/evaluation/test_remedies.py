"""What an error names as the remedy is run, as it is written there."""

import re

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
TARGETS, LABELS = X[:, :1], (X.sum(1) > 0.0).astype("int32")


def model_of(kind):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,))
    mean = keras.layers.Dense(1, name="mean")(inputs)
    label = keras.layers.Dense(2, activation="softmax", name="label")(inputs)
    outputs = {"mean": mean, "label": label} if kind is dict else [mean, label]
    return keras.Model(inputs, outputs)


CALLS = {
    "distribution": lambda m: mh.predict_distribution(m, X),
    "known noise": lambda m: mh.predict_distribution(m, X, noise_std=1.0),
    "evaluate": lambda m: mh.evaluate(m, X, LABELS),
    "intervals": lambda m: mh.conformal_intervals(m, X, TARGETS),
    "attack": lambda m: mh.adversarial.fgsm(m, X, 0.1, y=LABELS, clip=None),
}


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("call", CALLS)
def test_one_of_several_outputs(call, kind):
    model = model_of(kind)
    with pytest.raises(ValueError, match="must output one tensor") as error:
        CALLS[call](model)
    remedies = re.findall("`([^`]*)`", str(error.value))
    (taken,) = [text for text in remedies if text.startswith("keras.Model(")]
    one = eval(taken, {"keras": keras, "model": model})
    assert mh.predict_distribution(one, X, noise_std=1.0).mean().shape[0] == 8
    (predicted,) = [text for text in remedies if text.startswith("ensemble.predict")]
    ensemble = mh.deep_ensemble([model, model_of(kind)])
    outputs = eval(predicted, {"ensemble": ensemble, "x": X})
    assert outputs.shape[0] == 8
    if outputs.shape[1] == 2:
        assert np.isfinite(mh.metrics.nll(outputs, LABELS))
    else:
        assert np.isfinite(mh.metrics.NormalMixture(outputs[None], 1.0).nll(TARGETS))


def test_a_likelihood_for_a_model_without_one():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="`likelihood` must be given") as error:
        mh.predict_distribution(model, X)
    assert "`noise_std`" in str(error.value)
    assert mh.predict_distribution(model, X, noise_std=1.0).std().shape == (8, 1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", mh.losses.GaussianNLL())
    assert mh.predict_distribution(model, X).std().shape == (8, 1)
