"""Checks that several attacks share, and a model whose gradients turn."""

import functools

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import adversarial
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
