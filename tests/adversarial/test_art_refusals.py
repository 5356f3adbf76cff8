"""What estimators of ART refuse, and what they warn of."""

import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.adversarial import art_classifier
from keras_mhmcmc.adversarial import art_estimator
from tests.support import art_checks
from tests.support.art_checks import evasion
from tests.support.attack_tools import linear
from tests.support.library_tools import IMAGES

cases = art_checks.cases
trained = art_checks.trained


def test_a_missing_package_is_named(monkeypatch):
    art_estimator._estimator_class.cache_clear()
    monkeypatch.setitem(sys.modules, "art.estimators", None)
    with pytest.raises(ImportError, match=r"pip install keras-mhmcmc\[art\]"):
        art_classifier(linear(np.eye(2), np.zeros(2)))


def test_training_is_refused(trained):
    estimator, x, y = trained[1:]
    with pytest.raises(NotImplementedError, match="Train the model with Keras"):
        estimator.fit(x, y)
    with pytest.raises(ValueError, match="takes no defences of ART"):
        estimator.set_params(clip_values=(0.0, 2.0))


class TestBadInput:
    def test_a_regression_is_refused(self):
        model = linear(np.full((3, 1), 2.0), np.zeros(1), None)
        with pytest.raises(ValueError, match="`model` has outputs that should be prob"):
            art_classifier(model)

    def test_a_model_that_is_not_built_is_refused(self):
        with pytest.raises(ValueError, match="`model` must be a `keras.Model` that is"):
            art_classifier(keras.Sequential([keras.layers.Dense(2)]))

    def test_a_model_without_gradient_is_refused(self):
        inputs = keras.Input((4,))
        outputs = keras.layers.Dense(2, activation="softmax")
        model = keras.Model(inputs, outputs(ops.round(inputs)))
        with pytest.raises(ValueError, match="`model` must have a gradient"):
            art_classifier(model).loss_gradient(np.full((3, 4), 0.7), [0, 1, 1])

    def test_a_shape_that_is_not_declared_must_be_given(self):
        class Own(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(2, activation="softmax")

            def call(self, inputs):
                return self.dense(inputs)

        (model := Own())(np.zeros((1, 3)))
        with pytest.raises(ValueError, match="`input_shape` must be"):
            art_classifier(model)
        art_classifier(model, input_shape=(3,))
        free = keras.Sequential(
            [
                keras.Input((None, 2)),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(2, activation="softmax"),
            ]
        )
        with pytest.raises(ValueError, match="`input_shape` must be"):
            art_classifier(free)
        art_classifier(free, input_shape=(5, 2))
        with pytest.raises(ValueError, match="must have the shape"):
            art_classifier(free, input_shape=(5, 3))


def test_bad_arrays_are_refused(trained):
    estimator, x, y = trained[1:]
    broken = x.copy()
    broken[0] = np.nan
    with pytest.raises(ValueError, match="`x` must be finite"):
        estimator.predict(broken)
    with pytest.raises(ValueError, match="`x` must be finite"):
        estimator.loss_gradient(broken, y)
    with pytest.raises(ValueError, match="`x` must have the shape"):
        estimator.class_gradient(x[:, :5])
    for wrong in (y + 5, np.full(IMAGES, -1), np.full(IMAGES, 0.5)):
        for method in (estimator.compute_loss, estimator.loss_gradient):
            with pytest.raises(ValueError, match=r"`y` must be integers in \[0, 10\)"):
                method(x, wrong)
    with pytest.raises(ValueError, match="`y` must have one label for each of 200"):
        estimator.loss_gradient(x, y[:5])


def test_a_model_without_gradient_is_searched_by_black_boxes():
    inputs = keras.Input((8, 8, 1))
    rounded = keras.layers.Flatten()(ops.round(4.0 * inputs) / 4.0)
    head = keras.layers.Dense(2)
    model = keras.Model(inputs, head(rounded))
    signs = np.where(np.arange(64) % 2, 1.0, -1.0)[:, None]
    head.set_weights([signs * [[1.0, -1.0]], np.array([0.5, 0.0])])
    estimator = art_classifier(model, from_logits=True)
    x = np.full((4, 8, 8, 1), 0.5, "float32")
    attack = evasion.SquareAttack(estimator, eps=0.3, max_iter=60, verbose=False)
    np.random.seed(0)
    moved = attack.generate(x.copy(), y=np.zeros(4, int))
    assert np.all(estimator.predict(x).argmax(axis=1) == 0)
    assert np.any(estimator.predict(moved).argmax(axis=1) == 1)


def test_one_example_without_a_gradient_does_not_stop_an_attack():
    """Attacks of ART may call with single examples. Here one is left of the ramp."""
    hidden = keras.layers.Dense(2, "relu")
    model = keras.Sequential([keras.Input((1,)), hidden, keras.layers.Dense(2)])
    ramp = [np.array([[1.0, 2.0]]), np.full(2, -0.1)]
    model.set_weights([*ramp, np.array([[1.0, -1.0], [0.5, 0.0]]), np.zeros(2)])
    estimator = art_classifier(model, from_logits=True)
    with pytest.warns(UserWarning, match="zero for 1 of 1 examples"):
        gradient = estimator.loss_gradient(np.array([[0.01]]), [0])
    np.testing.assert_array_equal(gradient, [[0.0]])
    attack = evasion.FastGradientMethod(estimator, eps=0.05, batch_size=1)
    x = np.array([[0.5], [0.01], [0.7]], "float32")
    with pytest.warns(UserWarning, match="zero for 1 of 1 examples"):
        moved = attack.generate(x, y=np.zeros(3, int))
    np.testing.assert_allclose(moved, [[0.45], [0.01], [0.65]], rtol=1e-5)
