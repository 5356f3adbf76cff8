"""Chains that compare energies, when the loss or the data change between two fits."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import numpy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 3)).astype("float32")
Y = (X @ [1.0, -2.0, 0.5] + RNG.normal(size=64)).astype("float32")[:, None]

SAMPLERS = {
    "mhbt": lambda: mh.MHBT(1e-2, train_size=64, batch_size=64, seed=0),
    "rsgld": lambda: mh.RSGLD(1e-2, train_size=64, batch_size=64, warm_up=1, seed=0),
}


def linear():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])


def fitted(model, y=Y, epochs=60):
    model.fit(X, y, batch_size=64, epochs=epochs, verbose=0)
    return model


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_larger_loss_is_told_if_it_stops_the_chain(name):
    """The energy of the state is that of the first loss: nothing would be accepted."""
    model, sampler = linear(), SAMPLERS[name]()
    model.compile(sampler, mh.losses.GaussianNLL(1.0))
    fitted(model)
    model.compile(sampler, mh.losses.GaussianNLL(0.1))
    with pytest.warns(UserWarning, match="new sampler if the loss or the data"):
        fitted(model)


def test_other_data_that_stop_the_chain_are_told_in_each_fit():
    """Without a callback, and though the first fit accepted its moves."""
    model = linear()
    model.compile(SAMPLERS["mhbt"](), mh.losses.GaussianNLL(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", ".*kept no sample")
        fitted(model)
        fitted(model)
    before = numpy(model.weights[0])
    with pytest.warns(
        UserWarning, match="accepted none of the last 59 .* have changed"
    ):
        fitted(model, Y + 100.0)
    np.testing.assert_array_equal(numpy(model.weights[0]), before)
