"""FGSM, PGD and Auto-PGD against Foolbox, on its model of each framework."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

pytestmark = pytest.mark.in_turn("torch")

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


def foolbox_attack(attack, model, x, y, epsilon):
    tensors = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)
    raw, _, _ = attack(foolbox_model(model), *tensors, epsilons=epsilon)
    return keras.ops.convert_to_numpy(raw)


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
