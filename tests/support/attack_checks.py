"""Checks of attacks: each holds, and fails if the bug is planted that it is for."""

import functools

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import adversarial
from tests.oracles import auto_pgd
from tests.support.attack_tools import farthest
from tests.support.attack_tools import judged
from tests.support.attack_tools import lengths
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import two_classes

GRADIENT_ATTACKS = {
    "pgd": adversarial.pgd,
    "apgd": adversarial.apgd,
    "apgd margin": functools.partial(adversarial.apgd, loss="margin"),
}


def check_optimum_of_two_classes(attack, norm, activation="softmax"):
    """A linear margin is largest at a corner, or along the weights."""
    x, y, weights, bias, slope = two_classes()
    options = {"y": y, "norm": norm, "clip": None, "steps": 20}
    model = linear(weights, bias, activation)
    moved = attack(model, x, 0.1, from_logits=activation is None, **options)
    exact = farthest(x, y, slope, 0.1, norm)
    # sqrt: the margin is flat at the optimum of the L2 ball.
    np.testing.assert_allclose(moved, exact, atol=1e-6 if norm == "linf" else 2e-4)
    gained = (moved.astype("float64") - x) @ slope * np.where(y == 1, -1.0, 1.0)
    dual = np.abs(slope).sum() if norm == "linf" else np.linalg.norm(slope)
    np.testing.assert_allclose(gained, 0.1 * dual, rtol=2e-5)


def check_in_the_ball(attack, norm, clip=(0.25, 0.75), epsilon=0.3, **options):
    """The change is as long as it may be, not longer, and within the limits."""
    x, y, *parameters = linear_case()
    given = {"y": y, "norm": norm, "clip": clip, **options}
    moved = attack(linear(*parameters), x, epsilon, **given)
    low, high = clip or (-np.inf, np.inf)
    assert moved.dtype == np.float32 and moved.shape == x.shape
    assert moved.min() >= low and moved.max() <= high
    assert lengths(moved - x, norm).max() <= epsilon * (1 + 1e-5)
    assert lengths(moved - x, norm).max() > 0.9 * epsilon


def check_never_weaker_than_the_clean_input(attack, **options):
    """Also if steps are far too long."""
    x, y, weights, bias = linear_case()
    logits = lambda points: points @ weights + bias
    model = linear(weights, bias)
    fooled, loss = judged(attack(model, x, 0.3, y=y, **options), y, logits)
    clean_fooled, clean_loss = judged(x, y, logits)
    assert np.all(fooled >= clean_fooled)
    same = fooled == clean_fooled
    assert np.all(loss[same] >= clean_loss[same] - 1e-4)
    return fooled, loss


def check_a_curved_model_keeps_its_best():
    """Steps of PGD that jump over the top return what they have passed."""
    x, y, model, logits = curved_case()
    options = {"steps": 3, "step_size": 0.3, "random_start": False, "from_logits": True}
    fooled, loss = judged(adversarial.pgd(model, x, 0.3, y=y, **options), y, logits)
    one = judged(adversarial.fgsm(model, x, 0.3, y=y, from_logits=True), y, logits)
    last = adversarial.pgd(model, x, 0.3, y=y, keep_strongest=False, **options)
    last = judged(last, y, logits)
    for other in (one, last, judged(x, y, logits)):
        assert np.all(fooled >= other[0])
        same = fooled == other[0]
        assert np.all(loss[same] >= other[1][same] - 1e-4)
    assert np.any(last[1] < loss - 0.01)  # or nothing is kept


def curved_case(seed=0, classes=5):
    """Logits sin(6 x) W + b, whose gradients turn, and their function in float64."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(8, classes)).astype("float32")
    bias = 0.3 * rng.normal(size=classes).astype("float32")
    x = rng.uniform(0.2, 0.8, size=(12, 8)).astype("float32")
    inputs = keras.Input((8,))
    layer = keras.layers.Dense(classes)
    model = keras.Model(inputs, layer(ops.sin(6.0 * inputs)))
    layer.set_weights([weights, bias])
    weights, bias = weights.astype("float64"), bias.astype("float64")
    logits = lambda points: np.sin(6.0 * points) @ weights + bias
    y = logits(x.astype("float64")).argmax(axis=1)
    logits.slope = lambda point, dz: 6.0 * np.cos(6.0 * point) * (weights @ dz)
    return x, y, model, logits


def straight_case(seed=0):
    """The same of a linear model."""
    x, y, weights, bias = linear_case(seed)
    x, y = x[:12], y[:12]
    logits = lambda points: points @ weights.astype("float64") + bias
    logits.slope = lambda point, dz: weights.astype("float64") @ dz
    return x, y, linear(weights, bias, None), logits


CASES = {"linear": straight_case, "curved": curved_case}


def check_oracle_of_apgd(case="curved", loss="cross_entropy", norm="linf", steps=25):
    """The strongest point is that of the paper's loop in float64."""
    x, y, model, logits = CASES[case]()
    epsilon = {"linf": 0.15, "l2": 0.4}[norm]
    if "dlr" in loss:
        epsilon = {"linf": 0.03, "l2": 0.08}[norm]  # most examples stay right
    options = {"y": y, "loss": loss, "norm": norm, "steps": steps}
    moved = adversarial.apgd(
        model, x, epsilon, from_logits=True, random_start=False, **options
    )
    clean = logits(x.astype("float64"))
    for i, point in enumerate(x.astype("float64")):
        others = [k for k in np.argsort(-clean[i], kind="stable") if k != y[i]]

        def f(point, label=y[i], target=others[0]):
            value, dz = auto_pgd.loss_and_slope(logits(point), label, loss, target)
            return value, logits.slope(point, dz)

        points = auto_pgd.run(f, point, epsilon, steps, norm)
        ranks = [(logits(p).argmax() != y[i], f(p)[0]) for p in points]
        best = max(range(len(points)), key=lambda k: ranks[k])
        given = np.asarray(moved[i], "float64")
        assert (logits(given).argmax() != y[i]) == ranks[best][0]
        if "dlr" in loss and ranks[best][0]:
            continue  # the DLR is 1 at many such points, and infinite at some
        np.testing.assert_allclose(f(given)[0], ranks[best][1], rtol=1e-4, atol=1e-5)
        # A loss is flat at its top: its error is about the square of this one.
        np.testing.assert_allclose(moved[i], points[best], atol=2e-3)


def check_labels():
    """The loss of the given label rises, not that of another."""
    x, y, weights, bias = linear_case()
    logits = lambda points: points @ weights + bias
    for attack in (adversarial.fgsm, *GRADIENT_ATTACKS.values()):
        moved = attack(linear(weights, bias), x, 0.05, y=y)
        assert np.all(judged(moved, y, logits)[1] > judged(x, y, logits)[1])
