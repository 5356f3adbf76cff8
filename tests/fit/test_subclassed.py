"""Models whose `call` takes no `training`: everything that predicts takes them."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy


class Own(keras.Model):
    """Layers of its own, one of which differs between training and inference."""

    def __init__(self, **options):
        super().__init__(**options)
        self.norm = keras.layers.BatchNormalization()
        self.hidden = keras.layers.Dense(4, "tanh")
        self.drop = keras.layers.Dropout(0.5)
        self.last = keras.layers.Dense(CLASSES, "softmax")

    def call(self, x):
        return self.last(self.drop(self.hidden(self.norm(x))))


class Wrapping(keras.Model):
    """A functional model inside."""

    def __init__(self, **options):
        super().__init__(**options)
        inputs = keras.Input((FEATURES,))
        outputs = keras.layers.Dense(CLASSES, "softmax")(inputs)
        self.inner = keras.Model(inputs, outputs)

    def call(self, x):
        return self.inner(x)


class Passing(Own):
    """The same layers, which learn of `training`."""

    def call(self, x, training=None):
        x = self.hidden(self.norm(x, training=training))
        return self.last(self.drop(x, training=training))


class Keeping(Own):
    """It takes `training`, and leaves it to Keras to tell the layers."""

    def call(self, x, training=None):
        return super().call(x)


class Normalising(Own):
    """Batch normalisation by the batch, whatever the mode."""

    def call(self, x):
        return self.last(self.hidden(self.norm(x, training=True)))


def ensemble_of(kind, members=2):
    keras.utils.set_random_seed(0)
    model = kind()
    x, _ = data()
    model(x[:2])
    rng = np.random.default_rng(0)
    stacked = [
        np.abs(rng.normal(size=(members, *v.shape))).astype("float32")
        for v in model.weights
    ]
    ensemble = mh.Ensemble(model, members)
    ensemble.set_members(stacked, np.ones(members))
    return ensemble, stacked


@pytest.mark.parametrize("kind", [Own, Wrapping])
def test_an_ensemble_predicts_as_its_members(kind):
    ensemble, stacked = ensemble_of(kind)
    x, y = data()
    members = ensemble.predict_members(x)
    for i in range(2):
        ensemble.member.set_weights([values[i] for values in stacked])
        expected = ensemble.member.predict(x, verbose=0)
        np.testing.assert_allclose(members[i], expected, atol=1e-6)
    mean = members.mean(0)
    np.testing.assert_allclose(ensemble.predict(x, verbose=0), mean, atol=1e-6)
    # In inference mode whatever the caller says.
    np.testing.assert_allclose(numpy(ensemble(x, training=True)), mean, atol=1e-6)
    ensemble.compile(loss="sparse_categorical_crossentropy")
    loss = ensemble.evaluate(x, y, verbose=0)
    assert loss == pytest.approx(-np.log(mean[np.arange(len(y)), y]).mean(), rel=1e-4)


@pytest.mark.parametrize("kind", [Own, Wrapping])
def test_parallel_chains(kind):
    model = kind()
    x, _ = data()
    model(x[:2])
    first = model.predict(x, verbose=0)
    chains = mh.ParallelChains(model, 2, seed=0)
    chains = compiled(mh.SGLD(0.05, train_size=96, seed=0), chains)
    np.testing.assert_allclose(chains.predict(x, verbose=0)[0], first, atol=1e-6)
    fit(chains, epochs=1)
    assert np.abs(chains.predict(x, verbose=0)[0] - first).max() > 1e-3


@pytest.mark.parametrize("kind", [Own, Passing, Keeping, Normalising])
def test_a_chain_of_one_is_the_run_of_the_plain_model(kind):
    """Keras trains a model without `training` in inference mode; so do the chains."""
    x, y = data()
    runs = []
    for make in (lambda model: model, lambda model: mh.ParallelChains(model, 1)):
        keras.utils.set_random_seed(0)
        model = kind()
        model(x[:2])
        trained = make(model)
        trained.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
        trained.fit(x, y, batch_size=16, epochs=1, shuffle=False, verbose=0)
        variable = next(v for v in trained.weights if "moving_mean" in v.path)
        runs.append(numpy(variable).reshape(FEATURES))
    np.testing.assert_allclose(runs[1], runs[0], atol=1e-6)
    if kind is not Keeping:  # there the backends of Keras differ
        assert np.any(runs[0] != 0.0) == (kind is not Own)


def test_a_call_is_given_training_if_it_takes_it():
    x, _ = data()
    for kind, takes in ((Own, False), (Passing, True)):
        model = kind()
        model(x[:2])
        runs = [
            numpy(_backend.step_outputs(model, keras.ops.convert_to_tensor(x), flag))
            for flag in (True, False)
        ]
        assert np.any(runs[0] != runs[1]) == takes
        expected = model.predict(x, verbose=0)
        np.testing.assert_allclose(runs[1], expected, atol=1e-6)


def test_a_prior_of_a_model_that_the_first_step_builds():
    optimizer = mh.SGLD(0.01, prior=mh.priors.Gaussian(1.0), seed=0)
    posterior = mh.PosteriorSamples(burn_in=2)
    fit(compiled(optimizer, Own()), callbacks=[posterior])
    assert len(posterior) > 0
