"""The Square attack: its squares, its schedule, and models without a gradient."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import Classifier
from keras_mhmcmc.adversarial import apgd
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import pgd
from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.adversarial import square
from keras_mhmcmc.adversarial import square_search
from tests.support import attack_checks
from tests.support.attack_tools import farthest
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import two_classes


def images(shape=(6, 6, 2), examples=8, scale=0.0):
    """Images, labels 0, and a model that is sure of 0 whatever happens."""
    x = np.random.default_rng(0).uniform(0.3, 0.7, (examples, *shape))
    layer = keras.layers.Dense(2)
    flatten = keras.layers.Flatten()
    model = keras.Sequential([keras.Input(shape), flatten, layer])
    kernel = scale * np.random.default_rng(1).normal(size=(np.prod(shape), 2))
    layer.set_weights([kernel, np.array([100.0, 0.0])])
    return x.astype("float32"), np.zeros(examples, int), model


def test_the_share_of_a_square_is_that_of_autoattack():
    """The table of `p_selection` in AutoAttack 0.1, with p_init 0.8 of 10,000."""
    ends = {10: 1, 50: 2, 200: 4, 500: 8, 1000: 16, 2000: 32, 4000: 64, 6000: 128}
    ends |= {8000: 256, 10000: 512}
    for query in range(1, 10000):
        divisor = next(d for end, d in ends.items() if query <= end)
        assert square_search.share(query, 10000, 0.8) == 0.8 / divisor


@pytest.mark.parametrize(
    "shape, image",
    [
        ((5, 4, 3), (5, 4, 3)),
        ((5, 4), (5, 4, 1)),
        ((7,), (1, 7, 1)),
        ((2, 3, 2, 2), (1, 24, 1)),
    ],
)
def test_an_input_is_read_as_an_image(shape, image):
    assert square_search.image_shape(shape) == image


@pytest.mark.parametrize(
    "covered, image, sides",
    [
        (0.25, (8, 8, 3), (4, 4)),
        (0.8, (28, 28, 1), (25, 25)),
        (1.0, (8, 4, 1), (3, 3)),  # smaller than the image, as in the paper
        (1e-9, (8, 8, 1), (1, 1)),
        (0.5, (1, 10, 1), (1, 5)),
        (1.0, (1, 1, 1), (1, 1)),
        (0.5, (2, 2, 1), (1, 1)),
    ],
)
def test_sides_of_squares(covered, image, sides):
    assert square_search.window(covered, image) == sides


def test_the_first_query_is_of_stripes():
    """Each column of each channel moves one way."""
    x, y, model = images(scale=1.0)
    moved = square(model, x, 0.1, y=y, queries=1, from_logits=True)
    change = moved - x
    is_moved = np.any(change != 0, axis=(1, 2, 3))
    assert is_moved.any() and not is_moved.all()  # only where it helps
    np.testing.assert_allclose(np.abs(change[is_moved]), 0.1, atol=1e-6)
    np.testing.assert_allclose(change - change[:, :1], 0.0, atol=1e-6)


def test_the_second_query_is_of_a_square():
    """Inside it, each channel is at one of the two ends. Outside nothing changes."""
    x, y, model = images((6, 6, 2), scale=1.0)
    options = {"y": y, "from_logits": True, "initial_share": 0.25, "clip": None}
    before = square(model, x, 0.1, queries=1, **options)
    with pytest.MonkeyPatch.context() as patch:  # of 3 x 3 pixels
        patch.setattr(square_search, "share", lambda query, queries, initial: initial)
        after = square(model, x, 0.1, queries=2, **options)
    differs = np.abs(after - before) > 1e-6
    assert differs.any(axis=(1, 2, 3)).sum() >= 2
    assert differs.any(axis=(2, 3)).sum(axis=1).max() == 3
    for index in np.flatnonzero(differs.any(axis=(1, 2, 3))):
        rows, columns = np.nonzero(differs[index].any(axis=-1))
        assert np.ptp(rows) <= 2 and np.ptp(columns) <= 2
        box = (slice(rows.min(), rows.max() + 1), slice(columns.min(), None))
        change = (after - x)[index][box][:, : np.ptp(columns) + 1]
        signs = np.sign(change)
        np.testing.assert_allclose(np.abs(change), 0.1, atol=1e-6)
        for channel in np.flatnonzero(differs[index].any(axis=(0, 1))):
            assert np.ptp(signs[..., channel]) == 0.0


@pytest.mark.parametrize("activation", ["softmax", None])
def test_a_linear_model_is_led_to_the_corner(activation):
    """The runs become single numbers: all of them end at their better side."""
    x, y, weights, bias, slope = two_classes()
    bias = bias + np.where(np.arange(2) == 1, 1.0, 0.0)  # no attack turns class 1
    x, y = x[:6], np.ones(6, int)
    model = linear(weights, bias + [0.0, 20.0], activation)
    options = {"y": y, "clip": None, "queries": 600}
    moved = square(model, x, 0.1, from_logits=activation is None, **options)
    np.testing.assert_allclose(moved, farthest(x, y, slope, 0.1, "linf"), atol=1e-6)


def of_linf(*arguments, norm, **options):
    """Square, which has this norm alone."""
    return square(*arguments, **options)


@pytest.mark.parametrize("clip", [(0.25, 0.75), None])
def test_in_the_ball_and_the_limits(clip):
    attack_checks.check_in_the_ball(of_linf, "linf", clip, queries=10)


def test_never_weaker_than_the_clean_input():
    check = attack_checks.check_never_weaker_than_the_clean_input
    check(square, queries=10)


def test_an_example_that_fools_the_model_stays_as_it_is():
    x, y, *parameters = linear_case()
    model = linear(*parameters)
    wrong = Classifier(model).probabilities(x).argmax(axis=1) != y
    moved = square(model, x, 0.1, y=y, queries=5)
    assert wrong.any() and not wrong.all()
    np.testing.assert_array_equal(moved[wrong], x[wrong])
    assert np.all(np.any(moved != x, axis=1) >= ~wrong - 1)


def test_the_search_is_drawn_from_the_seed():
    x, y, model = images(scale=1.0)
    given = {"y": y, "queries": 8}
    first = square(model, x, 0.1, from_logits=True, **given)
    for size in (3, 8, 100):
        classifier = Classifier(model, from_logits=True, batch_size=size)
        again = square(classifier, x, 0.1, **given)
        np.testing.assert_array_equal(again, first)
    other = square(model, x, 0.1, from_logits=True, seed=1, **given)
    assert np.any(other != first)
    moved = square(model, x[3:], 0.1, y=y[3:], from_logits=True, queries=8)
    assert np.any(moved != first[3:])  # the numbers belong to the place of an example


def test_squares_are_of_pixels_when_channels_come_first():
    """The model of the turned images is the model with turned weights."""
    x, y, model = images(scale=1.0)
    kernel, bias = model.get_weights()[0], np.array([5.0, 0.0])
    model.set_weights([kernel, bias])
    given = {"y": y, "queries": 30, "from_logits": True}
    expected = square(model, x, 0.1, **given)
    turned = kernel.reshape(6, 6, 2, 2).transpose(2, 0, 1, 3).reshape(kernel.shape)
    flatten = keras.layers.Flatten(data_format="channels_last")  # as they come
    layer = keras.layers.Dense(2)
    first = keras.Sequential([keras.Input((2, 6, 6)), flatten, layer])
    layer.set_weights([turned, bias])
    keras.config.set_image_data_format("channels_first")
    try:
        moved = square(first, x.transpose(0, 3, 1, 2), 0.1, **given)
    finally:
        keras.config.set_image_data_format("channels_last")
    np.testing.assert_allclose(moved.transpose(0, 2, 3, 1), expected, atol=1e-4)
    assert np.any(moved.transpose(0, 2, 3, 1) != x)


def test_it_stops_when_all_are_misled():
    calls = []

    class Counting(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2, activation="softmax")

        def call(self, inputs):
            calls.append(1)
            return self.dense(inputs)

    x = np.full((4, 3), 0.5, "float32")
    (model := Counting())(x)
    predicted = Classifier(model).probabilities(x).argmax(axis=1)
    calls.clear()
    moved = square(model, x, 0.5, y=1 - predicted, queries=5000)
    np.testing.assert_array_equal(moved, x)  # wrong from the start
    assert len(calls) < 10


def rounding():
    """A classifier of 2 classes that rounds its inputs: its gradient is zero."""
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(2, activation="softmax")
    model = keras.Model(inputs, outputs(ops.round(inputs * 10.0) / 10.0))
    outputs.set_weights([np.array([[5.0, -5.0]] * 4), np.array([-10.0, 10.0])])
    return model


class TestWithoutGradient:
    X = np.array([[0.55] * 4, [0.62] * 4, [0.4] * 4, [0.35] * 4], "float32")
    Y = np.array([0, 0, 1, 1])

    @pytest.mark.parametrize("attack", [fgsm, pgd, apgd])
    def test_attacks_by_gradients_name_the_remedy(self, attack):
        with pytest.raises(ValueError, match="must have a gradient .*adversarial.squ"):
            attack(rounding(), self.X, 0.3, y=self.Y)
        with pytest.raises(ValueError, match='`models.*attack="square" in a table'):
            models = {"a": rounding()}
            name = attack.__name__
            robustness_curve(models, self.X, self.Y, [0.3], attack=name)

    def test_square_misleads_it(self):
        classifier = Classifier(rounding())
        assert np.all(classifier.probabilities(self.X).argmax(axis=1) == self.Y)
        moved = square(classifier, self.X, 0.3, y=self.Y, queries=100)
        assert np.all(classifier.probabilities(moved).argmax(axis=1) != self.Y)
        models = {"a": classifier}
        options = {"attack": "square", "queries": 100}
        table = robustness_curve(models, self.X, self.Y, [0.0, 0.3], **options)
        np.testing.assert_array_equal(table.column("a", "accuracy"), [1.0, 0.0])
        assert str(table).startswith("Square of 100 queries on the true labels, by")

    def test_one_hot_outputs_are_searched_as_well(self):
        """They have no margin to raise: each query is a new guess."""
        inputs = keras.Input((4,))
        classes = ops.argmax(rounding()(inputs), axis=1)
        model = keras.Model(inputs, ops.one_hot(classes, 2))
        moved = square(model, self.X, 0.3, y=self.Y, queries=2000)
        predicted = Classifier(model).probabilities(moved).argmax(axis=1)
        assert np.mean(predicted != self.Y) >= 0.5


def test_saturated_probabilities_are_told():
    """The search sees no change, and guesses."""
    x, y, model = images()
    classifier = Classifier(keras.Sequential([model, keras.layers.Softmax()]))
    with pytest.warns(UserWarning, match="For 8 of 8 examples.*exactly 1"):
        square(classifier, x, 0.1, y=y, queries=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        square(model, x, 0.1, y=y, queries=3, from_logits=True)


def test_channels_that_seem_to_come_first_are_told():
    x, y, model = images((3, 8, 8))
    with pytest.warns(UserWarning, match="set_image_data_format"):
        square(model, x, 0.1, y=y, queries=3, from_logits=True)
    with pytest.warns(UserWarning, match="8 channels"):
        mh.corrupt(x, "contrast", 1)
