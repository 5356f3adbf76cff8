"""At the end of data of unknown length, TensorFlow makes a step without data."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

tf = pytest.importorskip("tensorflow")
pytestmark = [
    pytest.mark.eager_and_compiled,
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="a step of TensorFlow alone"
    ),
]
BATCHES = 10
X = np.random.default_rng(0).normal(size=(4 * BATCHES, 3)).astype("float32")
Y = (X.sum(1) > 0.0).astype("int32")


def batches():
    for first in range(0, len(X), 4):
        yield X[first : first + 4], Y[first : first + 4]


def pipeline(is_known):
    specs = tf.TensorSpec((None, 3)), tf.TensorSpec((None,), "int32")
    data = tf.data.Dataset.from_generator(batches, output_signature=specs)
    if is_known:
        data = data.apply(tf.data.experimental.assert_cardinality(BATCHES))
    return data


SAMPLERS = {
    "SGLD": lambda: mh.SGLD(0.1, train_size=40, seed=0),
    "CSGHMC": lambda: mh.CSGHMC(0.05, train_size=40, pilot_steps=20, seed=0),
    "AMAGOLD": lambda: mh.AMAGOLD(0.05, train_size=40, warm_up=5, seed=0),
    "RSGLD": lambda: mh.RSGLD(0.1, train_size=40, batch_size=4, warm_up=2, seed=0),
}


def run(name, is_known, chains=None, **options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    if chains is not None:
        model = mh.ParallelChains(model, chains, seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(SAMPLERS[name](), loss, **options)
    posterior = mh.PosteriorSamples()
    model.fit(pipeline(is_known), epochs=3, verbose=0, callbacks=[posterior])
    return model, posterior


CASES = [(name, False) for name in SAMPLERS] + [("SGLD", True)]


@pytest.mark.parametrize("name, is_eager", CASES)
def test_a_step_without_data_changes_nothing(name, is_eager):
    model, posterior = run(name, False, run_eagerly=is_eager)
    wanted, samples = run(name, True, run_eagerly=is_eager)
    assert int(model.optimizer.iterations) == 3 * BATCHES
    np.testing.assert_array_equal(posterior.iterations, samples.iterations)
    for one, other in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.optimizer.diagnostics() == wanted.optimizer.diagnostics()


def test_chains_side_by_side():
    model, _ = run("SGLD", False, chains=2)
    wanted, _ = run("SGLD", True, chains=2)
    assert int(model.optimizer.iterations) == 3 * BATCHES
    for one, other in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
