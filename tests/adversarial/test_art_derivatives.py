"""Derivatives of estimators of the Adversarial Robustness Toolbox, against float64."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.adversarial import art_classifier
from tests.support.art_checks import CLOSE
from tests.support.art_checks import check_class_gradients
from tests.support.art_checks import check_loss
from tests.support.art_checks import check_loss_gradient
from tests.support.art_checks import check_predictions
from tests.support.art_checks import made
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import softmax
from tests.support.library_tools import Curved

CHECKS = [check_predictions, check_loss, check_loss_gradient, check_class_gradients]


@pytest.mark.parametrize("activation", [None, "softmax"])
@pytest.mark.parametrize("check", CHECKS)
def test_derivatives_are_those_of_float64(check, activation):
    check(activation)


def test_the_mean_probability_of_an_ensemble_is_differentiated():
    x, y, *first = linear_case()
    _, _, *second = linear_case(seed=1)
    shares = np.array([0.25, 0.75])
    ensemble = mh.Ensemble(linear(*first, None), 2, "softmax")
    pairs = zip(first, second, strict=True)
    ensemble.set_members([np.stack(pair) for pair in pairs], shares)
    estimator = art_classifier(ensemble)

    p, slopes = 0.0, 0.0
    for share, (weights, bias) in zip(shares, (first, second), strict=True):
        weights = weights.astype("float64")
        own = softmax(x @ weights + bias)
        # d p_k / d x = p_k (w_k - sum_j p_j w_j), shape (n, C, features)
        slope = own[:, :, None] * (weights.T - (own @ weights.T)[:, None])
        p, slopes = p + share * own, slopes + share * slope
    exact = slopes / p[:, :, None]
    np.testing.assert_allclose(estimator.predict(x), np.log(p), **CLOSE)
    np.testing.assert_allclose(estimator.class_gradient(x), exact, **CLOSE)
    found = estimator.loss_gradient(x, y)
    np.testing.assert_allclose(found, -exact[np.arange(len(y)), y], **CLOSE)


def test_one_column_stands_for_two_classes():
    x, _, weights, bias = linear_case()
    model = linear(weights[:, :1], bias[:1], None)
    estimator = art_classifier(model, from_logits=True)
    assert estimator.nb_classes == 2
    z = x @ weights[:, :1] + bias[:1]
    both = np.concatenate([np.zeros_like(z), z], axis=1)
    np.testing.assert_allclose(estimator.predict(x), both, **CLOSE)
    gradients = estimator.class_gradient(x)
    np.testing.assert_array_equal(gradients[:, 0], 0.0)
    np.testing.assert_array_equal(estimator.class_gradient(x, label=0), 0.0)
    exact = np.broadcast_to(weights[:, 0], x.shape)
    np.testing.assert_allclose(gradients[:, 1], exact, **CLOSE)


def test_the_sign_remains_however_confident_the_model_is():
    case = Curved(scale=40.0)
    rows, y = np.arange(len(case.y)), case.z.argmax(axis=1)
    assert np.sum(case.p.max(axis=1).astype("float32") == 1.0) > 9
    others = case.z.copy()
    others[rows, y] = -np.inf
    mean = np.einsum("nc,ncd->nd", softmax(others), case.of_logits)
    exact = mean - case.of_logits[rows, y]  # of the log odds against y
    found = made(case, None).loss_gradient(case.x, y)
    np.testing.assert_array_equal(np.sign(found), np.sign(exact))


def test_weights_are_read_at_each_call():
    x, y, weights, bias = linear_case()
    model = linear(weights, bias, None)
    estimator = art_classifier(model, from_logits=True)
    first = estimator.predict(x), estimator.loss_gradient(x, y)
    model.set_weights([2.0 * weights, 2.0 * bias])
    np.testing.assert_allclose(estimator.predict(x), 2.0 * first[0], **CLOSE)
    assert np.abs(estimator.loss_gradient(x, y) - first[1]).max() > 0.1


@pytest.mark.parametrize("count, size", [(1, 1), (2, 2), (3, 4), (5, 8), (9, 9)])
def test_few_sizes_of_batches_are_compiled(count, size):
    sizes = []

    class Recording(keras.layers.Layer):
        def call(self, inputs):
            sizes.append(inputs.shape[0])
            return inputs

    model = keras.Sequential(
        [keras.Input((3,)), Recording(), keras.layers.Dense(2, "softmax")]
    )
    estimator = art_classifier(mh.Classifier(model, batch_size=8))
    sizes.clear()
    rows = np.random.default_rng(0).uniform(size=(count, 3))
    assert estimator.predict(rows).shape == (count, 2)
    assert estimator.loss_gradient(rows, [0] * count).shape == (count, 3)
    assert estimator.class_gradient(rows).shape == (count, 2, 3)
    assert set(sizes) <= {min(size, 8)}
