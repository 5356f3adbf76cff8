"""FGSM against exact float64 gradients."""

import logging

import keras
import numpy as np
import pytest
from keras import ops
from numpy.lib.stride_tricks import sliding_window_view

from keras_mhmcmc import Classifier
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import robustness_curve
from tests.support.attack_tools import exact_direction
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import softmax


def attack_signs(model, x, y=None, **options):
    """Sign of the change, from an attack that is not clipped."""
    return np.sign(fgsm(model, x, 0.125, y=y, clip=None, **options) - x)


def assert_same_signs(signs, gradient):
    """All signs are right, where rounding cannot turn them."""
    size = np.abs(gradient)
    clear = size > 1e-4 * size.max(axis=1, keepdims=True)
    assert clear.mean() > 0.98
    np.testing.assert_array_equal(signs[clear], np.sign(gradient)[clear])


class TestLinearModels:
    @pytest.mark.parametrize(
        "activation, batch_size, examples",
        [("softmax", 256, 40), (None, 39, 40), ("softmax", 7, 40), (None, 256, 1)],
    )
    def test_several_columns(self, activation, batch_size, examples):
        x, y, *parameters = linear_case()
        x, y = x[:examples], y[:examples]
        options = {"from_logits": activation is None, "batch_size": batch_size}
        signs = attack_signs(linear(*parameters, activation), x, y, **options)
        assert_same_signs(signs, exact_direction(x, y, *parameters))

    @pytest.mark.parametrize("activation", ["sigmoid", None])
    def test_one_column(self, activation):
        """The loss of class 1 falls along w, that of class 0 rises."""
        weights, y = np.array([[1.0], [-2.0], [0.5]]), np.array([[0], [1], [1]])
        x = np.random.default_rng(0).uniform(size=(3, 3)).astype("float32")
        model = linear(weights, [0.1], activation)
        signs = attack_signs(model, x, y, from_logits=activation is None)
        np.testing.assert_array_equal(signs, (1 - 2 * y) * np.sign(weights.T))

    def test_ensemble_of_mean_probabilities(self):
        """The gradient is that of the weighted mean, not a mean of gradients."""
        x, y, *first = linear_case()
        _, _, *second = linear_case(seed=1)
        inputs = keras.Input((12,))
        outputs = 0.3 * linear(*first)(inputs) + 0.7 * linear(*second)(inputs)
        # grad -log sum_m a_m p_m = sum_m a_m p_m grad(-log p_m) / sum_m a_m p_m
        gradient = 0.0
        for share, (weights, bias) in ((0.3, first), (0.7, second)):
            p = softmax(x.astype("float64") @ weights + bias)
            p = p[np.arange(len(y)), y][:, None]
            direction = exact_direction(x, y, weights, bias)
            gradient = gradient + share * p * (1.0 - p) * direction
        assert_same_signs(attack_signs(keras.Model(inputs, outputs), x, y), gradient)


class TestConfidentModels:
    """Logits far apart, where probabilities are 0 or 1 in float32."""

    def gap_case(self, gap):
        """A linear model with a logit about `gap` above the others of its example."""
        _, y, weights, _ = linear_case()
        z = np.random.default_rng(1).uniform(-3.0, 3.0, size=(40, 5))
        z[np.arange(40), y] += gap
        x = (z @ np.linalg.pinv(weights)).astype("float32")
        return x, y, weights, np.zeros(5)

    @pytest.mark.parametrize("gap, logits", [(17, False), (75, False), (1000, True)])
    def test_right_and_wrong_labels(self, gap, logits):
        x, y, *parameters = self.gap_case(gap)
        model = linear(*parameters, None if logits else "softmax")
        for labels in (y, (y + 1) % 5):
            signs = attack_signs(model, x, labels, from_logits=logits)
            assert_same_signs(signs, exact_direction(x, labels, *parameters))

    @pytest.mark.parametrize("shift", [300.0, -300.0])
    def test_underflow_is_told(self, shift):
        """exp(-300) is 0 in float32: nothing to follow, and no noise either."""
        x, _, weights, bias = linear_case()
        model = linear(weights, bias := bias + [shift, 0.0, 0.0, 0.0, 0.0])
        message = r"Argument `model` has a gradient of zero for 40 of 40 examples"
        with pytest.warns(UserWarning, match=message) as caught:
            np.testing.assert_array_equal(fgsm(model, x, 0.1, y=[0] * 40), x)
        assert __file__ in [warning.filename for warning in caught]
        with pytest.warns(UserWarning, match=r"`models\['a'\]` has a gradient of zero"):
            robustness_curve({"a": model}, x, [0] * 40, [0.1], true_label=True)
        model.layers[-1].activation = keras.activations.linear
        signs = attack_signs(model, x, [0] * 40, from_logits=True)
        assert_same_signs(signs, exact_direction(x, [0] * 40, weights, bias))


def test_deep_model():
    """Against central differences of the same network in NumPy, in float64."""
    hidden = keras.layers.Dense(6, "tanh")
    model = keras.Sequential([keras.Input((5, 5, 1))])
    model.add(keras.layers.Conv2D(2, 3, activation="sigmoid"))
    model.add(keras.layers.BatchNormalization())
    model.add(keras.layers.Flatten())
    model.add(hidden)
    model.add(keras.layers.Dropout(0.5))
    model.add(keras.layers.Dense(3, "softmax"))
    rng, rows = np.random.default_rng(0), np.arange(5)
    model.set_weights([rng.uniform(-1, 1, w.shape) ** 2 for w in model.get_weights()])
    hidden.set_weights([rng.normal(size=(18, 6)), np.zeros(6)])
    weights = [w.astype("float64") for w in model.get_weights()]
    kernel, b1, scale, shift, mean, variance, w2, b2, w3, b3 = weights
    x, y = rng.uniform(size=(5, 5, 5, 1)).astype("float32"), rng.integers(0, 3, size=5)

    def log_likelihood(x):
        windows = sliding_window_view(x[..., 0], (3, 3), (1, 2))
        z = np.einsum("nijab,abf->nijf", windows, kernel[:, :, 0]) + b1
        hidden = (1 / (1 + np.exp(-z)) - mean) / np.sqrt(variance + 1e-3)
        hidden = (hidden * scale + shift).reshape(len(x), -1)
        return np.log(softmax(np.tanh(hidden @ w2 + b2) @ w3 + b3)[rows, y])

    gradient = np.zeros(x.shape)
    for index in np.ndindex(x.shape[1:]):
        step = np.zeros(x.shape)
        step[:, *index] = 1e-5
        difference = log_likelihood(x - step) - log_likelihood(x + step)
        gradient[:, *index] = difference / 2e-5
    signs = attack_signs(model, x, y)
    assert_same_signs(signs.reshape(5, -1), gradient.reshape(5, -1))


class TestResult:
    def test_moves_by_epsilon_within_the_limits(self):
        x, y, *parameters = linear_case()
        x[0, 0], x[1, 1] = 0.0, 1.0
        moved = fgsm(model := linear(*parameters), x, 0.25, y=y)
        assert moved.dtype == np.float32 and moved.shape == x.shape
        assert moved.min() >= 0.0 and moved.max() <= 1.0
        distance, inside = np.abs(moved - x), (moved > 0.0) & (moved < 1.0)
        assert distance.max() <= 0.25 * (1 + 1e-6) and inside.mean() > 0.9
        np.testing.assert_allclose(distance[inside], 0.25, rtol=1e-6)
        assert set(fgsm(model, x, 9.0, clip=(-1, 2)).flat) == {-1.0, 2.0}
        np.testing.assert_array_equal(fgsm(model, x, 0.0, y=y), x)

    def test_default_label_and_forms(self):
        x, _, weights, bias = linear_case()
        predicted = softmax(x @ weights + bias).argmax(axis=1)
        model = linear(weights, bias)
        moved = fgsm(model, x, 0.1)
        for inputs, labels in (
            (x.astype("float64"), predicted[:, None]),
            (ops.convert_to_tensor(x), np.eye(5)[predicted]),
        ):
            np.testing.assert_array_equal(fgsm(model, inputs, 0.1, y=labels), moved)

    def test_softmax_after_half_precision(self):
        hidden = keras.layers.Dense(2, dtype="mixed_float16")
        last = keras.layers.Activation("softmax", dtype="float32")
        model = keras.Sequential([keras.Input((3,)), hidden, last])
        hidden.set_weights([np.array([[1, -1], [-1, 1], [2, 0.5]]), np.zeros(2)])
        signs = attack_signs(model, np.full((2, 3), 0.5), [0, 1])
        np.testing.assert_array_equal(signs, [[-1, 1, -1], [1, -1, 1]])

    def test_sees_new_weights(self):
        """Training between two calls, and between two uses of what is compiled."""
        x, y, *parameters = linear_case()
        model = linear(*parameters)
        classifier = Classifier(model)
        first = attack_signs(classifier, x, y)
        model.compile(keras.optimizers.SGD(5.0), "sparse_categorical_crossentropy")
        model.fit(x, y, epochs=3, verbose=0)
        trained = [np.array(value) for value in model.get_weights()]
        direction = exact_direction(x, y, *trained)
        assert np.any(np.sign(direction) != first)
        for target in (classifier, model):
            assert_same_signs(attack_signs(target, x, y), direction)
        np.testing.assert_array_equal(model.get_weights()[0], trained[0])


def test_outputs_that_ignore_the_input():
    model = linear(np.zeros((2, 3)), np.zeros(3))
    model.layers[0].activation = lambda z: ops.one_hot(ops.argmax(z, axis=1), 3)
    x = np.full((4, 2), 0.5, "float32")
    with pytest.warns(UserWarning, match="gradient of zero for 4 of 4"):
        np.testing.assert_array_equal(fgsm(model, x, 0.1), x)


def test_tensorflow_does_not_warn_of_repeated_tracing(caplog):
    """The functions of several models are traced once each, which is no fault."""
    logger = logging.getLogger("tensorflow")
    logger.addHandler(caplog.handler)
    try:
        for seed in range(6):
            x, y, *parameters = linear_case(seed)
            fgsm(linear(*parameters), x, 0.1, y=y)
    finally:
        logger.removeHandler(caplog.handler)
    assert "retracing" not in caplog.text
