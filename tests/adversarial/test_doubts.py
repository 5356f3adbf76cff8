"""Warnings under a table of attacks: masked gradients, weak attacks, random models."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import Classifier
from keras_mhmcmc import Ensemble
from keras_mhmcmc import TemperatureScaled
from keras_mhmcmc.adversarial import RobustnessTable
from keras_mhmcmc.adversarial import doubts
from keras_mhmcmc.adversarial import named_attacks
from tests.statistics.planting import wrap
from tests.support.doubt_checks import CONDITIONS
from tests.support.doubt_checks import check_an_ordinary_network_has_no_warning
from tests.support.doubt_checks import check_averaged_draws
from tests.support.doubt_checks import check_black_box
from tests.support.doubt_checks import check_corrected_predictions
from tests.support.doubt_checks import check_grey_inputs
from tests.support.doubt_checks import check_masked_gradients_are_found
from tests.support.doubt_checks import check_one_step
from tests.support.doubt_checks import check_random_predictions_are_found
from tests.support.doubt_checks import check_rising
from tests.support.doubt_checks import check_steps_that_are_too_short
from tests.support.doubt_checks import check_twice_the_steps
from tests.support.doubt_checks import check_zero_gradients_are_counted
from tests.support.doubtful_models import network
from tests.support.doubtful_models import random
from tests.support.doubtful_models import wine

# On all three backends.


@pytest.mark.filterwarnings("ignore:Argument .* has a gradient of zero")
@pytest.mark.parametrize(
    "check",
    [
        check_an_ordinary_network_has_no_warning,
        check_masked_gradients_are_found,
        check_zero_gradients_are_counted,
        check_random_predictions_are_found,
    ],
)
def test_warnings(check):
    check()


@pytest.mark.parametrize("check", CONDITIONS)
def test_conditions(check):
    check()


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


# Bugs that are planted, one at a time, and the checks that must fail for each.


def turned_tests(monkeypatch):
    wrap(monkeypatch, doubts, "tail", lambda real, *given: 1.0 - real(*given))


def gains_and_losses_swapped(monkeypatch):
    around = lambda real, gained, lost: real(lost, gained)
    wrap(monkeypatch, doubts, "sign_test", around)


def labels_shifted(monkeypatch):
    """The table watches other labels than those of its scores."""

    def around(real, self, name, attacks, given, labels, longer):
        labels = (labels + 1) % given.clean.shape[1]
        real(self, name, attacks, given, labels, longer)

    wrap(monkeypatch, doubts.Watch, "__init__", around)


def larger_strengths_forgotten(monkeypatch):
    wrap(monkeypatch, doubts, "grey_strength", lambda real, *given: 2.0 * real(*given))


def square_taken_for_an_attack_by_gradients(monkeypatch):
    names = ("fgsm", "pgd", "apgd", "square")
    monkeypatch.setattr(named_attacks, "BY_GRADIENTS", names)


def steps_not_doubled(monkeypatch):
    def around(real, self):
        found = real(self)
        return found and found._replace(twice=found.once)

    wrap(monkeypatch, doubts.Watch, "_repeated", around)


def nonzero_gradients_counted(monkeypatch):
    around = lambda real, name, gradients: real(name, gradients == 0)
    wrap(monkeypatch, doubts, "zero_gradients", around)


def same_random_numbers(monkeypatch):
    around = lambda real, self, x: self.probabilities(x)
    wrap(monkeypatch, Classifier, "redrawn", around)


def masks_drawn_anew(monkeypatch):
    monkeypatch.setattr("keras_mhmcmc.evaluation.classifier.MCDropout", Ensemble)


BUGS = {
    turned_tests: CONDITIONS[:5],
    gains_and_losses_swapped: [
        check_rising,
        check_one_step,
        check_steps_that_are_too_short,
    ],
    labels_shifted: [check_corrected_predictions, check_masked_gradients_are_found],
    larger_strengths_forgotten: [check_grey_inputs, check_masked_gradients_are_found],
    square_taken_for_an_attack_by_gradients: [
        check_black_box,
        check_masked_gradients_are_found,
    ],
    steps_not_doubled: [check_twice_the_steps],
    nonzero_gradients_counted: [
        check_an_ordinary_network_has_no_warning,
        check_zero_gradients_are_counted,
    ],
    same_random_numbers: [check_random_predictions_are_found],
    masks_drawn_anew: [check_averaged_draws],
}
PAIRS = [(plant, check) for plant, checks in BUGS.items() for check in checks]


@pytest.mark.filterwarnings("ignore:Argument .* has a gradient of zero")
@pytest.mark.parametrize("plant, check", PAIRS)
def test_a_planted_bug_is_found(plant, check, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
