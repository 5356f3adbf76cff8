"""PGD beside FGSM: in the ball, never weaker, the same from the same seed."""

import functools
import gc
import weakref

import keras
import numpy as np
import pytest

from keras_mhmcmc import Classifier
from keras_mhmcmc import Ensemble
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import pgd
from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.adversarial import square
from keras_mhmcmc.adversarial import strongest
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case


@pytest.fixture(scope="module")
def case():
    """A trained classifier of overlapping clusters in the unit cube, x and y."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 150)
    centres = rng.uniform(0.3, 0.7, size=(4, 6))
    x = np.clip(centres[y] + 0.12 * rng.normal(size=(150, 6)), 0.0, 1.0)
    layers = [keras.layers.Dense(16, "relu") for _ in range(2)]
    last = keras.layers.Dense(4, "softmax")
    model = keras.Sequential([keras.Input((6,)), *layers, last])
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy")
    model.fit(x, y, epochs=40, verbose=0)
    return Classifier(model, batch_size=64), x.astype("float32"), y


def strength(classifier, x, y):
    """Of each example whether it is classified otherwise than y, and the loss of y."""
    probabilities = classifier.probabilities(x)
    own = probabilities[np.arange(len(y)), y]
    return probabilities.argmax(axis=1) != y, -np.log(own)


class TestStrength:
    @pytest.mark.parametrize("epsilon", [0.02, 0.1])
    @pytest.mark.parametrize("options", [{}, {"random_start": False}, {"steps": 1}])
    def test_never_weaker_than_fgsm(self, case, epsilon, options):
        classifier, x, y = case
        one = strength(classifier, fgsm(classifier, x, epsilon, y=y), y)
        many = strength(classifier, pgd(classifier, x, epsilon, y=y, **options), y)
        assert np.all(many[0] >= one[0])
        same = many[0] == one[0]
        assert np.all(many[1][same] >= one[1][same] - 1e-5)

    def test_an_attack_in_the_wrong_direction_is_told(self, case):
        classifier, x, y = case

        def away(model, x, epsilon, *, y, clip):
            return 2 * x - pgd(model, x, epsilon, y=y, clip=None)

        options = {"true_label": True, "clip": (-1, 2)}
        tables = [
            robustness_curve({"m": classifier}, x, y, [0.0, 0.1], attack=a, **options)
            for a in (away, pgd, "pgd")
        ]
        losses = [table.column("m", "nll") for table in tables]
        assert losses[0][1] < losses[0][0] < losses[1][1]
        np.testing.assert_array_equal(losses[1], losses[2])
        assert tables[0].attack == "away"


class TestPoints:
    def test_the_start_is_drawn_from_the_seed(self, case):
        classifier, x, y = case
        options = {"steps": 1, "step_size": 0.0, "keep_strongest": False}
        first = pgd(classifier, x, 0.1, y=y, clip=None, **options)
        noise = (first - x) / 0.1
        assert noise.min() >= -1 - 1e-5 and noise.max() <= 1 + 1e-5
        assert abs(noise.mean()) < 4 * (1 / 3 / noise.size) ** 0.5
        np.testing.assert_allclose(noise.std(), 3**-0.5, rtol=0.05)
        other = Classifier(classifier.model, batch_size=17)
        again = pgd(other, x, 0.1, y=y, clip=None, **options)
        np.testing.assert_array_equal(first, again)
        seeded = pgd(classifier, x, 0.1, y=y, clip=None, seed=1, **options)
        assert np.mean(np.abs(seeded - first) > 1e-3) > 0.9


ALONE = {
    "fgsm": fgsm,
    "pgd": pgd,
    "square": functools.partial(square, queries=20),
    "strongest": lambda model, x, epsilon, y, member=None: strongest(
        model, x, y, epsilon, member=member, attacks=("fgsm", "pgd")
    ),
}


class TestMembers:
    """Attacks on an ensemble of two linear models."""

    def ensemble_case(self, activation="softmax"):
        x, y, *first = linear_case()
        _, _, *second = linear_case(seed=1)
        ensemble = Ensemble(linear(*first, None), 2, activation)
        pairs = zip(first, second, strict=True)
        ensemble.set_members([np.stack(pair) for pair in pairs], [0.25, 0.75])
        return x, y, (first, second), ensemble

    @pytest.mark.parametrize("attack", ALONE)
    def test_a_member_is_attacked_alone(self, attack):
        x, y, members, ensemble = self.ensemble_case()
        classifier, attack = Classifier(ensemble), ALONE[attack]
        whole = attack(classifier, x, 0.1, y=y)
        for index, parameters in enumerate(members):
            alone = attack(linear(*parameters), x, 0.1, y=y)
            moved = attack(classifier, x, 0.1, y=y, member=index)
            np.testing.assert_allclose(moved, alone, atol=1e-6)
            assert np.any(np.abs(moved - whole) > 0.01)

    def test_the_ensemble_is_scored(self):
        x, y, _, ensemble = self.ensemble_case()
        options = {"true_label": True}
        whole, member = (
            robustness_curve({"e": ensemble}, x, y, [0.0, 0.2], member=m, **options)
            for m in (None, 0)
        )
        losses = whole.column("e", "nll"), member.column("e", "nll")
        assert losses[0][0] == losses[1][0]
        assert losses[0][1] > losses[1][1] > losses[1][0]
        assert "by its member 0" in str(member)
        with pytest.raises(ValueError, match="`member` must be None if `attack` is"):
            robustness_curve({"e": ensemble}, x, y, [0.1], attack=fgsm, member=0)


class TestAbstention:
    def test_shares(self):
        """p = (1 - x, x) for x in the middle; the model abstains below 0.7."""
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.set_weights([np.ones((1, 1)), np.zeros(1)])
        x = np.array([[0.1], [0.25], [0.4], [0.6], [0.75], [0.9]])
        y = np.array([0, 1, 1, 1, 1, 0])
        models = {"identity": model}
        options = {"abstain_below": 0.7, "true_label": False}
        table = robustness_curve(models, x, y, [0.0, 0.1, 0.35], **options)
        # Clean, 0.4 and 0.6 abstain, 0.25 and 0.9 are wrong. All move to the middle:
        # by 0.1, 0.2 and 0.8 stay above. By 0.35 they are 0.45, 0.6, 0.75, 0.25, 0.4
        # and 0.55, of which 0.75 is right and 0.25 is not.
        abstained = table.column("identity", "abstained")
        np.testing.assert_allclose(abstained, [2 / 6, 4 / 6, 4 / 6])
        kept = table.column("identity", "kept_accuracy")
        np.testing.assert_allclose(kept, [2 / 4, 1 / 2, 1 / 2])
        text = str(table)
        assert "confidence < 0.7" in text and "accuracy if not" in text
        assert len(set(map(len, text.splitlines()[1:]))) == 1
        assert {"abstained", "kept_accuracy"} <= set(table.to_pandas().columns)

    def test_nothing_kept(self):
        model = linear(np.zeros((2, 4)), np.zeros(4))
        x = np.full((3, 2), 0.5)
        table = robustness_curve({"m": model}, x, [0] * 3, [0.0], abstain_below=0.5)
        assert table.column("m", "abstained") == 1.0
        assert np.isnan(table.column("m", "kept_accuracy")[0])
        assert str(table).endswith("—")


class TestGradientsThatHide:
    def test_saturated_probabilities_are_told(self):
        x, _, weights, bias = linear_case()
        model = linear(weights, bias + [300.0, 0.0, 0.0, 0.0, 0.0])
        message = r"`model` has a gradient of zero for 40 of 40 examples"
        with pytest.warns(UserWarning, match=message) as caught:
            moved = pgd(model, x, 0.1, y=[0] * 40)
        assert __file__ in [warning.filename for warning in caught]
        np.testing.assert_array_equal(moved, x)
        message = r"`models\['a'\]` has a gradient of zero"
        with pytest.warns(UserWarning, match=message) as caught:
            robustness_curve({"a": model}, x, [0] * 40, [0.1], attack="pgd")
        assert __file__ in [warning.filename for warning in caught]

    def test_gradients_that_are_not_finite_are_refused(self):
        inputs = keras.Input((2,))
        model = keras.Model(inputs, keras.ops.sqrt(inputs - 0.5))
        with pytest.raises(ValueError, match="must have finite gradients"):
            pgd(model, np.full((4, 2), 0.5), 0.1, y=[0] * 4, from_logits=True)


class TestClassifier:
    def test_is_compiled_once(self, case):
        classifier, x, y = case
        calls = []

        class Counting(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(4, activation="softmax")

            def call(self, inputs):
                calls.append(inputs.shape)
                return self.dense(inputs)

        (model := Counting())(x)
        reused = Classifier(model, batch_size=64)
        calls.clear()
        for epsilon in (0.1, 0.2):
            fgsm(reused, x, epsilon, y=y)
            pgd(reused, x, epsilon, y=y, steps=3)
        assert {shape[0] for shape in calls} == {64}
        if keras.backend.backend() != "torch":
            assert len(calls) == 3  # predictions, gradients, a step of PGD

    def test_keeps_no_model_alive(self, case):
        _, x, y = case
        model = keras.models.clone_model(case[0].model)
        reference = weakref.ref(model)
        pgd(model, x[:8], 0.1, y=y[:8], steps=1)
        del model
        gc.collect()
        assert reference() is None


def test_inputs_of_different_lengths_are_refused():
    for x in (((0, []), []), ([0.0], [0.0, 1.0])):
        with pytest.raises(ValueError, match="`x` must be an array of numbers"):
            Classifier(linear(np.eye(2, 3), np.zeros(3))).probabilities(x)


def test_an_attack_of_any_finite_strength_has_a_step():
    x = np.full((4, 2), 0.5, "float32")
    model = linear(np.eye(2, 3), np.zeros(3))
    moved = pgd(model, x, 2.5e38, y=[0] * 4, steps=1)
    assert np.isfinite(moved).all() and moved.min() >= 0.0 and moved.max() <= 1.0
