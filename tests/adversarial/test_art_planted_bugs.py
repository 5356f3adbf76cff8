"""Bugs that are planted into estimators of ART: a check finds each."""

import numpy as np
import pytest

from keras_mhmcmc.adversarial import art_estimator
from tests.support import art_checks
from tests.support.art_checks import BALLS
from tests.support.art_checks import check_apgd
from tests.support.art_checks import check_class_gradients
from tests.support.art_checks import check_fgsm
from tests.support.art_checks import check_loss
from tests.support.art_checks import check_loss_gradient
from tests.support.art_checks import check_pgd
from tests.support.art_checks import check_predictions
from tests.support.attack_tools import softmax

cases = art_checks.cases
trained = art_checks.trained


Estimator = art_estimator._estimator_class()


def flipped(patch):
    real = Estimator.loss_gradient
    patch.setattr(Estimator, "loss_gradient", lambda *given: -real(*given))


def shifted(patch):
    real = Estimator._ascent
    around = lambda self, x, y: real(self, x, (np.asarray(y) + 1) % self.nb_classes)
    patch.setattr(Estimator, "_ascent", around)


def swapped(patch):
    real = Estimator.class_gradient

    def other(self, x, label=None):
        found = real(self, x, label)
        return np.swapaxes(found, 0, 1) if label is None else found

    patch.setattr(Estimator, "class_gradient", other)


def reversed_classes(patch):
    real = Estimator.class_gradient
    around = lambda self, x, label=None: real(self, x, label)[:, ::-1]
    patch.setattr(Estimator, "class_gradient", around)


def not_scaled(patch):
    patch.setattr(art_estimator, "SMALLEST_SHARE", 1.0)


def other_batches(patch):
    real = Estimator._filled_up
    around = lambda *given: [array[::-1] for array in real(*given)]
    patch.setattr(Estimator, "_filled_up", around)


def probabilities(patch):
    real = Estimator.predict
    patch.setattr(Estimator, "predict", lambda *given: softmax(real(*given)))


def linf_pgd(trained):
    check_pgd(trained, *BALLS[0])


def linf_apgd(trained):
    check_apgd(trained, *BALLS[0])


@pytest.mark.parametrize(
    "plant, check",
    [
        (flipped, check_loss_gradient),
        (flipped, check_fgsm),
        (flipped, linf_pgd),
        (flipped, linf_apgd),
        (shifted, check_loss),
        (shifted, check_loss_gradient),
        (shifted, check_fgsm),
        (shifted, linf_apgd),
        (swapped, check_class_gradients),
        (reversed_classes, check_class_gradients),
        (not_scaled, check_loss_gradient),
        (other_batches, check_predictions),
        (other_batches, check_loss_gradient),
        (probabilities, check_predictions),
    ],
)
def test_a_planted_bug_is_found(plant, check, trained, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        check(trained) if "trained" in check.__code__.co_varnames else check()
