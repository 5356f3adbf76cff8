"""What strangers give to scores and attacks: half precision, token ids, logits."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.ensemble.compile import activation_of
from keras_mhmcmc.evaluation.calibrated import TemperatureScaled

RNG = np.random.default_rng(0)


@pytest.fixture(params=["mixed_bfloat16", "mixed_float16"])
def policy(request):
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(request.param)
    yield request.param
    keras.mixed_precision.set_dtype_policy(before)


def with_member(model):
    ensemble = mh.Ensemble(model, 1)
    weights = [ops.convert_to_numpy(v)[None] for v in model.weights]
    ensemble.set_members(weights, [1])
    return ensemble


def test_a_wrapper_does_not_round_the_inputs(policy):
    model = keras.Sequential(
        [
            keras.Input((1,)),
            layers.Normalization(dtype="float32", mean=2000.0, variance=100.0),
            layers.Dropout(1e-7),
            layers.Dense(2, activation="softmax", dtype="float32"),
        ]
    )
    model.layers[-1].set_weights([np.array([[-30.0, 30.0]]), np.zeros(2)])
    x = np.array([[1997.0], [1999.0], [2001.0], [2003.0]], "float32")
    expected = model.predict(x, verbose=0)
    assert np.ptp(expected[:, 0]) > 0.9
    chains = mh.ParallelChains(model, 1, start=[model])
    ensemble = with_member(model)
    for found in (
        ensemble.predict(x, verbose=0),
        ensemble.predict_members(x)[0],
        mh.MCDropout(model, samples=1).predict(x, verbose=0),
        TemperatureScaled(model, 1.0).predict(x, verbose=0),
        mh.Classifier(ensemble).probabilities(x),
        chains.predict(x, verbose=0)[0],
    ):
        np.testing.assert_allclose(found, expected, atol=2e-2)


def of_tokens():
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="int32"),
            layers.Embedding(4000, 3),
            layers.Flatten(),
            layers.Activation("softmax", dtype="float32"),
        ]
    )
    model.layers[0].set_weights([10.0 * RNG.normal(size=(4000, 3))])
    return model


class OfTokens(keras.Model):
    """A subclass declares no inputs."""

    def __init__(self):
        super().__init__()
        self.inner = of_tokens()

    def call(self, x):
        return self.inner(x)


@pytest.mark.parametrize("build", [of_tokens, OfTokens])
def test_token_ids_stay_integers(policy, build):
    model, x = build(), np.arange(4000)[:, None]
    y = model.predict(x, verbose=0).argmax(1)
    ensemble = with_member(model)
    scores = mh.evaluate({"model": model, "ensemble": ensemble}, x, y)
    assert list(scores.column("accuracy")) == [1.0, 1.0]
    for given in (model, ensemble):
        found = mh.Classifier(given).probabilities(x)
        np.testing.assert_array_equal(found.argmax(1), y)


def of_logits(columns=3, loss=None):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dropout(0.5), layers.Dense(columns)]
    )
    model.set_weights([3.0 * RNG.normal(size=(4, columns)), np.zeros(columns)])
    if loss is not None:
        model.compile("sgd", loss)
    return model


SOFTMAX = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def test_passes_of_a_model_of_logits_are_probabilities():
    passes = mh.MCDropout(of_logits(loss=SOFTMAX), samples=4)
    members = passes.predict_members(RNG.normal(size=(5, 4)).astype("float32"))
    np.testing.assert_allclose(members.sum(-1), 1.0, rtol=1e-5)
    plain = mh.MCDropout(of_logits(), samples=4)
    assert plain.activation is keras.activations.linear


def test_a_model_compiled_with_logits_has_logits():
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
    model.set_weights([np.array([[1.0]]), np.zeros(1)])
    model.compile("sgd", binary)
    x, y = np.array([[0.2], [0.3]]), [1, 1]
    with pytest.raises(ValueError, match="`from_logits` must be True.*compiled"):
        mh.evaluate({"model": model}, x, y)
    table = mh.evaluate({"model": model}, x, y, from_logits=True)  # no warning
    assert table.column("accuracy") == [1.0]


@pytest.mark.parametrize("batch_size", [1, 2, 50])
def test_conformal_sets_of_equal_rows_hold_the_label(batch_size):
    deep = [layers.Dense(64, "relu") for _ in range(4)]
    model = keras.Sequential(
        [keras.Input((4,)), *deep, layers.Dense(5, activation="softmax")]
    )
    x = np.repeat(RNG.normal(size=(1, 4)), 100, 0).astype("float32")
    label = int(model.predict(x[:1], verbose=0).argmax())
    sets = mh.conformal_sets(model, x, np.full(100, label), level=0.9)
    assert sets.predict(x[:batch_size])[:, label].all()
    line = keras.Sequential([keras.Input((4,)), *deep, layers.Dense(1)])
    line.compile("sgd", mh.losses.GaussianNLL(1.0))
    y = np.full((100, 1), float(line.predict(x[:1], verbose=0)[0, 0]) + 1.0)
    intervals = mh.conformal_intervals(line, x, y, level=0.9)
    low, high = intervals.predict(x[:batch_size])
    assert ((low <= y[0, 0]) & (y[0, 0] <= high)).all()


def test_classes_along_another_axis_need_an_activation():
    model = keras.Sequential([keras.Input((2, 4)), layers.Dense(4)])
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, axis=1)
    model.compile("sgd", loss)
    with pytest.raises(ValueError, match="`activation` must be given.*axis=1"):
        activation_of(model)
    last = keras.losses.CategoricalCrossentropy(from_logits=True, axis=-1)
    model.compile("sgd", last)
    assert activation_of(model) == "softmax"


def test_a_shared_normalisation_cannot_be_recalibrated():
    shared = layers.BatchNormalization(name="shared")
    first, second = keras.Input((3,)), keras.Input((3,))
    merged = layers.Concatenate()([shared(first), shared(second)])
    model = keras.Model([first, second], layers.Dense(1)(merged))
    ensemble = with_member(model)
    x = [RNG.normal(size=(16, 3)), 10.0 + RNG.normal(size=(16, 3))]
    with pytest.raises(ValueError, match="each batch normalisation.*shared"):
        ensemble.recalibrate(x)


def saturated():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1, "sigmoid")])
    model.set_weights([np.ones((2, 1)), np.array([60.0])])
    return model


def test_a_saturated_sigmoid_is_told():
    x, y = RNG.uniform(size=(8, 2)).astype("float32"), np.ones(8, int)
    with pytest.warns(UserWarning, match="probability of exactly 1.*only guesses"):
        mh.adversarial.square(saturated(), x, y=y, epsilon=0.1, queries=4)
    with pytest.warns(UserWarning, match="leaves them unchanged. Attack logits"):
        moved = mh.adversarial.fgsm(saturated(), x, 0.1, y=y)
    np.testing.assert_array_equal(moved, x)


def test_names_of_classes_and_pipelines_have_a_remedy():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(2, "softmax")])
    x = np.ones((2, 2))
    with pytest.raises(ValueError, match="`y`.*np.unique"):
        mh.evaluate({"model": model}, x, ["cat", "dog"])
    with pytest.raises(ValueError, match="`x`.*dataset.batch"):
        mh.evaluate({"model": model}, ((row, 0) for row in [0.5]))
    with pytest.raises(ValueError, match="`labels`.*np.concatenate"):
        mh.metrics.nll(np.full((2, 2), 0.5), (label for label in [0, 1]))
