"""FGSM, PGD and Auto-PGD against Foolbox, on its model of each framework."""

import sys

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.adversarial import foolbox_wrapper
from keras_mhmcmc.adversarial import losses
from tests.statistics.planting import wrap
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case

foolbox = pytest.importorskip("foolbox")

BOUNDS = (0.0, 1.0)


@pytest.fixture(scope="module")
def trained():
    """A convolutional classifier with logits, its inputs and their labels."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 96)
    centres = rng.uniform(0.2, 0.8, size=(3, 6, 6, 1))
    x = np.clip(centres[y] + 0.2 * rng.normal(size=(96, 6, 6, 1)), 0.0, 1.0)
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            keras.layers.Conv2D(4, 3, activation="tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(x, y, epochs=10, verbose=0)
    return model, x.astype("float32")[:20], y[:20]


def foolbox_model(model):
    """The Keras model for Foolbox, on the framework that runs."""
    backend = keras.backend.backend()
    if backend == "torch":
        return foolbox.PyTorchModel(model.eval(), bounds=BOUNDS, device="cpu")
    if backend == "tensorflow":
        return foolbox.TensorFlowModel(model, bounds=BOUNDS, device="/CPU:0")
    return foolbox.JAXModel(model, bounds=BOUNDS)


def run(attack, wrapped, x, y, epsilon):
    """The images that an attack of Foolbox makes, as an array."""
    tensors = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)
    raw, _, _ = attack(wrapped, *tensors, epsilons=epsilon)
    return keras.ops.convert_to_numpy(raw)


def foolbox_attack(attack, model, x, y, epsilon):
    return run(attack, foolbox_model(model), x, y, epsilon)


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_fgsm_is_that_of_foolbox(trained, epsilon):
    model, x, y = trained
    ours = mh.adversarial.fgsm(model, x, epsilon, y=y, from_logits=True)
    attack = foolbox.attacks.LinfFastGradientAttack()
    theirs = foolbox_attack(attack, model, x, y, epsilon)
    assert np.abs(ours - x).max() > 0.9 * epsilon
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("epsilon, steps", [(0.05, 10), (0.2, 7)])
def test_pgd_is_that_of_foolbox(trained, epsilon, steps):
    model, x, y = trained
    size = 2.5 * epsilon / steps
    attack = foolbox.attacks.LinfPGD(abs_stepsize=size, steps=steps, random_start=False)
    theirs = foolbox_attack(attack, model, x, y, epsilon)
    options = {"steps": steps, "random_start": False, "from_logits": True}
    last = mh.adversarial.pgd(model, x, epsilon, y=y, keep_strongest=False, **options)
    np.testing.assert_allclose(last, theirs, rtol=0.0, atol=1e-6)
    assert (
        np.abs(
            theirs - mh.adversarial.fgsm(model, x, epsilon, y=y, from_logits=True)
        ).max()
        > 0.01
    )  # or the steps would not be tested

    # The strongest point is one of theirs, or of FGSM; and as strong as their last.
    strongest = mh.adversarial.pgd(model, x, epsilon, y=y, **options)
    logits = [keras.ops.convert_to_tensor(points) for points in (strongest, theirs)]
    losses = [
        keras.ops.convert_to_numpy(
            keras.ops.sparse_categorical_crossentropy(y, model(z), from_logits=True)
        )
        for z in logits
    ]
    turned = [np.argmax(keras.ops.convert_to_numpy(model(z)), 1) != y for z in logits]
    assert np.all(turned[0] >= turned[1])
    same = turned[0] == turned[1]
    assert np.all(losses[0][same] >= losses[1][same] - 1e-6)


@pytest.mark.parametrize("epsilon, steps", [(0.3, 10), (1.0, 7)])
def test_pgd_in_the_l2_ball_is_that_of_foolbox(trained, epsilon, steps):
    model, x, y = trained
    size = 2.5 * epsilon / steps
    attack = foolbox.attacks.L2PGD(abs_stepsize=size, steps=steps, random_start=False)
    theirs = foolbox_attack(attack, model, x, y, epsilon)
    options = {"steps": steps, "norm": "l2", "random_start": False}
    options |= {"keep_strongest": False, "from_logits": True}
    ours = mh.adversarial.pgd(model, x, epsilon, y=y, **options)
    lengths = np.linalg.norm((ours - x).reshape(len(x), -1), axis=1)
    assert 0.9 * epsilon < lengths.max() <= epsilon * (1 + 1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-6)


def test_auto_pgd_is_as_strong_as_pgd_of_foolbox(trained):
    """Foolbox has no Auto-PGD: its own PGD of as many steps is the mark to reach."""
    model, x, y = trained
    attack = foolbox.attacks.LinfPGD(steps=40, rel_stepsize=0.05, random_start=False)
    theirs = foolbox_attack(attack, model, x, y, 0.1)
    options = {"steps": 40, "random_start": False, "from_logits": True}
    ours = mh.adversarial.apgd(model, x, 0.1, y=y, **options)
    classifier = mh.Classifier(model, from_logits=True)
    losses, turned = [], []
    for points in (ours, theirs):
        probabilities = classifier.probabilities(points)
        losses.append(-np.log(probabilities[np.arange(len(y)), y]))
        turned.append(probabilities.argmax(axis=1) != y)
    assert turned[0].sum() >= turned[1].sum()
    assert losses[0].mean() > losses[1].mean() - 1e-3


# `mh.adversarial.foolbox_model`.


def check_as_its_own(trained):
    """Attacks on our model do what they do on Foolbox's model of the framework."""
    model, x, y = trained
    ours = mh.adversarial.foolbox_model(model, from_logits=True)
    for attack, epsilon in (
        (foolbox.attacks.LinfPGD(steps=5, random_start=False), 0.1),
        (foolbox.attacks.L2DeepFoolAttack(steps=5), None),
    ):
        theirs = foolbox_attack(attack, model, x, y, epsilon)
        moved = run(attack, ours, x, y, epsilon)
        np.testing.assert_allclose(moved, theirs, rtol=0.0, atol=1e-5)
        assert np.abs(moved - x).max() > 0.01


def check_ensemble():
    """Its gradient is that of the mean probability, as that of our FGSM is."""
    x, y, *first = linear_case()
    _, _, *second = linear_case(seed=1)
    ensemble = mh.Ensemble(linear(*first, None), 2, "softmax")
    pairs = zip(first, second, strict=True)
    ensemble.set_members([np.stack(pair) for pair in pairs], [0.25, 0.75])
    wrapped = mh.adversarial.foolbox_model(ensemble)
    logits = wrapped(keras.ops.convert_to_tensor(x))
    exact = np.log(mh.Classifier(ensemble).probabilities(x))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(logits), exact, atol=1e-5)
    ours = mh.adversarial.fgsm(ensemble, x, 0.1, y=y)
    attack = foolbox.attacks.LinfFastGradientAttack()
    theirs = run(attack, wrapped, x, y, 0.1)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-6)


def test_our_model_is_attacked_as_that_of_foolbox(trained):
    check_as_its_own(trained)


def test_an_ensemble_is_attacked_as_one_model():
    check_ensemble()


def sign(logits):
    return -logits


def classes(logits):
    return keras.ops.flip(logits, axis=1)


def members(logits):
    return keras.ops.softmax(logits)


@pytest.mark.parametrize("change", [sign, classes, members])
def test_a_planted_bug_is_found(change, trained, monkeypatch):
    around = lambda real, *given: change(real(*given))
    wrap(monkeypatch, losses, "logits", around)
    with pytest.raises(AssertionError):
        check_as_its_own(trained)
    with pytest.raises(AssertionError):
        check_ensemble()


def test_weights_are_read_at_each_call():
    x, _, weights, bias = linear_case()
    model = linear(weights, bias, None)
    wrapped = mh.adversarial.foolbox_model(model, from_logits=True)
    inputs = keras.ops.convert_to_tensor(x)
    first = keras.ops.convert_to_numpy(wrapped(inputs))
    model.set_weights([2.0 * weights, 2.0 * bias])
    again = keras.ops.convert_to_numpy(wrapped(inputs))
    np.testing.assert_allclose(again, 2.0 * first, rtol=1e-5)


def test_limits_are_those_of_the_model():
    x, y, weights, bias = linear_case()
    model = linear(weights, bias, None)
    options = {"from_logits": True, "clip": (0.25, 0.75)}
    wrapped = mh.adversarial.foolbox_model(model, **options)
    attack = foolbox.attacks.LinfFastGradientAttack()
    moved = run(attack, wrapped, x, y, 0.3)
    assert moved.min() == 0.25 and moved.max() == 0.75
    assert wrapped.data_format == "channels_last"


def test_a_black_box_attacks_a_model_without_gradient():
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(2, activation="softmax")
    model = keras.Model(inputs, outputs(keras.ops.round(4.0 * inputs) / 4.0))
    outputs.set_weights([np.array([[1.0, -1.0]] * 4), np.array([-2.2, 2.2])])
    with pytest.raises(ValueError, match="`model` must have a gradient"):
        mh.adversarial.foolbox_model(model)
    wrapped = mh.adversarial.foolbox_model(model, has_gradient=False)
    attack = foolbox.attacks.LinearSearchBlendedUniformNoiseAttack(directions=50)
    x, y = np.full((2, 4), 0.75, "float32"), np.array([0, 0])
    moved = run(attack, wrapped, x, y, None)
    assert np.all(mh.Classifier(model).probabilities(x).argmax(axis=1) == 0)
    assert np.all(mh.Classifier(model).probabilities(moved).argmax(axis=1) == 1)


def test_a_missing_package_is_named(monkeypatch):
    foolbox_wrapper._model_class.cache_clear()
    monkeypatch.setitem(sys.modules, "foolbox.models.base", None)
    with pytest.raises(ImportError, match=r"pip install keras-mhmcmc\[foolbox\]"):
        mh.adversarial.foolbox_model(linear(np.eye(2), np.zeros(2)))
