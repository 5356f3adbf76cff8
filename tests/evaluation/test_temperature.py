"""Temperature scaling against SciPy's minimiser and closed forms."""

import keras
import numpy as np
import pytest
from scipy import optimize
from scipy import special

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.calibrated import best_temperature
from tests.support.attack_tools import linear
from tests.support.models import numpy


def overconfident_case(seed=0, examples=400, temperature=2.5):
    """Logits, and labels that are drawn at a temperature; x @ identity = logits."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(examples, 4)).astype("float32") * 3
    p = special.softmax(logits / temperature, axis=1)
    y = np.array([rng.choice(4, p=row) for row in p])
    return logits, y


def identity(activation=None):
    return linear(np.eye(4), np.zeros(4), activation)


def nll(logits, y, temperature):
    logs = special.log_softmax(np.asarray(logits, "float64") / temperature, axis=1)
    return -np.mean(logs[np.arange(len(y)), y])


class TestSearch:
    @pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
    def test_is_the_minimum_that_scipy_finds(self, scale):
        logits, y = overconfident_case()
        found = best_temperature(scale * logits.astype("float64"), y)
        expected = optimize.minimize_scalar(
            lambda log: nll(scale * logits, y, np.exp(log)),
            bounds=(-9, 9),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert found == pytest.approx(np.exp(expected.x), rel=1e-5)

    def test_labels_drawn_at_a_temperature_give_it_back(self):
        logits, y = overconfident_case(examples=20_000)
        # By the curvature of the likelihood, the deviation is about 0.02.
        found = best_temperature(logits.astype("float64"), y)
        assert found == pytest.approx(2.5, abs=0.1)
        assert best_temperature(logits / found, y) == pytest.approx(1.0, rel=1e-6)

    def test_constant_odds_in_closed_form(self):
        """A share of 3/4 wants the log odds log 3."""
        logits = np.tile([5.0, 0.0], (4, 1))
        found = best_temperature(logits, np.array([0, 0, 0, 1]))
        assert found == pytest.approx(5.0 / np.log(3.0), rel=1e-12)


class TestModel:
    def test_of_logits(self):
        x, y = overconfident_case()
        scaled = mh.temperature_scaling(identity(), x, y, from_logits=True)
        assert scaled.temperature == pytest.approx(
            best_temperature(x.astype("float64"), y), rel=1e-5
        )
        expected = special.softmax(x / scaled.temperature, axis=1)
        np.testing.assert_allclose(numpy(scaled(x)), expected, atol=1e-6)

    def test_probabilities_and_logits_give_the_same(self):
        x, y = overconfident_case()
        first = mh.temperature_scaling(identity(), x, y, from_logits=True)
        second = mh.temperature_scaling(identity("softmax"), x, y)
        assert second.temperature == pytest.approx(first.temperature, rel=1e-4)
        np.testing.assert_allclose(
            first.predict(x, verbose=0), second.predict(x, verbose=0), atol=1e-5
        )

    @pytest.mark.parametrize("from_logits", [True, False])
    def test_of_one_column(self, from_logits):
        activation = None if from_logits else "sigmoid"
        layer = keras.layers.Dense(1, activation=activation)
        model = keras.Sequential([keras.Input((1,)), layer])
        model.set_weights([np.array([[1.0]]), np.zeros(1)])
        x = np.full((4, 1), 5.0)
        scaled = mh.temperature_scaling(model, x, [1, 1, 1, 0], from_logits=from_logits)
        assert scaled.temperature == pytest.approx(5.0 / np.log(3.0), rel=1e-4)
        np.testing.assert_allclose(numpy(scaled(x)), np.full((4, 1), 0.75), rtol=1e-4)

    def test_of_an_ensemble_scales_the_weighted_mean(self):
        x, y = overconfident_case()
        ensemble = mh.Ensemble(identity(), 2, "softmax")
        kernels = np.stack([np.eye(4), 0.5 * np.eye(4)])
        ensemble.set_members([kernels, np.zeros((2, 4))], [0.25, 0.75])
        scaled = mh.temperature_scaling(ensemble, x, y)
        mean = 0.25 * special.softmax(x, 1) + 0.75 * special.softmax(0.5 * x, 1)
        temperature = best_temperature(np.log(mean.astype("float64")), y)
        assert scaled.temperature == pytest.approx(temperature, rel=1e-4)
        expected = special.softmax(np.log(mean) / temperature, axis=1)
        np.testing.assert_allclose(scaled.predict(x, verbose=0), expected, atol=1e-5)

    def test_a_classifier_takes_the_place_of_a_model(self):
        x, y = overconfident_case()
        classifier = mh.Classifier(identity(), from_logits=True)
        first = mh.temperature_scaling(classifier, x, y)
        second = mh.temperature_scaling(identity(), x, y, from_logits=True)
        assert first.temperature == second.temperature
        with pytest.raises(ValueError, match="`from_logits` and `batch_size`"):
            mh.temperature_scaling(classifier, x, y, from_logits=True)

    def test_evaluate_and_attacks_take_it(self):
        x, y = overconfident_case()
        model = identity("softmax")
        scaled = mh.temperature_scaling(model, x, y)
        models = {"network": model, "scaled": scaled}
        table = mh.evaluate(models, x, y, ood=0.1 * x)
        accuracy, nats = table.column("accuracy"), table.column("nll")
        assert accuracy[0] == accuracy[1] and nats[1] < nats[0] - 0.2
        assert nats[1] == pytest.approx(nll(x, y, scaled.temperature), rel=1e-5)
        assert table.column("adaptive_ece")[1] < 0.5 * table.column("adaptive_ece")[0]
        # A temperature changes no sign of a gradient.
        moved = [
            mh.adversarial.fgsm(m, x[:20], 0.1, clip=None) for m in models.values()
        ]
        np.testing.assert_allclose(moved[0], moved[1], atol=1e-6)

    def test_survives_saving(self, tmp_path):
        x, y = overconfident_case()
        ensemble = mh.Ensemble(identity(), 2, "softmax")
        kernels = np.stack([np.eye(4), 0.5 * np.eye(4)])
        ensemble.set_members([kernels, np.zeros((2, 4))], [0.25, 0.75])
        for model in (identity("softmax"), ensemble):
            scaled = mh.temperature_scaling(model, x, y)
            scaled.save(tmp_path / "scaled.keras")
            loaded = keras.saving.load_model(tmp_path / "scaled.keras")
            assert type(loaded) is mh.TemperatureScaled
            assert loaded.temperature == scaled.temperature
            np.testing.assert_allclose(
                loaded.predict(x, verbose=0), scaled.predict(x, verbose=0), atol=1e-6
            )

    def test_dropout_is_inactive(self):
        stack = [keras.layers.Dropout(0.5), keras.layers.Dense(4, "softmax")]
        model = keras.Sequential([keras.Input((4,)), *stack])
        scaled = mh.TemperatureScaled(model, 2.0)
        x = np.ones((3, 4), "float32")
        first = numpy(scaled(x, training=True))
        np.testing.assert_array_equal(first, numpy(scaled(x)))


def test_a_model_without_errors_or_worse_than_chance_has_no_best_temperature():
    x, y = overconfident_case()
    with pytest.raises(ValueError, match="better than chance"):
        best_temperature(x.astype("float64"), (y + 1) % 4)
    with pytest.raises(ValueError, match="classifies wrongly"):
        mh.temperature_scaling(identity(), x, x.argmax(axis=1), from_logits=True)


def test_a_sigmoid_that_rounds_to_one_has_the_resolution_of_float32():
    """A logit of 18 for the wrong class costs 18 nats, and not 87."""
    x, y = np.array([[18.0], [-18.0]], "float32"), np.array([0, 1])
    for activation in ("sigmoid", None):
        model = linear(np.ones((1, 1)), np.zeros(1), activation)
        classifier = mh.Classifier(model, from_logits=activation is None)
        for row in ([0], [1]):
            p = classifier.probabilities(x[row])
            assert mh.metrics.nll(p, y[row]) == pytest.approx(18.0, abs=0.7)
    cooled = mh.TemperatureScaled(linear([[1.0]], [0.0], "sigmoid"), 2.0)
    found = numpy(cooled(x))[:, 0]
    np.testing.assert_allclose(found, special.expit([9.0, -9.0]), rtol=0.5)
    assert 1e-5 < 1.0 - found[0] < 1e-3
