"""Warnings under a table of attacks: masked gradients, weak attacks, random models."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import Classifier
from keras_mhmcmc import Ensemble
from keras_mhmcmc import MCDropout
from keras_mhmcmc import TemperatureScaled
from keras_mhmcmc.adversarial import RobustnessTable
from keras_mhmcmc.adversarial import apgd
from keras_mhmcmc.adversarial import curve
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import pgd
from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.adversarial import square
from keras_mhmcmc.adversarial.named_attacks import known
from tests.support.attack_tools import linear


@functools.cache
def wine():
    """Inputs of shape (178, 13) in [0, 1], labels, and the weights of two models."""
    datasets = pytest.importorskip("sklearn.datasets")
    linear_model = pytest.importorskip("sklearn.linear_model")
    neural_network = pytest.importorskip("sklearn.neural_network")
    x, y = datasets.load_wine(return_X_y=True)
    x = ((x - x.min(0)) / (x.max(0) - x.min(0))).astype("float32")
    flat = linear_model.LogisticRegression(C=10.0, max_iter=1000).fit(x, y)
    deep = neural_network.MLPClassifier(
        (16,), solver="lbfgs", alpha=0.1, random_state=0
    )
    deep.fit(x, y)
    weights = [flat.coef_.T, flat.intercept_]
    pairs = zip(deep.coefs_, deep.intercepts_, strict=True)
    return x, y, weights, [array for pair in pairs for array in pair]


def network():
    """An ordinary network that scikit-learn has trained."""
    hidden = keras.layers.Dense(16, "relu")
    layers = [hidden, keras.layers.Dense(3, "softmax")]
    model = keras.Sequential([keras.Input((13,)), *layers])
    model.set_weights(wine()[3])
    return model


def misleading():
    """A linear model that rounds its inputs, with a small gradient to the wrong side.

    The linear part that is not rounded is too small to change the predictions.
    """
    inputs = keras.Input((13,))
    logits = keras.layers.Dense(3)
    steps = ops.round(16.0 * inputs) / 16.0  # without a gradient
    model = keras.Model(inputs, ops.softmax(logits(steps - 1e-4 * (inputs - steps))))
    logits.set_weights(wine()[2])
    return model


def saturated():
    """A linear model whose softmax is so steep that float32 has only 0 and 1."""
    weights, bias = wine()[2]
    return linear(20.0 * weights, 20.0 * bias)


class Noise(keras.layers.Layer):
    """Random numbers in inference mode, with a seed, or dropout as Keras has it."""

    def __init__(self, is_dropout):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(0)
        self.dropout = keras.layers.Dropout(0.2, seed=0) if is_dropout else None

    def call(self, inputs):
        if self.dropout is not None:
            return self.dropout(inputs, training=True)
        return inputs + keras.random.normal(
            ops.shape(inputs), 0.0, 0.5, seed=self.seeds
        )


def random(is_dropout=True):
    """A linear model whose inputs are noisy in inference mode.

    Its weights are small enough that no draw saturates the softmax.
    """
    layer = keras.layers.Dense(3, "softmax")
    model = keras.Sequential([keras.Input((13,)), Noise(is_dropout), layer])
    layer.set_weights([0.5 * array for array in wine()[2]])
    return model


IGNORED = pytest.mark.filterwarnings("ignore:Argument .* has a gradient of zero")
SMALL = (
    "fgsm",
    functools.partial(pgd, steps=5),
    functools.partial(apgd, steps=8),
    functools.partial(square, queries=40),
)


def table(model, strengths=(0.0, 0.1, 0.5), attack="fgsm", **options):
    x, y, *_ = wine()
    return robustness_curve({"m": model}, x, y, strengths, attack=attack, **options)


def one_warning(found, *words):
    """The only warning of a table, which has these words."""
    assert len(found.warnings) == 1, found
    text = found.warnings[0]
    for word in ("m: ", *words):
        assert word in text
    assert text.count(". ") == 0 and text.endswith(".")
    return text


# Of models.


def test_an_ordinary_network_has_no_warning():
    classifier = Classifier(network())
    for options in (
        {},
        {"true_label": False},
        {"attack": "pgd", "steps": 5},
        {"attack": "strongest", "attacks": SMALL},
    ):
        found = table(classifier, (0.0, 0.05, 0.1, 0.3, 0.5), **options)
        accuracies = found.column("m", "accuracy")
        assert accuracies[0] > 0.95 and accuracies[-1] < 0.1
        assert found.warnings == ()
        assert "Warning" not in str(found)
        assert found.to_pandas().attrs == {"warnings": []}


@IGNORED
def test_masked_gradients_are_found():
    found = table(misleading(), (0.0, 0.2), "strongest", attacks=SMALL)
    text = one_warning(found, "at strength 0.2", "that no attack by gradients")
    assert found.column("m", "accuracy")[1] < 0.9
    assert str(found).splitlines()[-1] == f"Warning: {text}"
    assert found.to_pandas().attrs == {"warnings": [text]}
    by_gradients = table(misleading(), (0.0, 0.5), "pgd", steps=5)
    one_warning(by_gradients, "at strength 0.5 the accuracy is ", "for 0.399 at most")


@IGNORED
def test_zero_gradients_are_counted():
    found = table(saturated(), (0.1,))
    x, y, *_ = wine()
    zeros = np.all(fgsm(saturated(), x, 0.1, y=y) == x, axis=1).sum()
    assert 20 < zeros < 170
    one_warning(found, f"{zeros} of 178 examples ({zeros / 178:.1%}) have a gradient")


def test_random_predictions_are_found():
    for is_dropout in (True, False):
        found = table(random(is_dropout), (0.02,))
        text = one_warning(found, "predictions are random", "mh.MCDropout")
        changed = int(text.split("the class of ")[1].split()[0])
        assert 5 < changed < 178


# The conditions themselves, of arrays that are written down, and of single models.


FGSM, SQUARE = known("attack", "fgsm", {}), known("attack", "square", {})
PGD = known("attack", "pgd", {"keep_strongest": False})


def share(count, size=200):
    """Booleans, the first `count` of which are True."""
    return np.arange(size) < count


def trial(epsilon, right=200, misled=()):
    return curve.Trial(epsilon, share(right), np.array(misled))


def test_chance():
    """50 of 200 labels are the most frequent one; 66 are above chance, at 0.7%."""
    labels = np.arange(200) % 4
    for right, warns in ((0, False), (50, False), (65, False), (66, True), (200, True)):
        found = curve.above_chance([trial(0.1), trial(0.5, right)], labels, 0.5)
        assert (found is not None) == warns, right
    text = curve.above_chance([trial(0.5, 66)], labels, 0.5)
    assert "accuracy is 0.330" in text
    assert curve.above_chance([trial(0.49, 200)], labels, 0.5) is None
    assert curve.above_chance([trial(0.5, 200)], 0 * labels, 0.5) is None


def test_black_box():
    """Two of 200 examples that only Square misleads may be chance (6%), three not."""
    none, trials = np.zeros(200, bool), []
    for count, warns in ((0, False), (2, False), (3, True)):
        trials.append(trial(0.1 + count, 200, [none, share(count)]))
        for attacks in ((FGSM, SQUARE), (PGD, SQUARE)):
            found = curve.black_box(attacks, trials)
            assert (found is not None) == warns
        assert curve.black_box((SQUARE, FGSM), trials) is None
        assert curve.black_box((SQUARE, SQUARE), trials) is None
    assert "at strength 3.1 Square misleads 3 of 200" in found


def test_rising():
    """Seven gains without a loss have a probability of 0.8%, and six of 1.6%."""
    for before, after, warns in (
        (150, 156, False),
        (150, 157, True),
        (157, 150, False),
    ):
        trials = [trial(0.2, after), trial(0.0, 100), trial(0.1, before)]
        found = curve.rising(trials)
        assert (found is not None) == warns, (before, after)
    trials = [trial(0.05), trial(0.1, 150), trial(0.2, 160), trial(0.3, 190)]
    text = curve.rising(trials)
    assert "from 0.750 at strength 0.1 to 0.950 at 0.3" in text


def test_one_step():
    """FGSM misleads six or seven examples more than PGD, and PGD no other."""
    for one, many, warns in ((56, 50, False), (57, 50, True), (50, 57, False)):
        trials = [trial(0.1, 200, [share(many), share(one)])]
        found = curve.weaker_than_one_step((PGD, FGSM), trials)
        assert (found is not None) == warns, (one, many)
        assert curve.weaker_than_one_step((SQUARE, FGSM), trials) is None
    trials = [trial(0.1, 200, [share(0), share(200)])]
    text = curve.weaker_than_one_step((PGD, FGSM), trials)
    assert "FGSM misleads 200 of 200 examples, and PGD only 0" in text


def test_tail():
    stats = pytest.importorskip("scipy.stats")
    for count, size, p in ((0, 5, 0.3), (3, 9, 0.5), (9, 9, 0.1), (120, 1000, 0.1)):
        exact = stats.binom.sf(count - 1, size, p)
        assert curve.tail(count, size, p) == pytest.approx(exact, rel=1e-9)
    assert curve.tail(10, 9, 0.5) == 0.0
    assert curve.tail(9, 9, 1.0) == 1.0


def threshold():
    """A model that predicts class 1 of inputs (n, 1) above 0.5."""
    return linear([[-20.0, 20.0]], [10.0, -10.0])


def test_corrected_predictions():
    """What an attack on the model's own predictions corrects is no failure of it.

    At the strength 0.2 the attack turns the 20 predictions that are wrong.
    """
    x = np.linspace(0.05, 0.95, 120).astype("float32")[:, None]
    y = (x[:, 0] > 0.5).astype(int)
    y[:20] = 1

    def attack(classifier, x, epsilon, *, y, clip):
        is_turned = (np.arange(len(x)) < 20) & (epsilon > 0.15)
        return np.where(is_turned[:, None], 1.0, x)

    curve = functools.partial(robustness_curve, {"m": threshold()}, x, y, [0.1, 0.2])
    own = curve(attack=attack, true_label=False)
    np.testing.assert_allclose(own.column("m", "accuracy"), [100 / 120, 1.0])
    assert own.warnings == ()
    one_warning(curve(attack=attack), "rises from 0.833 at strength 0.1 to 1.000")


def test_steps_that_are_too_short():
    """FGSM is computed beside PGD, unless its point is one of PGD's."""
    options = {"attack": "pgd", "steps": 2, "step_size": 1e-3, "random_start": False}
    found = table(network(), (0.0, 0.2), keep_strongest=False, **options)
    one_warning(found, "one step of FGSM misleads", "and PGD only")
    assert table(network(), (0.0, 0.2), **options).warnings == ()


def test_twice_the_steps():
    """Seven gains, or losses, without another have a probability of 0.8%."""
    for once, twice, warns in (
        (50, 56, False),
        (50, 57, True),
        (56, 50, False),
        (57, 50, True),
    ):
        found = curve.twice_the_steps("PGD", 0.1, share(once), share(twice))
        assert (found is not None) == warns, (once, twice)
        assert found is None or ("too few steps" in found) == (twice > once)
    options = {"step_size": 0.05, "norm": "l2", "random_start": False}
    options["keep_strongest"] = False
    strengths = (0.0, 0.1, 0.6, 1.2)
    found = table(network(), strengths, "pgd", steps=5, **options)
    x, y, *_ = wine()
    numbers = []
    for steps in (5, 10):
        moved = pgd(network(), x, 0.6, y=y, steps=steps, **options)
        prediction = np.argmax(network().predict(moved, verbose=0), axis=1)
        numbers.append(int(np.sum(prediction != y)))
    text = f"strength 0.6 PGD misleads {numbers[0]} of 178 examples, and with twice "
    one_warning(found, text + f"the steps {numbers[1]}, so it has too few steps")


def test_grey_inputs():
    """In an L2 ball, grey is as far as half the range times the root of the numbers."""
    norms = [known("attack", "pgd", {"norm": norm}) for norm in ("linf", "l2")]
    far = 0.5 * 13**0.5
    assert curve.grey_strength(norms[:1], (13,), (0.0, 1.0)) == 0.5
    assert curve.grey_strength(norms[1:], (13,), (0.0, 1.0)) == far
    assert curve.grey_strength(norms, (13,), (-1.0, 3.0)) == 2.0
    assert curve.grey_strength(norms, (13,), None) == np.inf
    own = [known("attack", lambda *_, **__: None, {})]
    assert curve.grey_strength(own, (13,), (0.0, 1.0)) == np.inf


def test_what_is_known():
    around = functools.partial(functools.partial(apgd, norm="l2"), loss="margin")
    found = known("attack", around, {})
    assert found.name == "apgd" and found.norm == "l2" and not found.is_named
    assert known("attack", "apgd_margin", {}).is_iterative
    assert FGSM.is_by_gradients and not FGSM.is_iterative
    assert not SQUARE.is_by_gradients


def test_averaged_draws():
    """The masks of `MCDropout` are fixed, and an ensemble draws nothing."""
    model = keras.Sequential(
        [keras.Input((13,)), keras.layers.Dropout(0.3), keras.layers.Dense(3)]
    )
    model.set_weights(wine()[2])
    ensemble = Ensemble(linear(*wine()[2], None), 2, "softmax")
    ensemble.set_members([np.stack([part, part]) for part in wine()[2]], [0.5, 0.5])
    for averaged in (MCDropout(model, 4, "softmax"), ensemble):
        assert table(averaged, (0.02,)).warnings == ()
        assert table(averaged, (0.02,), member=0).warnings == ()


def test_a_member():
    """An attack on one member, here the opposite, need not mislead the ensemble."""
    weights, bias = wine()[2]
    ensemble = Ensemble(linear(weights, bias, None), 2, "softmax")
    parts = [np.stack([part, -0.01 * part]) for part in (weights, bias)]
    ensemble.set_members(parts, [0.5, 0.5])
    found = table(ensemble, (0.5,), member=1)
    assert found.column("m", "accuracy")[0] > 0.9
    assert found.warnings == ()


def test_random_numbers_are_drawn_anew_and_the_state_stays():
    model, (x, *_) = random(is_dropout=False), wine()
    classifier = Classifier(model)
    before = [np.array(ops.convert_to_numpy(v.value)) for v in model.variables]
    first, second = classifier.probabilities(x), classifier.redrawn(x)
    assert np.abs(first - second).max() > 0.1
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable.value), value)
    fixed = Classifier(network())
    np.testing.assert_array_equal(fixed.redrawn(x), fixed.probabilities(x))


def test_the_random_numbers_of_members_are_drawn_anew():
    model, (x, *_) = random(is_dropout=False), wine()
    ensemble = Ensemble(model, 2, "linear")
    ensemble.set_members([np.stack([w] * 2) for w in model.get_weights()], [1, 1])
    for inner in (ensemble, TemperatureScaled(ensemble, 1.0)):
        classifier = Classifier(inner)
        first, second = classifier.probabilities(x), classifier.redrawn(x)
        assert np.abs(first - second).max() > 0.1
        np.testing.assert_array_equal(classifier.probabilities(x), first)


def test_a_table_keeps_its_warnings():
    row = {"model": "a", "epsilon": 0.1, "accuracy": 0.5, "nll": 1.0, "entropy": 0.1}
    found = RobustnessTable([row], warnings=["a: first.", "b: second."])
    assert found.warnings == ("a: first.", "b: second.")
    below = str(found).splitlines()[-2:]
    assert below == ["Warning: a: first.", "Warning: b: second."]
    assert RobustnessTable([row]).warnings == ()
    for wrong in ("text", [1], None):
        with pytest.raises(ValueError, match="`warnings` must be a list or tuple"):
            RobustnessTable([row], warnings=wrong)
