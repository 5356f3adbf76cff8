"""What estimators of ART refuse, and what they warn of."""

import sys
import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
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
    monkeypatch.setitem(sys.modules, "art.estimators.estimator", None)
    with pytest.raises(ImportError, match=r"pip install keras-mhmcmc\[art\]"):
        art_classifier(linear(np.eye(2), np.zeros(2)))


def test_training_is_refused(trained):
    estimator, x, y = trained[1:]
    with pytest.raises(NotImplementedError, match="Train the model with `model.fit`"):
        estimator.fit(x, y)
    with pytest.raises(NotImplementedError, match="no activations"):
        estimator.get_activations(x, 0, 1)
    with pytest.raises(ValueError, match="must be made anew"):
        estimator.set_params(clip_values=(0.0, 2.0))
    for method in (estimator.loss_gradient, estimator.class_gradient):
        with pytest.raises(ValueError, match="`training_mode` must be False"):
            method(x, training_mode=True, **{method.__code__.co_varnames[2]: y})


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
        with pytest.raises(ValueError, match="`input_shape` must be the shape of one"):
            art_classifier(model)
        art_classifier(model, input_shape=(3,))
        free = keras.Sequential(
            [
                keras.Input((None, 2)),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(2, activation="softmax"),
            ]
        )
        with pytest.raises(ValueError, match=r"declares \(None, 2\)"):
            art_classifier(free)
        art_classifier(free, input_shape=(5, 2))
        with pytest.raises(ValueError, match="`input_shape` must fit the model's inp"):
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
    for wrong in (10, -1, 0.5, "0"):
        with pytest.raises(ValueError, match="`label` must be an integer"):
            estimator.class_gradient(x, label=wrong)
    with pytest.raises(ValueError, match=r"`label` must be integers in \[0, 10\)"):
        estimator.class_gradient(x, label=y + 5)
    with pytest.raises(ValueError, match="`reduction` must be one of 'none', 'mean'"):
        estimator.compute_loss(x, y, reduction="max")


def test_a_model_without_gradient_is_searched_by_black_boxes():
    inputs = keras.Input((8, 8, 1))
    rounded = keras.layers.Flatten()(ops.round(4.0 * inputs) / 4.0)
    head = keras.layers.Dense(2)
    model = keras.Model(inputs, head(rounded))
    signs = np.where(np.arange(64) % 2, 1.0, -1.0)[:, None]
    head.set_weights([signs * [[1.0, -1.0]], np.array([0.5, 0.0])])
    estimator = art_classifier(model, from_logits=True)
    x = np.full((4, 8, 8, 1), 0.5, "float32")
    with pytest.raises(ValueError, match="`model` must have a gradient"):
        estimator.class_gradient(x)
    attack = evasion.SquareAttack(estimator, eps=0.3, max_iter=60, verbose=False)
    np.random.seed(0)
    moved = attack.generate(x.copy(), y=np.zeros(4, int))
    assert np.all(estimator.predict(x).argmax(axis=1) == 0)
    assert np.any(estimator.predict(moved).argmax(axis=1) == 1)


def test_a_few_zero_gradients_are_told_once():
    model = linear(np.array([[200.0, -200.0]]), np.zeros(2))
    estimator = art_classifier(model)
    x = np.array([[1.0], [0.001]])
    with pytest.warns(UserWarning, match="zero for 1 of 2 examples"):
        estimator.loss_gradient(x, [0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        estimator.loss_gradient(x, [0, 0])


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
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        attack = evasion.FastGradientMethod(estimator, eps=0.05, batch_size=1)
        x = np.array([[0.5], [0.01], [0.7]], "float32")
        moved = attack.generate(x, y=np.zeros(3, int))
    np.testing.assert_allclose(moved, [[0.45], [0.01], [0.65]], rtol=1e-5)


def test_the_masks_of_dropout_under_attacks_of_art_are_told():
    layers = [keras.layers.Dropout(0.5), keras.layers.Dense(3, activation="softmax")]
    passes = mh.MCDropout(keras.Sequential([keras.Input((4,)), *layers]), samples=2)
    with pytest.warns(UserWarning, match="depend on the position of an example"):
        art_classifier(passes)
