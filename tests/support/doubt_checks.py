"""Checks of the warnings under a table of attacks: a planted bug makes some fail."""

import functools

import keras
import numpy as np
import pytest

from keras_mhmcmc import Classifier
from keras_mhmcmc import Ensemble
from keras_mhmcmc import MCDropout
from keras_mhmcmc.adversarial import apgd
from keras_mhmcmc.adversarial import doubts
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import named_attacks
from keras_mhmcmc.adversarial import pgd
from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.adversarial import square
from tests.support.attack_tools import linear
from tests.support.doubtful_models import misleading
from tests.support.doubtful_models import network
from tests.support.doubtful_models import random
from tests.support.doubtful_models import saturated
from tests.support.doubtful_models import wine

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


def check_an_ordinary_network_has_no_warning():
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


def check_masked_gradients_are_found():
    found = table(misleading(), (0.0, 0.2), "strongest", attacks=SMALL)
    text = one_warning(found, "at strength 0.2", "that no attack by gradients")
    assert found.column("m", "accuracy")[1] < 0.9
    assert str(found).splitlines()[-1] == f"Warning: {text}"
    assert found.to_pandas().attrs == {"warnings": [text]}
    by_gradients = table(misleading(), (0.0, 0.5), "pgd", steps=5)
    one_warning(by_gradients, "at strength 0.5 the accuracy is ", "for 0.399 at most")


def check_zero_gradients_are_counted():
    found = table(saturated(), (0.1,))
    x, y, *_ = wine()
    zeros = np.all(fgsm(saturated(), x, 0.1, y=y) == x, axis=1).sum()
    assert 20 < zeros < 170
    one_warning(found, f"{zeros} of 178 examples ({zeros / 178:.1%}) have a gradient")


def check_random_predictions_are_found():
    for is_dropout in (True, False):
        found = table(random(is_dropout), (0.02,))
        text = one_warning(found, "predictions are random", "mh.MCDropout")
        changed = int(text.split("the class of ")[1].split()[0])
        assert 5 < changed < 178


# The conditions themselves, of arrays that are written down, and of single models.


FGSM = named_attacks.known("fgsm", {})
PGD = named_attacks.known("pgd", {"keep_strongest": False})
SQUARE = named_attacks.known("square", {})


def share(count, size=200):
    """Booleans, the first `count` of which are True."""
    return np.arange(size) < count


def study(trials, attacks=(FGSM,), labels=None, grey_from=0.5):
    labels = np.arange(200) % 4 if labels is None else labels
    return doubts.Study("m", attacks, trials, labels, share(200), grey_from)


def trial(epsilon, right=200, misled=()):
    return doubts.Trial(epsilon, share(right), np.array(misled))


def check_chance():
    """50 of 200 labels are the most frequent one; 66 are above chance, at 0.7%."""
    for right, warns in ((0, False), (50, False), (65, False), (66, True), (200, True)):
        found = doubts.above_chance(study([trial(0.1), trial(0.5, right)]))
        assert (found is not None) == warns, right
    assert "accuracy is 0.330" in doubts.above_chance(study([trial(0.5, 66)]))
    assert doubts.above_chance(study([trial(0.49, 200)])) is None
    one_label = study([trial(0.5, 200)], labels=np.zeros(200, int))
    assert doubts.above_chance(one_label) is None


def check_black_box():
    """Two of 200 examples that only Square misleads may be chance (6%), three not."""
    none, trials = np.zeros(200, bool), []
    for count, warns in ((0, False), (2, False), (3, True)):
        trials.append(trial(0.1 + count, 200, [none, share(count)]))
        for attacks in ((FGSM, SQUARE), (PGD, SQUARE)):
            found = doubts.black_box(study(trials, attacks))
            assert (found is not None) == warns
        assert doubts.black_box(study(trials, (SQUARE, FGSM))) is None
        assert doubts.black_box(study(trials, (SQUARE, SQUARE))) is None
    assert "at strength 3.1 Square misleads 3 of 200" in found


def check_rising():
    """Seven gains without a loss have a probability of 0.8%, and six of 1.6%."""
    for before, after, warns in (
        (150, 156, False),
        (150, 157, True),
        (157, 150, False),
    ):
        trials = [trial(0.2, after), trial(0.0, 100), trial(0.1, before)]
        found = doubts.rising(study(trials))
        assert (found is not None) == warns, (before, after)
    trials = [trial(0.05), trial(0.1, 150), trial(0.2, 160), trial(0.3, 190)]
    text = doubts.rising(study(trials))
    assert "from 0.750 at strength 0.1 to 0.950 at 0.3" in text


def check_one_step():
    """FGSM misleads six or seven examples more than PGD, and PGD no other."""
    for one, many, warns in ((56, 50, False), (57, 50, True), (50, 57, False)):
        trials = [trial(0.1, 200, [share(many), share(one)])]
        found = doubts.weaker_than_one_step(study(trials, (PGD, FGSM)))
        assert (found is not None) == warns, (one, many)
        assert doubts.weaker_than_one_step(study(trials, (SQUARE, FGSM))) is None
    trials = [trial(0.1, 200, [share(0), share(200)])]
    text = doubts.weaker_than_one_step(study(trials, (PGD, FGSM)))
    assert "FGSM misleads 200 of 200 examples, and PGD only 0" in text


def check_tail():
    stats = pytest.importorskip("scipy.stats")
    for count, size, p in ((0, 5, 0.3), (3, 9, 0.5), (9, 9, 0.1), (120, 1000, 0.1)):
        exact = stats.binom.sf(count - 1, size, p)
        assert doubts.tail(count, size, p) == pytest.approx(exact, rel=1e-9)
    assert doubts.tail(10, 9, 0.5) == 0.0
    assert doubts.tail(9, 9, 1.0) == 1.0


def threshold():
    """A model that predicts class 1 of inputs (n, 1) above 0.5."""
    return linear([[-20.0, 20.0]], [10.0, -10.0])


def check_corrected_predictions():
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


def check_steps_that_are_too_short():
    """FGSM is computed beside PGD, unless its point is one of PGD's."""
    options = {"attack": "pgd", "steps": 2, "step_size": 1e-3, "random_start": False}
    found = table(network(), (0.0, 0.2), keep_strongest=False, **options)
    one_warning(found, "one step of FGSM misleads", "and PGD only")
    assert table(network(), (0.0, 0.2), **options).warnings == ()


def check_twice_the_steps():
    """Seven gains, or losses, without another have a probability of 0.8%."""
    for once, twice, warns in (
        (50, 56, False),
        (50, 57, True),
        (56, 50, False),
        (57, 50, True),
    ):
        repeated = doubts.Repeated(0.1, share(once), share(twice))
        found = doubts.twice_the_steps(study([], (PGD,))._replace(repeated=repeated))
        assert (found is not None) == warns, (once, twice)
        assert found is None or ("too few steps" in found) == (twice > once)
    assert doubts.twice_the_steps(study([])) is None
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


def check_grey_inputs():
    """In an L2 ball, grey is as far as half the range times the root of the numbers."""
    norms = [named_attacks.known("pgd", {"norm": norm}) for norm in ("linf", "l2")]
    far = 0.5 * 13**0.5
    assert doubts.grey_strength(norms[:1], (13,), (0.0, 1.0)) == 0.5
    assert doubts.grey_strength(norms[1:], (13,), (0.0, 1.0)) == far
    assert doubts.grey_strength(norms, (13,), (-1.0, 3.0)) == 2.0
    assert doubts.grey_strength(norms, (13,), None) == np.inf
    own = [named_attacks.known(lambda *_, **__: None, {})]
    assert doubts.grey_strength(own, (13,), (0.0, 1.0)) == np.inf


def check_what_is_known():
    around = functools.partial(functools.partial(apgd, norm="l2"), loss="margin")
    assert named_attacks.known(around, {}).name == "apgd"
    assert named_attacks.known(around, {}).norm == "l2"
    assert named_attacks.known("apgd_margin", {}).is_iterative
    assert named_attacks.known("pgd", {}).finds_one_step
    assert not PGD.finds_one_step and PGD.is_iterative
    assert FGSM.is_by_gradients and not FGSM.is_iterative
    assert not SQUARE.is_by_gradients


def check_averaged_draws():
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


def check_a_member():
    """An attack on one member, here the opposite, need not mislead the ensemble."""
    weights, bias = wine()[2]
    ensemble = Ensemble(linear(weights, bias, None), 2, "softmax")
    parts = [np.stack([part, -0.01 * part]) for part in (weights, bias)]
    ensemble.set_members(parts, [0.5, 0.5])
    found = table(ensemble, (0.5,), member=1)
    assert found.column("m", "accuracy")[0] > 0.9
    assert found.warnings == ()


CONDITIONS = [
    check_chance,
    check_black_box,
    check_rising,
    check_one_step,
    check_tail,
    check_corrected_predictions,
    check_steps_that_are_too_short,
    check_twice_the_steps,
    check_grey_inputs,
    check_what_is_known,
    check_averaged_draws,
    check_a_member,
]
