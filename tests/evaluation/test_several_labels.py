"""What people score that is no classification: the errors say what to do instead."""

import pickle
import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4)).astype("float32")
LABELS = (X[:, :3] > 0).astype("float32")  # three yes-or-no labels of each example


@pytest.fixture(scope="module")
def run():
    """A model with three sigmoids, and its samples."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "sigmoid")])
    model.compile(mh.PSGLD(1e-3, train_size=192, seed=0), "binary_crossentropy")
    posterior = mh.PosteriorSamples()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the number of terms of the loss
        model.fit(X, LABELS, 16, epochs=3, verbose=0, callbacks=[posterior])
    return model, posterior


def test_several_yes_or_no_labels(run):
    ensemble = run[1].ensemble(run[0])
    with pytest.raises(ValueError, match="score each column k") as caught:
        mh.evaluate({"e": ensemble}, X, LABELS)
    assert "from_logits" not in str(caught.value)
    with (
        pytest.warns(UserWarning, match="averages the logits"),
        pytest.raises(ValueError, match="must be one-hot.*score each column k"),
    ):
        mh.evaluate({"e": ensemble}, X, LABELS, from_logits=True)
    p = ensemble.predict(X, verbose=0)
    for k in range(3):  # as the error says
        expected = keras.losses.binary_crossentropy(LABELS[:, k], p[:, k])
        found = mh.metrics.nll(p[:, k], LABELS[:, k])
        assert found == pytest.approx(float(expected), rel=1e-4)


def test_one_of_several_outputs():
    inputs = keras.Input((4,))
    heads = [keras.layers.Dense(3, "softmax")(inputs) for _ in range(2)]
    model = keras.Model(inputs, heads)
    ensemble = mh.Ensemble(model, 2)
    ensemble.set_members([np.stack([w, -w]) for w in model.get_weights()], [1, 1])
    y = np.arange(64) % 3
    with pytest.raises(ValueError, match=r"ensemble.predict\(x\)\[0\]"):
        mh.evaluate({"e": ensemble}, X, y)
    assert 0.0 < mh.metrics.nll(ensemble.predict(X, verbose=0)[0], y) < 5.0


def test_texts_are_to_be_numbered(run):
    for texts in (np.array(["a b", "c"]), np.array([b"a b", b"c"], dtype=object)):
        with pytest.raises(ValueError, match="TextVectorization"):
            mh.evaluate({"e": run[1].ensemble(run[0])}, texts, [0, 1])


def test_a_collection_is_pickled_without_its_model(run):
    model, posterior = run
    content = pickle.dumps(posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        copy = pickle.loads(content)
    assert len(copy) == len(posterior) == 3
    np.testing.assert_array_equal(
        copy.ensemble(model).predict(X, verbose=0),
        posterior.ensemble(model).predict(X, verbose=0),
    )
