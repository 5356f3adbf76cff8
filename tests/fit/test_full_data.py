"""The energy that AMAGOLD tests: all of the data, against float64."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc._data import Batch
from keras_mhmcmc.fit.compiled_loss import FullLoss
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import numpy

N = 600  # arrays are read in blocks of 512 examples
BATCH = 100
SQUARES, ADDED = 0.05, 0.3  # weights of what layers add to the loss


def data():
    """Labels by a linear rule; of the last examples it gives the wrong ones."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, FEATURES)).astype("float32")
    labels = (x @ rng.normal(size=(FEATURES, CLASSES))).argmax(1)
    wrong = np.arange(N) >= 512
    x[wrong] *= 3.0
    return x, ((labels + wrong) % CLASSES).astype("int32")


def weights_of_examples():
    return np.geomspace(5.0, 1e-3, N).astype("float32")


class Scaled(keras.layers.Layer):
    """Multiplies by a weight, whose square it adds to the loss."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x):
        self.add_loss(ADDED * ops.square(self.scale))
        return self.scale * x


def loss_of_logits():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model_of(optimizer, adds=False):
    """A softmax regression; with `adds`, layers add two terms to the loss."""
    dense = keras.layers.Dense(
        CLASSES,
        use_bias=False,
        kernel_initializer=keras.initializers.GlorotUniform(seed=1),
        kernel_regularizer=keras.regularizers.L2(SQUARES) if adds else None,
    )
    layers = [keras.Input((FEATURES,)), dense, *([Scaled()] if adds else [])]
    model = keras.Sequential(layers)
    model.compile(optimizer, loss_of_logits())
    return model


def expected_energy(model, x, y, example_weights=1.0):
    """N times the loss that Keras documents, in float64."""
    kernel, *scale = (numpy(v).astype("float64") for v in model.trainable_variables)
    logits = x.astype("float64") @ kernel * (scale[0] if scale else 1.0)
    logits -= logits.max(1, keepdims=True)
    nats = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
    loss = (example_weights * nats).mean()
    if scale:
        loss += SQUARES * (kernel**2).sum() + ADDED * scale[0] ** 2
    return len(y) * loss


class Unequal(keras.utils.PyDataset):
    """Mini-batches of 250, 10, 300 and 40 examples."""

    ends = (0, 250, 260, 560, 600)

    def __len__(self):
        return len(self.ends) - 1

    def __getitem__(self, index):
        rows = slice(*self.ends[index : index + 2])
        return tuple(part[rows] for part in data())


def relative_error(case):
    """Of the energy of the last sample of a short fit, against float64."""
    optimizer = mh.AMAGOLD(0.02, train_size=N, warm_up=0, seed=0)
    model = model_of(optimizer, adds=case == "added terms")
    (x, y), weight = data(), 1.0
    given = dict(x=x, y=y, batch_size=BATCH)
    if case == "unequal mini-batches":
        given = dict(x=Unequal())
    elif case == "weights of examples":
        weight = weights_of_examples()
        given |= dict(sample_weight=weight)
    elif case == "weights of examples in use_data":
        weight = weights_of_examples()
        optimizer.use_data(x, y, weight)
    posterior = mh.PosteriorSamples()
    model.fit(**given, epochs=2, verbose=0, callbacks=[posterior])
    expected = expected_energy(model, x, y, weight)
    return abs(posterior.energies[-1] / expected - 1.0)


CASES = (
    "arrays",
    "unequal mini-batches",
    "weights of examples",
    "weights of examples in use_data",
    "added terms",
)


@pytest.mark.parametrize("case", CASES)
def test_the_energy_is_that_of_all_data(case):
    assert relative_error(case) < 1e-4


def test_a_model_that_is_compiled_anew_has_its_new_loss():
    model, (x, y), full_loss = model_of(mh.AMAGOLD(0.02)), data(), FullLoss()
    for weight in (1.0, 3.0):
        model.compile("sgd", loss_of_logits(), loss_weights=[weight])
        expected = weight * expected_energy(model, x, y)
        found = N * full_loss(model, Batch(x, y), N)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
