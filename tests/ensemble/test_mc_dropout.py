"""MC dropout: which layers are at work, what is averaged, and attacks on it."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh
from keras_mhmcmc import MCDropout
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import robustness_curve
from tests.support.models import numpy


def network(*parts, units=6):
    """Layers between two dense ones, for inputs of shape (5,)."""
    keras.utils.set_random_seed(0)
    first = layers.Dense(units, "tanh")
    return keras.Sequential([keras.Input((5,)), first, *parts, layers.Dense(3)])


def inputs(count=40):
    return np.random.default_rng(0).uniform(size=(count, 5)).astype("float32")


def softmax(logits):
    return numpy(keras.ops.softmax(logits))


class TestPasses:
    def test_one_is_noisy_and_many_are_near_the_expectation(self):
        """Dropout before a linear layer leaves the mean output as it is."""
        model, x = network(layers.Dropout(0.5)), inputs()
        plain = numpy(model(x, training=False))
        errors = {}
        for samples in (1, 2000):
            errors[samples] = numpy(MCDropout(model, samples)(x)) - plain
        assert np.abs(errors[1]).mean() > 0.1
        spread = np.std(errors[1]) / 2000**0.5
        assert np.abs(errors[2000]).max() < 6 * spread * 2
        assert np.abs(errors[2000]).max() > 0.0

    def test_rate(self):
        """Of ones, the share that is dropped is the rate; the others grow."""
        inputs = keras.Input((1000,))
        model = keras.Model(inputs, layers.Dropout(0.2)(inputs))
        passes = MCDropout(model, 30).predict_members(np.ones((2, 1000)))
        values, counts = np.unique(passes, return_counts=True)
        np.testing.assert_allclose(values, [0.0, 1.25])
        tolerance = 4 * (0.2 * 0.8 / passes.size) ** 0.5
        assert abs(counts[0] / passes.size - 0.2) < tolerance
        # Masks of two passes and of two examples are not the same.
        assert np.any(passes[0] != passes[1]) and np.any(passes[:, 0] != passes[:, 1])

    def test_only_dropout_is_at_work(self):
        noise = [layers.GaussianNoise(1.0), layers.BatchNormalization()]
        model, x = network(*noise, layers.Dropout(1e-7)), inputs()
        model.layers[2].set_weights([np.full(6, v) for v in (2.0, 0.1, 0.3, 4.0)])
        passes = MCDropout(model, 3).predict_members(x)
        np.testing.assert_allclose(
            passes, [numpy(model(x, training=False))] * 3, atol=1e-5
        )

    def test_activation_comes_before_the_mean(self):
        model, x = network(layers.Dropout(0.5)), inputs()
        logits = MCDropout(model, 4).predict_members(x)
        members = MCDropout(model, 4, "softmax").predict_members(x)
        np.testing.assert_allclose(members, softmax(logits), atol=1e-6)
        mean = MCDropout(model, 4, "softmax").predict(x, verbose=0)
        np.testing.assert_allclose(mean, members.mean(axis=0), atol=1e-6)

    @pytest.mark.parametrize("axis", [1, 2])
    def test_masks_that_repeat(self, axis):
        """Noise shapes and spatial dropout drop whole rows or columns."""
        source = keras.Input((6, 8))
        shape = (None, 1, None) if axis == 1 else (None, None, 1)
        dropout = layers.Dropout(0.5, noise_shape=shape)
        if axis == 1:
            dropout = layers.SpatialDropout1D(0.5)
        model = keras.Model(source, dropout(source))
        passes = MCDropout(model, 3).predict_members(np.ones((4, 6, 8)))
        one = np.take(passes, [0], axis=axis + 1)
        np.testing.assert_array_equal(passes, np.broadcast_to(one, passes.shape))
        assert 0.2 < np.mean(passes == 0.0) < 0.8

    def test_dropout_in_nested_and_branching_models(self):
        inner = network(layers.Dropout(0.5))
        source = keras.Input((5,))
        left, right = inner(source), layers.Dense(3)(layers.Dropout(0.5)(source))
        outer = keras.Model(source, layers.add([left, right]))
        for model in (outer, keras.Sequential([keras.Input((5,)), inner])):
            passes = MCDropout(model, 500)
            x = inputs(3)
            members = passes.predict_members(x)
            assert np.all(members.std(axis=0) > 0.05)
            plain = numpy(model(x, training=False))
            tolerance = 6 * members.std(axis=0).max() / 500**0.5
            np.testing.assert_allclose(members.mean(axis=0), plain, atol=tolerance)

    @pytest.mark.parametrize("dropout", [layers.Dropout, layers.SpatialDropout1D])
    @pytest.mark.parametrize("last", [layers.GRU, layers.GlobalAveragePooling1D])
    def test_padding_stays_masked(self, dropout, last):
        """Almost nothing is dropped, so each pass is the model itself."""
        keras.utils.set_random_seed(0)
        last = last(4) if last is layers.GRU else last()
        words = [layers.Embedding(9, 6, mask_zero=True), dropout(1e-7)]
        model = keras.Sequential([keras.Input((7,)), *words, last, layers.Dense(2)])
        rng = np.random.default_rng(0)
        x = rng.integers(1, 9, (30, 7)) * (np.arange(7) < rng.integers(1, 7, (30, 1)))
        passes = MCDropout(model, 3).predict_members(x)
        plain = numpy(model(x, training=False))
        np.testing.assert_allclose(passes, [plain] * 3, atol=1e-5)

    def test_shares_the_weights_of_the_model(self):
        model, x = network(layers.Dropout(1e-7)), inputs()
        passes = MCDropout(model, 2)
        before = numpy(passes(x))
        model.set_weights([2.0 * w for w in model.get_weights()])
        assert np.abs(numpy(passes(x)) - before).max() > 0.01
        np.testing.assert_allclose(numpy(passes(x)), numpy(model(x)), atol=1e-5)
        assert len(passes.trainable_variables) == len(model.trainable_variables)


class TestSeeds:
    def test_draws(self):
        model, x = network(layers.Dropout(0.5)), inputs()
        first, again, other = (MCDropout(model, 5, seed=s) for s in (0, 0, 1))
        values = first.predict(x, verbose=0)
        np.testing.assert_array_equal(values, again.predict(x, verbose=0))
        assert np.any(values != other.predict(x, verbose=0))
        assert np.any(values != first.predict(x, verbose=0))  # new masks

    def test_saved_and_loaded(self, tmp_path):
        """The masks begin at the seed again, as those of Keras' own dropout do."""
        model, x = network(layers.Dropout(0.5)), inputs()
        passes = MCDropout(model, 5, "softmax", seed=3)
        expected = passes.predict(x, verbose=0)
        passes.save(tmp_path / "passes.keras")
        loaded = keras.saving.load_model(tmp_path / "passes.keras")
        np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, atol=1e-6)


class TestAttacks:
    def test_attacks_meet_the_masks_they_were_made_for(self):
        x, y = inputs(), np.arange(40) % 3
        passes = MCDropout(network(layers.Dropout(0.5)), 2, "softmax")
        options = {"attack": "pgd", "steps": 3, "batch_size": 16}
        first, second = (
            robustness_curve({"MC": passes}, x, y, [0.0, 0.1], **options)
            for _ in range(2)
        )
        assert first.rows == second.rows

    def test_the_gradient_is_that_of_the_mean_over_the_same_masks(self):
        """Against central differences of the mean over the masks of a call."""
        passes = MCDropout(network(layers.Dropout(0.5)), 4, "softmax")
        classifier = mh.Classifier(passes)
        x, y = inputs(12), np.arange(12) % 3
        signs = np.sign(fgsm(classifier, x, 0.1, y=y, clip=None) - x)

        def own(x):
            return classifier.probabilities(x)[np.arange(12), y]

        for column in range(5):
            step = np.zeros(5)
            step[column] = 1e-2
            difference = own(x - step) - own(x + step)
            clear = np.abs(difference) > 1e-5
            assert clear.mean() > 0.8
            expected = np.sign(difference)[clear]
            np.testing.assert_array_equal(signs[clear, column], expected)

    def test_a_pass_is_attacked_alone(self):
        passes = MCDropout(network(layers.Dropout(0.5), units=20), 4, "softmax")
        classifier, x = mh.Classifier(passes), inputs()
        y = np.arange(40) % 3
        moved = [fgsm(classifier, x, 0.1, y=y, member=m) for m in (None, 0, 1)]
        assert np.any(moved[0] != moved[1]) and np.any(moved[1] != moved[2])


class Unknown(keras.Model):
    def call(self, inputs):
        return inputs


class Hidden(layers.Layer):
    def __init__(self):
        super().__init__()
        self.dropout = layers.Dropout(0.5)

    def call(self, inputs):
        return self.dropout(inputs)


def recurrent(layer):
    """A sequence model that drops in `layer` and in a layer of its own."""
    parts = [layer, layers.Flatten(), layers.Dropout(0.5), layers.Dense(2)]
    return keras.Sequential([keras.Input((4, 3)), *parts])


OTHER_DROPOUT = {
    "lstm": lambda: layers.LSTM(2, dropout=0.5),
    "gru": lambda: layers.GRU(2, recurrent_dropout=0.5),
    "bidirectional": lambda: layers.Bidirectional(layers.SimpleRNN(2, dropout=0.5)),
    "rnn": lambda: layers.RNN([layers.GRUCell(2), layers.LSTMCell(2, dropout=0.5)]),
    "time": lambda: layers.TimeDistributed(layers.GaussianDropout(0.5)),
    "alpha": lambda: layers.AlphaDropout(0.5),
}


@pytest.mark.parametrize("make", OTHER_DROPOUT.values(), ids=list(OTHER_DROPOUT))
def test_dropout_of_another_kind_is_refused(make):
    with pytest.raises(ValueError, match="Put `Dropout` layers in place of"):
        MCDropout(recurrent(make()))


def attention():
    source = keras.Input((4, 3))
    x = layers.Attention(dropout=0.5)([source, source])
    return keras.Model(source, layers.Dropout(0.5)(layers.Flatten()(x)))


def test_a_recurrent_layer_without_dropout_is_taken():
    x = np.ones((2, 4, 3))
    passes = MCDropout(recurrent(layers.LSTM(2)), 3).predict_members(x)
    assert np.all(passes.std(axis=0) > 0.0)


@pytest.mark.parametrize(
    "build, options, message",
    [
        (Unknown, {}, "`model` must be a built sequential or functional"),
        (lambda: None, {}, "`model` must be a built sequential or functional"),
        (keras.Sequential, {}, "`model` must be a built sequential or functional"),
        (network, {}, "`model` must have a `Dropout`.*0 dropout layers"),
        (lambda: network(layers.Dropout(0.0)), {}, "with a rate above 0"),
        (lambda: network(layers.Dropout(0.5), Hidden()), {}, "2 dropout layers, 1 of"),
        (attention, {}, "other dropout: .*attention"),
        (lambda: network(layers.Dropout(0.5, noise_shape=(1, 5))), {}, "share a mask"),
        (lambda: network(layers.Dropout(0.5)), {"samples": 0}, "`samples` must be an"),
        (lambda: network(layers.Dropout(0.5)), {"seed": -1}, "`seed` must be an"),
    ],
)
def test_refused(build, options, message):
    with pytest.raises(ValueError, match=message):
        MCDropout(build(), **options)
