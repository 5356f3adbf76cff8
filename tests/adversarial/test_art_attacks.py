"""Attacks of the Adversarial Robustness Toolbox on its estimators, beside ours."""

import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.adversarial import art_classifier
from tests.support import art_checks
from tests.support.art_checks import APGD_BALLS
from tests.support.art_checks import BALLS
from tests.support.art_checks import apgd_of_art
from tests.support.art_checks import check_apgd
from tests.support.art_checks import check_fgsm
from tests.support.art_checks import check_pgd
from tests.support.art_checks import check_square
from tests.support.art_checks import evasion
from tests.support.art_checks import fooled
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.library_tools import EPSILON

cases = art_checks.cases
trained = art_checks.trained
misled_by_art = art_checks.misled_by_art


def test_fgsm_is_that_of_art(trained):
    check_fgsm(trained)


@pytest.mark.parametrize("ball", BALLS, ids=lambda ball: ball[0])
def test_pgd_is_that_of_art(trained, ball):
    check_pgd(trained, *ball)


@pytest.mark.parametrize("network", [0, 1, 2])
@pytest.mark.parametrize("ball", APGD_BALLS, ids=["linf", "l2", "l2-limits"])
def test_auto_pgd_agrees_with_that_of_art(cases, network, ball):
    check_apgd(cases[network], *ball)


def test_square_misleads_as_many_as_that_of_art(trained, misled_by_art):
    assert 40 < misled_by_art < 70
    check_square(trained, misled_by_art)


@pytest.mark.parametrize(
    "make, images",
    [
        (lambda e: evasion.DeepFool(e, batch_size=64, max_iter=20, verbose=False), 64),
        (
            lambda e: evasion.DeepFool(
                e, batch_size=64, max_iter=20, nb_grads=3, verbose=False
            ),
            64,
        ),
        (
            lambda e: evasion.HopSkipJump(
                e, max_iter=2, max_eval=50, init_eval=10, verbose=False
            ),
            3,
        ),
    ],
    ids=["deepfool", "deepfool-3-classes", "hop-skip-jump"],
)
def test_attacks_that_look_for_the_nearest_image_run(trained, make, images):
    """They mislead nearly all images, by a change that is not large."""
    classifier, estimator, x, y = trained
    right = np.flatnonzero(~fooled(classifier, x, y))[:images]
    moved = make(estimator).generate(x[right], y=y[right])
    assert fooled(classifier, moved, y[right]).mean() > 0.9
    lengths = np.linalg.norm((moved - x[right]).reshape(images, -1), axis=1)
    assert 0.0 < np.median(lengths) < (1.0 if images > 3 else 4.0)


def auto_attack(estimator, attacks):
    options = {"eps": EPSILON, "eps_step": 2.0 * EPSILON, "batch_size": 256}
    return evasion.AutoAttack(estimator, attacks=attacks, **options)


def test_auto_attack_takes_a_list_of_attacks(trained):
    pytest.importorskip("multiprocess")
    classifier, estimator, x, y = trained
    square = evasion.SquareAttack(estimator, eps=EPSILON, max_iter=10, verbose=False)
    attack = auto_attack(estimator, [apgd_of_art(estimator, steps=10), square])
    np.random.seed(0)
    moved = attack.generate(x, y=y)
    ours = mh.adversarial.apgd(classifier, x, EPSILON, y=y, steps=10)
    counts = [fooled(classifier, points, y).sum() for points in (moved, ours)]
    assert abs(counts[0] - counts[1]) <= 3
    assert np.abs(moved - x).max() <= EPSILON + 1e-6


def test_auto_attack_without_a_list_does_not_know_the_estimator(trained):
    """As `docs/evaluation.md` says."""
    with pytest.raises(ValueError, match="loss type cross_entropy is not supported"):
        auto_attack(trained[1], None)


def test_an_ensemble_is_attacked_as_one_model():
    x, y, *first = linear_case()
    _, _, *second = linear_case(seed=1)
    ensemble = mh.Ensemble(linear(*first, None), 2, "softmax")
    pairs = zip(first, second, strict=True)
    ensemble.set_members([np.stack(pair) for pair in pairs], [0.25, 0.75])
    ours = mh.adversarial.fgsm(ensemble, x, 0.1, y=y)
    attack = evasion.FastGradientMethod(art_classifier(ensemble), eps=0.1)
    np.testing.assert_allclose(attack.generate(x, y=y), ours, rtol=0.0, atol=1e-6)
