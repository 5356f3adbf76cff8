"""Gated convolutions with attention, not built: TensorFlow loses gradients' shapes."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_mhmcmc as mh

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 12, 5)).astype("float32")
Y = (X[:, :, 0].max(axis=1) > 1.6).astype("int32")


class Gated(keras.Model):
    """A subclass that is not built before `fit`."""

    def __init__(self, **options):
        super().__init__(**options)
        self.values = layers.Conv1D(16, 3, padding="same")
        self.gates = layers.Conv1D(16, 3, padding="same", activation="sigmoid")
        self.score, self.norm = layers.Dense(1), layers.LayerNormalization()
        self.out = layers.Dense(2)

    def call(self, x):
        h = self.norm(self.values(x) * self.gates(x))
        weights = ops.softmax(self.score(h), axis=1)
        return self.out(ops.sum(weights * h, axis=1))


class Batches(keras.utils.PyDataset):
    """Batches of 32; the last one has 16."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return X[32 * i : 32 * (i + 1)], Y[32 * i : 32 * (i + 1)]


def batches():
    """A pipeline whose batch size is unknown on TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        return Batches()
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(32)


SAMPLERS = {
    "PSGLD": lambda: mh.PSGLD(1e-3, train_size=80, temperature=0.03, seed=0),
    "SGHMC": lambda: mh.SGHMC(1e-3, train_size=80, temperature=0.03, seed=0),
    "RSGLD": lambda: mh.RSGLD(
        0.05, train_size=80, batch_size=32, warm_up=3, temperature=50.0, seed=0
    ),
    "MHBT": lambda: mh.MHBT(
        1e-4, train_size=80, batch_size=32, temperature=50.0, seed=0
    ),
}


@pytest.mark.filterwarnings("ignore:The last mini-batch")
@pytest.mark.parametrize("chains", [None, 2])
@pytest.mark.parametrize("name", SAMPLERS)
def test_they_are_sampled(name, chains):
    keras.utils.set_random_seed(0)
    model = Gated()
    if chains is not None:
        model(X[:2])
        model = mh.ParallelChains(model, chains, seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(SAMPLERS[name](), loss)
    posterior = mh.PosteriorSamples(burn_in=3)
    history = model.fit(batches(), epochs=4, verbose=0, callbacks=[posterior])
    assert np.isfinite(history.history["loss"]).all()
    assert len(posterior) == 3
    mean = posterior.ensemble(model).predict(X, verbose=0)
    np.testing.assert_allclose(mean.sum(axis=1), 1.0, atol=1e-5)
