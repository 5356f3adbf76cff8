"""One model, a list or a dict of models, wherever models are compared."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

IMAGES = np.linspace(0.0, 1.0, 6 * 16).reshape(6, 4, 4).astype("float32")
Y = np.array([0, 1, 2, 0, 1, 2])


def model(name, seed=0):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
    return keras.Sequential([keras.Input((4, 4)), *layers], name=name)


@pytest.mark.eager_and_compiled
def test_names_of_models():
    same = [model("net"), model("net", 1), mh.Classifier(model("other"))]
    given = {
        ("net",): same[0],
        ("net", "net#2", "other"): same,
        ("other",): same[2],
        ("a",): {"a": same[0]},
    }
    for names, models in given.items():
        table = mh.evaluate(models, IMAGES, Y)
        assert tuple(row["model"] for row in table.rows) == names
        curve = mh.adversarial.robustness_curve(models, IMAGES, Y, [0.1])
        assert tuple(row["model"] for row in curve.rows) == names
        shift = mh.evaluate_shift(models, IMAGES, Y, severities=[1])
        assert tuple(shift.models) == names
        moved = mh.adversarial.transfer(models, same[0], IMAGES, Y, 0.1)
        assert tuple(row["source"] for row in moved.rows) == names
    scores = mh.evaluate(same, IMAGES, Y).column("nll")
    each = [mh.evaluate(one, IMAGES, Y).column("nll")[0] for one in same]
    np.testing.assert_array_equal(scores, each)
    flags = {"net": False, "net#2": False, "other": False}
    mh.evaluate(same, IMAGES, Y, from_logits=flags)


@pytest.mark.parametrize("models", [[], [1], [model("net"), "a"], None])
def test_what_is_no_model(models):
    with pytest.raises(ValueError, match="`models` must be a model, a list of models"):
        mh.evaluate(models, IMAGES, Y)
