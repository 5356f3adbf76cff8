"""Several chains, and a baseline, that share one network."""

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh
from tests.support.models import TRAIN_SIZE
from tests.support.models import data
from tests.support.models import sequential

LOSS = "sparse_categorical_crossentropy"


def at_rest():
    """A sampler that does not move."""
    return mh.SGLD(0.0, train_size=TRAIN_SIZE, temperature=0.0, seed=0)


def hundred(y_true, y_pred):
    return 100.0 + 0.0 * ops.sum(y_pred, axis=-1)


def test_chains_keep_their_loss_when_the_network_is_compiled_again():
    x, y = data()
    network = sequential()
    first, second = (mh.ParallelChains(network, 2, seed=0) for _ in range(2))
    first.compile(at_rest(), LOSS, metrics=["accuracy"])
    expected = first.evaluate(x, y, verbose=0)
    second.compile(at_rest(), hundred)  # and without the accuracy
    assert second.fit(x, y, verbose=0).history["loss"] == [100.0]
    np.testing.assert_allclose(first.evaluate(x, y, verbose=0), expected, rtol=1e-6)
    np.testing.assert_allclose(
        first.fit(x, y, verbose=0).history["loss"], expected[:1], rtol=1e-5
    )
    assert second.evaluate(x, y, verbose=0) == 100.0
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy())
    network.fit(x, y, verbose=0)
    found = first.fit(x, y, verbose=0, validation_data=(x, y)).history
    np.testing.assert_allclose(found["val_loss"], expected[:1], rtol=1e-5)
    np.testing.assert_allclose(found["val_accuracy"], expected[1:], rtol=1e-5)
