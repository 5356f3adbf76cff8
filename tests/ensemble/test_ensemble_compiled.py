"""An ensemble is compiled as its model is: `evaluate` says the same of both.

All samples here are one and the same, so the ensemble is the model.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import metrics
from keras import ops

import keras_mhmcmc as mh

EXAMPLES, FEATURES = 24, 4


def arrays():
    x = np.random.default_rng(0).normal(size=(EXAMPLES, FEATURES)).astype("float32")
    return x, (x[:, :1] > 0).astype("float32")


def share_of_right(y_true, y_pred):
    """A metric as people write it: a function that Keras does not know."""
    return ops.mean(ops.cast(ops.equal(y_true, ops.round(y_pred)), "float32"))


class LargestPrediction(metrics.Metric):
    """A class that Keras does not know, without `get_config`."""

    def __init__(self, name="largest", **kwargs):
        super().__init__(name=name, **kwargs)
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign(ops.maximum(self.largest, ops.max(y_pred)))

    def result(self):
        return ops.convert_to_tensor(self.largest)


class NeedsAnArgument(LargestPrediction):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale


def of_one_output(activation="sigmoid"):
    return keras.Sequential([keras.Input((FEATURES,)), layers.Dense(1, activation)])


def of_two_outputs():
    inputs = keras.Input((FEATURES,))
    kind = layers.Dense(1, activation="sigmoid", name="kind")(inputs)
    return keras.Model(inputs, [kind, layers.Dense(1, name="size")(inputs)])


def ensemble_of(model, y):
    """After a fit that changes nothing."""
    posterior = mh.PosteriorSamples()
    model.optimizer.learning_rate = 0.0
    model.fit(arrays()[0], y, epochs=2, verbose=0, callbacks=[posterior])
    return posterior.ensemble(model)


def assert_same_results(model, y, ensemble=None):
    ensemble = ensemble or ensemble_of(model, y)
    of_model, of_ensemble = (
        m.evaluate(arrays()[0], y, verbose=0, return_dict=True)
        for m in (model, ensemble)
    )
    assert of_ensemble == pytest.approx(of_model, rel=1e-4)
    return of_model


def sgld():
    return mh.SGLD(0.1, train_size=EXAMPLES, seed=0)


@pytest.mark.parametrize("make", [lambda: share_of_right, LargestPrediction])
def test_metrics_that_keras_does_not_know(make):
    model = of_one_output()
    model.compile(sgld(), "binary_crossentropy", metrics=[make()])
    assert len(assert_same_results(model, arrays()[1])) == 2


def test_a_metric_that_cannot_be_made_again_is_left_out_with_a_warning():
    model = of_one_output()
    model.compile(sgld(), "binary_crossentropy", metrics=[NeedsAnArgument(2.0), "mae"])
    with pytest.warns(UserWarning, match="'largest' .* `get_config`"):
        ensemble = ensemble_of(model, arrays()[1])
    results = ensemble.evaluate(*arrays(), verbose=0, return_dict=True)
    assert sorted(results) == ["loss", "mae"]


@pytest.mark.parametrize("by_name", [True, False])
def test_weights_of_losses_and_names_of_outputs(by_name, tmp_path):
    x, y = arrays()
    parts = [
        ["binary_crossentropy", "mse"],
        [1.0, 0.1],
        [["accuracy"], ["mae"]],
        [y, x[:, :1]],
    ]
    if by_name:
        parts = [dict(zip(["kind", "size"], part, strict=True)) for part in parts]
    model = of_two_outputs()
    model.compile(sgld(), loss=parts[0], loss_weights=parts[1], metrics=parts[2])
    results = assert_same_results(model, parts[3])
    assert {"kind_loss", "size_loss", "kind_accuracy", "size_mae"} < set(results)
    ensemble = ensemble_of(model, parts[3])
    ensemble.save(tmp_path / "ensemble.keras")
    ensemble = keras.models.load_model(tmp_path / "ensemble.keras")
    assert_same_results(model, parts[3], ensemble)


def test_integer_outputs_have_a_mean():
    inputs = keras.Input((FEATURES,))
    probability = layers.Dense(3, activation="softmax")(inputs)
    model = keras.Model(
        inputs, {"probability": probability, "label": ops.argmax(probability, axis=-1)}
    )
    model.compile(sgld(), {"probability": "categorical_crossentropy"})
    x = arrays()[0]
    targets = {"probability": keras.utils.to_categorical(np.arange(EXAMPLES) % 3)}
    labels = ensemble_of(model, targets).predict(x, verbose=0)["label"]
    np.testing.assert_allclose(labels, model.predict(x, verbose=0)["label"])
    assert labels.max() > 0
