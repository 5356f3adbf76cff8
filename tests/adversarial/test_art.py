"""Estimators of the Adversarial Robustness Toolbox: attacks, derivatives, refusals."""

import sys

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.adversarial import art_classifier
from keras_mhmcmc.adversarial import art_estimator
from keras_mhmcmc.adversarial import objective
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import softmax
from tests.support.library_tools import EPSILON
from tests.support.library_tools import IMAGES
from tests.support.library_tools import Curved
from tests.support.library_tools import digits_network

try:
    evasion = pytest.importorskip("art.attacks.evasion")
except NameError:  # another process has just written ART's first configuration
    evasion = pytest.importorskip("art.attacks.evasion")
art_apgd = pytest.importorskip("art.attacks.evasion.auto_projected_gradient_descent")
CLOSE = {"rtol": 2e-4, "atol": 2e-5}
ACTIVATIONS = pytest.mark.parametrize("activation", [None, "softmax"])


# Derivatives against float64.


def made(case, activation):
    options = {"from_logits": activation is None, "batch_size": 5}
    return art_classifier(case.model, **options)


@ACTIVATIONS
def test_predictions_of_float64(activation):
    case = Curved(activation)
    exact = case.z if activation is None else case.log_p
    np.testing.assert_allclose(made(case, activation).predict(case.x), exact, **CLOSE)


@ACTIVATIONS
def test_loss_of_float64(activation):
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


@ACTIVATIONS
def test_loss_gradient_of_float64(activation):
    case = Curved(activation)
    exact = -case.of_log_p[np.arange(len(case.y)), case.y]
    for y in (case.y, np.eye(5)[case.y]):
        found = made(case, activation).loss_gradient(case.x, y)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, **CLOSE)


@ACTIVATIONS
def test_class_gradients_of_float64(activation):
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


def test_fgsm_is_that_of_art(trained):
    classifier, estimator, x, y = trained
    ours = mh.adversarial.fgsm(classifier, x, EPSILON, y=y)
    theirs = evasion.FastGradientMethod(estimator, eps=EPSILON).generate(x, y=y)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-6)
    assert np.abs(ours - x).max() > 0.9 * EPSILON


# (norm, order, epsilon, clip). ART clips before it projects, and we after it. Only the
# L-infinity ball is then the same.
BALLS = [("linf", np.inf, EPSILON, (0.0, 1.0)), ("l2", 2, 0.4, None)]


@pytest.mark.parametrize("norm, order, epsilon, clip", BALLS, ids=["linf", "l2"])
def test_pgd_is_that_of_art(trained, norm, order, epsilon, clip):
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


@pytest.mark.parametrize("network", [0, 1, 2])
@pytest.mark.parametrize(
    "norm, order, epsilon, clip", APGD_BALLS, ids=["linf", "l2", "l2-limits"]
)
def test_auto_pgd_agrees_with_that_of_art(cases, network, norm, order, epsilon, clip):
    """Runs of both from the same points mislead the same images, but for two of 200.

    Both runs meet the same points up to the first checkpoint. There ART takes one more
    step before it looks back, counts the steps that raised the highest loss (the paper:
    the last loss), goes on with the momentum of an old step, and ends at its last point
    (`apgd`: at the strongest).
    """
    classifier, _, x, y = cases[network]
    estimator = art_classifier(classifier, clip=clip)
    right = ~fooled(classifier, x, y)  # ART attacks these only
    options = {"norm": norm, "clip": clip, "steps": 30}
    for seed in (None, 0, 1):  # the clean images, and seeds of random starts
        start, options["random_start"] = x, seed is not None
        if seed is not None:
            options["seed"] = seed
            rng = np.random.default_rng(seed)
            start = objective.random_start(rng, x, epsilon, clip, norm)
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


def misled_by_art(classifier, x, y, seed):
    """How many of 200 images ART's Square attack misleads.

    ART never draws the last row and column. Here they are a border that the network
    does not see, so that it draws squares of 8 x 8 pixels, as we do.
    """
    border = keras.layers.Cropping2D(((0, 1), (0, 1)))
    layers = [keras.Input((9, 9, 1)), border, *classifier.model.layers]
    estimator = art_classifier(keras.Sequential(layers), from_logits=True)
    larger = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))
    options = {"eps": EPSILON, "max_iter": QUERIES, "p_init": 0.8 * 64 / 81}
    attack = evasion.SquareAttack(estimator, **options, verbose=False)
    np.random.seed(seed)
    moved = attack.generate(larger.copy(), y=y)[:, :8, :8]
    return fooled(classifier, moved, y).sum()


def test_square_misleads_as_many_as_that_of_art(trained):
    """The standard deviation of a count is 3: ART draws one place for all images."""
    classifier, _, x, y = trained
    counts = []
    for seed in range(RUNS):
        options = {"y": y, "queries": QUERIES + 1, "seed": seed}  # one is of stripes
        moved = mh.adversarial.square(classifier, x, EPSILON, **options)
        ours = fooled(classifier, moved, y).sum()
        counts.append((ours, misled_by_art(classifier, x, y, seed)))
    ours, theirs = np.mean(counts, axis=0)
    assert 40 < theirs < 70 and abs(ours - theirs) <= 5.0


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


def test_the_mean_probability_of_an_ensemble_is_differentiated():
    x, y, *first = linear_case()
    _, _, *second = linear_case(seed=1)
    shares = np.array([0.25, 0.75])
    ensemble = mh.Ensemble(linear(*first, None), 2, "softmax")
    pairs = zip(first, second, strict=True)
    ensemble.set_members([np.stack(pair) for pair in pairs], shares)
    estimator = art_classifier(ensemble)

    p, slopes = 0.0, 0.0
    for share, (weights, bias) in zip(shares, (first, second), strict=True):
        weights = weights.astype("float64")
        own = softmax(x @ weights + bias)
        # d p_k / d x = p_k (w_k - sum_j p_j w_j), shape (n, C, features)
        slope = own[:, :, None] * (weights.T - (own @ weights.T)[:, None])
        p, slopes = p + share * own, slopes + share * slope
    exact = slopes / p[:, :, None]
    np.testing.assert_allclose(estimator.predict(x), np.log(p), **CLOSE)
    np.testing.assert_allclose(estimator.class_gradient(x), exact, **CLOSE)
    found = estimator.loss_gradient(x, y)
    np.testing.assert_allclose(found, -exact[np.arange(len(y)), y], **CLOSE)


def test_one_column_stands_for_two_classes():
    x, _, weights, bias = linear_case()
    model = linear(weights[:, :1], bias[:1], None)
    estimator = art_classifier(model, from_logits=True)
    assert estimator.nb_classes == 2
    z = x @ weights[:, :1] + bias[:1]
    both = np.concatenate([np.zeros_like(z), z], axis=1)
    np.testing.assert_allclose(estimator.predict(x), both, **CLOSE)
    gradients = estimator.class_gradient(x)
    np.testing.assert_array_equal(gradients[:, 0], 0.0)
    np.testing.assert_array_equal(estimator.class_gradient(x, label=0), 0.0)
    exact = np.broadcast_to(weights[:, 0], x.shape)
    np.testing.assert_allclose(gradients[:, 1], exact, **CLOSE)


def test_the_sign_remains_however_confident_the_model_is():
    case = Curved(scale=40.0)
    rows, y = np.arange(len(case.y)), case.z.argmax(axis=1)
    assert np.sum(case.p.max(axis=1).astype("float32") == 1.0) > 9
    others = case.z.copy()
    others[rows, y] = -np.inf
    mean = np.einsum("nc,ncd->nd", softmax(others), case.of_logits)
    exact = mean - case.of_logits[rows, y]  # of the log odds against y
    found = made(case, None).loss_gradient(case.x, y)
    np.testing.assert_array_equal(np.sign(found), np.sign(exact))


def test_weights_are_read_at_each_call():
    x, y, weights, bias = linear_case()
    model = linear(weights, bias, None)
    estimator = art_classifier(model, from_logits=True)
    first = estimator.predict(x), estimator.loss_gradient(x, y)
    model.set_weights([2.0 * weights, 2.0 * bias])
    np.testing.assert_allclose(estimator.predict(x), 2.0 * first[0], **CLOSE)
    assert np.abs(estimator.loss_gradient(x, y) - first[1]).max() > 0.1


@pytest.mark.parametrize("count, size", [(1, 1), (2, 2), (3, 4), (5, 8), (9, 9)])
def test_few_sizes_of_batches_are_compiled(count, size):
    sizes = []

    class Recording(keras.layers.Layer):
        def call(self, inputs):
            sizes.append(inputs.shape[0])
            return inputs

    model = keras.Sequential(
        [keras.Input((3,)), Recording(), keras.layers.Dense(2, "softmax")]
    )
    estimator = art_classifier(mh.Classifier(model, batch_size=8))
    sizes.clear()
    rows = np.random.default_rng(0).uniform(size=(count, 3))
    assert estimator.predict(rows).shape == (count, 2)
    assert estimator.loss_gradient(rows, [0] * count).shape == (count, 3)
    assert estimator.class_gradient(rows).shape == (count, 2, 3)
    assert set(sizes) <= {min(size, 8)}


def test_a_missing_package_is_named(monkeypatch):
    art_estimator._estimator_class.cache_clear()
    monkeypatch.setitem(sys.modules, "art.estimators", None)
    with pytest.raises(ImportError, match=r"pip install keras-mhmcmc\[art\]"):
        art_classifier(linear(np.eye(2), np.zeros(2)))


def test_training_is_refused(trained):
    estimator, x, y = trained[1:]
    with pytest.raises(NotImplementedError, match="Train with the `fit`"):
        estimator.fit(x, y)
    with pytest.raises(ValueError, match="takes no defences of ART"):
        estimator.set_params(clip_values=(0.0, 2.0))


class TestBadInput:
    def test_a_regression_is_refused(self):
        model = linear(np.full((3, 1), 2.0), np.zeros(1), None)
        with pytest.raises(ValueError, match="`model` has outputs that should be prob"):
            art_classifier(model)

    def test_a_model_that_is_not_built_is_refused(self):
        with pytest.raises(ValueError, match="`model` must be a `keras.Model` that is"):
            art_classifier(keras.Sequential([keras.layers.Dense(2)]))

    def test_a_model_without_gradient_is_refused(self):
        inputs = keras.Input((4,))
        outputs = keras.layers.Dense(2, activation="softmax")
        model = keras.Model(inputs, outputs(ops.round(inputs)))
        with pytest.raises(ValueError, match="`model` must have a gradient"):
            art_classifier(model).loss_gradient(np.full((3, 4), 0.7), [0, 1, 1])

    def test_a_shape_that_is_not_declared_must_be_given(self):
        class Own(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(2, activation="softmax")

            def call(self, inputs):
                return self.dense(inputs)

        (model := Own())(np.zeros((1, 3)))
        with pytest.raises(ValueError, match="`input_shape` must be"):
            art_classifier(model)
        art_classifier(model, input_shape=(3,))
        free = keras.Sequential(
            [
                keras.Input((None, 2)),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(2, activation="softmax"),
            ]
        )
        with pytest.raises(ValueError, match="`input_shape` must be"):
            art_classifier(free)
        art_classifier(free, input_shape=(5, 2))
        with pytest.raises(ValueError, match="must have the shape"):
            art_classifier(free, input_shape=(5, 3))


def test_bad_arrays_are_refused(trained):
    estimator, x, y = trained[1:]
    broken = x.copy()
    broken[0] = np.nan
    with pytest.raises(ValueError, match="`x` must be finite"):
        estimator.predict(broken)
    with pytest.raises(ValueError, match="`x` must be finite"):
        estimator.loss_gradient(broken, y)
    with pytest.raises(ValueError, match="`x` must have the shape"):
        estimator.class_gradient(x[:, :5])
    for wrong in (y + 5, np.full(IMAGES, -1), np.full(IMAGES, 0.5)):
        for method in (estimator.compute_loss, estimator.loss_gradient):
            with pytest.raises(ValueError, match=r"`y` must be integers in \[0, 10\)"):
                method(x, wrong)
    with pytest.raises(ValueError, match="`y` must have one label for each of 200"):
        estimator.loss_gradient(x, y[:5])


def test_a_model_without_gradient_is_searched_by_black_boxes():
    inputs = keras.Input((8, 8, 1))
    rounded = keras.layers.Flatten()(ops.round(4.0 * inputs) / 4.0)
    head = keras.layers.Dense(2)
    model = keras.Model(inputs, head(rounded))
    signs = np.where(np.arange(64) % 2, 1.0, -1.0)[:, None]
    head.set_weights([signs * [[1.0, -1.0]], np.array([0.5, 0.0])])
    estimator = art_classifier(model, from_logits=True)
    x = np.full((4, 8, 8, 1), 0.5, "float32")
    attack = evasion.SquareAttack(estimator, eps=0.3, max_iter=60, verbose=False)
    np.random.seed(0)
    moved = attack.generate(x.copy(), y=np.zeros(4, int))
    assert np.all(estimator.predict(x).argmax(axis=1) == 0)
    assert np.any(estimator.predict(moved).argmax(axis=1) == 1)


def test_one_example_without_a_gradient_does_not_stop_an_attack():
    """Attacks of ART may call with single examples. Here one is left of the ramp."""
    hidden = keras.layers.Dense(2, "relu")
    model = keras.Sequential([keras.Input((1,)), hidden, keras.layers.Dense(2)])
    ramp = [np.array([[1.0, 2.0]]), np.full(2, -0.1)]
    model.set_weights([*ramp, np.array([[1.0, -1.0], [0.5, 0.0]]), np.zeros(2)])
    estimator = art_classifier(model, from_logits=True)
    with pytest.warns(UserWarning, match="zero for 1 of 1 examples"):
        gradient = estimator.loss_gradient(np.array([[0.01]]), [0])
    np.testing.assert_array_equal(gradient, [[0.0]])
    attack = evasion.FastGradientMethod(estimator, eps=0.05, batch_size=1)
    x = np.array([[0.5], [0.01], [0.7]], "float32")
    with pytest.warns(UserWarning, match="zero for 1 of 1 examples"):
        moved = attack.generate(x, y=np.zeros(3, int))
    np.testing.assert_allclose(moved, [[0.45], [0.01], [0.65]], rtol=1e-5)
