"""Weights of examples that come with the data: told if they multiply the likelihood."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

COUNT, BATCH, CLASSES = 48, 16, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(COUNT, 2)).astype("float32")
Y = np.arange(COUNT) % CLASSES

pytestmark = pytest.mark.in_turn("jax", "tensorflow", "torch")


class Batches(keras.utils.PyDataset):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def __len__(self):
        return COUNT // BATCH

    def __getitem__(self, i):
        return tuple(part[i * BATCH : (i + 1) * BATCH] for part in self.parts)


def tf_data(parts):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(parts).batch(BATCH)


def data_loader(parts):
    import torch

    data = torch.utils.data.TensorDataset(*map(torch.tensor, parts))
    return torch.utils.data.DataLoader(data, batch_size=BATCH)


PIPELINES = {f.__name__: f for f in (tf_data, data_loader, Batches)}
TENS = np.full(COUNT, 10.0, "float32")


def network(loss):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(CLASSES)])
    model.compile(mh.SGLD(1e-5, train_size=COUNT, seed=1), loss)
    return model


def cross_entropy(**options):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def told(form, weights=None, loss=None, **options):
    """What a fit of two epochs says, and the weights after it."""
    keras.utils.set_random_seed(0)
    model = network(loss or cross_entropy())
    parts = (X, Y) if weights is None else (X, Y, weights)
    posterior = mh.PosteriorSamples()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(
            PIPELINES[form](parts),
            steps_per_epoch=COUNT // BATCH,
            epochs=2,
            verbose=0,
            callbacks=[posterior],
            **options,
        )
    found = [w for w in caught if "counts an example" in str(w.message)]
    assert all(w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


@pytest.mark.parametrize("form", PIPELINES)
def test_weights_that_come_with_the_data(form):
    (found,) = told(form, TENS)
    assert "third element of the data of `fit` counts an example 10 times" in found
    assert "(over the first " in found and "posterior is narrower" in found
    assert "Divide the weights by their mean" in found
    assert told(form) == []
    weights = TENS / 50.0
    weights[::4] = 0.0  # left out
    (found,) = told(form, weights)
    assert "counts an example 0.2 times" in found and "is wider" in found


@pytest.mark.parametrize("form", ["tf_data", "Batches"])
def test_weights_of_classes_of_a_pipeline(form):
    (found,) = told(form, class_weight=dict.fromkeys(range(CLASSES), 4.0))
    assert "argument `class_weight` of `fit` counts an example 4 times" in found
    assert told(form, class_weight={0: 0.5, 1: 1.0, 2: 1.5}) == []


def test_weights_of_the_first_batches_are_an_estimate():
    """They may be large by chance: several standard errors are left."""
    some = np.ones(COUNT, "float32")
    some[:20] = np.linspace(0.5, 3.0, 20)
    assert told("tf_data", some / some.mean()) == []
    assert told("tf_data", some) == []


def test_weights_by_which_keras_divides():
    loss = cross_entropy(reduction="mean_with_sample_weight")
    assert told("tf_data", TENS, loss) == []
