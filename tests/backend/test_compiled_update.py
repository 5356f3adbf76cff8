"""TensorFlow compiles a step of a large model, which is the step it takes eagerly."""

import keras
import numpy as np
import pytest

from keras_mhmcmc import _backend
from tests.support.models import optimizer_state
from tests.support.models import weights
from tests.support.samplers import BATCH_SIZE
from tests.support.samplers import SAMPLERS
from tests.support.samplers import TRAIN_SIZE

BACKEND = keras.backend.backend()
# One of each kind of chain in the short form: each takes seconds to compile.
SHORT = "rsgld", "sghmcsa"
WIDTH = 256  # two layers of it are more than the 2^16 weights from which on it pays


def run(name, run_eagerly):
    """Weights and sampler's variables after some steps."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((WIDTH,)), keras.layers.Dense(WIDTH), keras.layers.Dense(3)]
    )
    model.compile(
        optimizer=SAMPLERS[name].make(seed=3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=run_eagerly,
    )
    rng = np.random.default_rng(1)
    x = rng.normal(size=(TRAIN_SIZE, WIDTH)).astype("float32") / WIDTH**0.5
    y = rng.integers(0, 3, TRAIN_SIZE)
    model.fit(x, y, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    return [*weights(model), *optimizer_state(model.optimizer)]


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SHORT else pytest.mark.slow)
        for name in SAMPLERS
    ],
)
def test_a_step_of_a_large_model_is_the_same_eagerly(name):
    compiled, eager = run(name, False), run(name, True)
    for x, y in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the others compile all or nothing")
@pytest.mark.parametrize(
    "shapes, pays",
    [
        ([(256, 256)], True),
        ([(256, 255)], False),
        ([(64, 64)] * 64, False),  # many tensors: XLA compiles for long
    ],
)
def test_it_compiles_where_it_pays(shapes, pays):
    import tensorflow as tf

    variables = [keras.Variable(np.zeros(shape, "float32")) for shape in shapes]

    def update(gradient, loss, rate):
        return gradient

    assert _backend.compiled_update(update, variables) is update  # eagerly
    with tf.Graph().as_default():
        compiled = _backend.compiled_update(update, variables)
    assert (compiled is not update) == pays
