"""Checks of estimators of ART: each holds, and fails if a bug is planted."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.adversarial import art_classifier
from keras_mhmcmc.adversarial import balls
from tests.support.library_tools import EPSILON
from tests.support.library_tools import IMAGES
from tests.support.library_tools import Curved
from tests.support.library_tools import digits_network

evasion = pytest.importorskip("art.attacks.evasion")
art_apgd = pytest.importorskip("art.attacks.evasion.auto_projected_gradient_descent")
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


# Derivatives against float64.


def made(case, activation):
    options = {"from_logits": activation is None, "batch_size": 5}
    return art_classifier(case.model, **options)


def check_predictions(activation=None):
    case = Curved(activation)
    exact = case.z if activation is None else case.log_p
    np.testing.assert_allclose(made(case, activation).predict(case.x), exact, **CLOSE)


def check_loss(activation=None):
    case = Curved(activation)
    estimator = made(case, activation)
    rows = np.arange(len(case.y))
    exact = -case.log_p[rows, case.y]
    for y in (case.y, np.eye(5)[case.y]):
        np.testing.assert_allclose(estimator.compute_loss(case.x, y), exact, **CLOSE)
    for reduction, value in (("mean", exact.mean()), ("sum", exact.sum())):
        found = estimator.compute_loss(case.x, case.y, reduction=reduction)
        assert found.shape == ()
        np.testing.assert_allclose(found, value, **CLOSE)


def check_loss_gradient(activation=None):
    case = Curved(activation)
    exact = -case.of_log_p[np.arange(len(case.y)), case.y]
    for y in (case.y, np.eye(5)[case.y]):
        found = made(case, activation).loss_gradient(case.x, y)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, **CLOSE)


def check_class_gradients(activation=None):
    """As many classes as examples: swapped axes would have the same shape."""
    case = Curved(activation)
    exact = case.of_logits if activation is None else case.of_log_p
    estimator = made(case, activation)
    five = estimator.class_gradient(case.x[:5])
    assert five.shape == (5, 5, 8)
    np.testing.assert_allclose(five, exact[:5], **CLOSE)
    np.testing.assert_allclose(estimator.class_gradient(case.x), exact, **CLOSE)
    one = estimator.class_gradient(case.x, label=3)
    np.testing.assert_allclose(one, exact[:, 3:4], **CLOSE)
    for labels in (case.y, case.y.tolist()):
        found = estimator.class_gradient(case.x, label=labels)
        chosen = exact[np.arange(len(case.y)), case.y][:, None]
        np.testing.assert_allclose(found, chosen, **CLOSE)


# Attacks. A test file that takes a fixture names it: `trained = art_checks.trained`.


@pytest.fixture(scope="module")
def cases():
    """Of three networks: the classifier, its estimator, 200 images and labels."""

    def case(seed):
        model, x, y = digits_network(seed)
        classifier = mh.Classifier(model, from_logits=True)
        return classifier, art_classifier(classifier), x, y

    return [case(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def trained(cases):
    return cases[0]


def fooled(classifier, x, y):
    return classifier.probabilities(x).argmax(axis=1) != y


def check_fgsm(trained):
    classifier, estimator, x, y = trained
    ours = mh.adversarial.fgsm(classifier, x, EPSILON, y=y)
    theirs = evasion.FastGradientMethod(estimator, eps=EPSILON).generate(x, y=y)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-6)
    assert np.abs(ours - x).max() > 0.9 * EPSILON


# (norm, order, epsilon, clip). ART clips before it projects, and we after it. Only the
# L-infinity ball is then the same.
BALLS = [("linf", np.inf, EPSILON, (0.0, 1.0)), ("l2", 2, 0.4, None)]


def check_pgd(trained, norm, order, epsilon, clip):
    classifier, _, x, y = trained
    estimator = art_classifier(classifier, clip=clip)
    options = {"random_start": False, "keep_strongest": False}
    options |= {"norm": norm, "clip": clip}
    size = 0.25 * epsilon
    ours = mh.adversarial.pgd(
        classifier, x, epsilon, y=y, steps=8, step_size=size, **options
    )
    given = {"norm": order, "eps": epsilon, "eps_step": size, "max_iter": 8}
    attack = evasion.ProjectedGradientDescent(estimator, **given, verbose=False)
    theirs = attack.generate(x, y=y)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-6)
    step = mh.adversarial.pgd(
        classifier, x, epsilon, y=y, steps=1, step_size=size, **options
    )
    assert np.abs(theirs - step).max() > 0.01  # or the steps would not be tested


def apgd_of_art(estimator, norm=np.inf, epsilon=EPSILON, steps=30):
    options = {"norm": norm, "eps": epsilon, "eps_step": 2.0 * epsilon}
    options |= {"max_iter": steps, "nb_random_init": 1, "batch_size": 256}
    return evasion.AutoProjectedGradientDescent(estimator, **options, verbose=False)


APGD_BALLS = [*BALLS, ("l2", 2, 0.4, (0.0, 1.0))]
STARTS = (None, 0, 1)  # the clean images, and seeds of random starts


def check_apgd(case, norm, order, epsilon, clip, starts=STARTS):
    """Runs of both from the same points mislead the same images, but for two of 200.

    Both runs meet the same points up to the first checkpoint. There ART takes one more
    step before it looks back, counts the steps that raised the highest loss (the paper:
    the last loss), goes on with the momentum of an old step, and ends at its last point
    (`apgd`: at the strongest).
    """
    classifier, _, x, y = case
    estimator = art_classifier(classifier, clip=clip)
    right = ~fooled(classifier, x, y)  # ART attacks these only
    options = {"norm": norm, "clip": clip, "steps": 30}
    for seed in starts:
        start, options["random_start"] = x, seed is not None
        if seed is not None:
            options["seed"] = seed
            rng = np.random.default_rng(seed)
            start = balls.random_start(rng, x, epsilon, clip, norm)
        change = (start - x)[right].reshape(right.sum(), -1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(art_apgd, "random_sphere", lambda *_, change=change: change)
            theirs = apgd_of_art(estimator, order, epsilon).generate(x, y=y)
        ours = mh.adversarial.apgd(classifier, x, epsilon, y=y, **options)
        found = [fooled(classifier, points, y) for points in (ours, theirs)]
        assert np.sum(~right) + 40 < found[0].sum() < IMAGES - 40
        assert np.sum(found[0] != found[1]) <= 2
        assert np.sum(found[1] & ~found[0]) <= 1  # the strongest point is kept


QUERIES, RUNS = 100, 2


@pytest.fixture(scope="module")
def misled_by_art(trained):
    """How many of 200 images ART's Square attack misleads, the mean of two searches.

    ART never draws the last row and column. Here they are a border that the network
    does not see, so that it draws squares of 8 x 8 pixels, as we do.
    """
    classifier, _, x, y = trained
    border = keras.layers.Cropping2D(((0, 1), (0, 1)))
    layers = [keras.Input((9, 9, 1)), border, *classifier.model.layers]
    estimator = art_classifier(keras.Sequential(layers), from_logits=True)
    larger = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))
    options = {"eps": EPSILON, "max_iter": QUERIES, "p_init": 0.8 * 64 / 81}
    attack = evasion.SquareAttack(estimator, **options, verbose=False)
    counts = []
    for seed in range(RUNS):
        np.random.seed(seed)
        moved = attack.generate(larger.copy(), y=y)[:, :8, :8]
        counts.append(fooled(classifier, moved, y).sum())
    return np.mean(counts)


def check_square(trained, theirs):
    """The standard deviation of a count is 3: ART draws one place for all images."""
    classifier, _, x, y = trained
    counts = []
    for seed in range(RUNS):
        options = {"y": y, "queries": QUERIES + 1, "seed": seed}  # one is of stripes
        moved = mh.adversarial.square(classifier, x, EPSILON, **options)
        counts.append(fooled(classifier, moved, y).sum())
    assert abs(np.mean(counts) - theirs) <= 5.0
