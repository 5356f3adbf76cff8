"""What Keras changes or leaves out when it saves a model does not change the chain."""

from functools import partial

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.process_tasks import state_of
from tests.support.samplers import AT_ONCE


def sgld():
    return mh.SGLD(0.05, train_size=96, seed=0)


def rsgld():
    return mh.RSGLD(0.05, train_size=96, batch_size=16, seed=0, **AT_ONCE)


def with_dropout(frozen=False):
    """A model with a generator, whose states Keras saves in no file."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((FEATURES,)),
        keras.layers.Dense(6, "tanh"),
        keras.layers.Dropout(0.5, seed=3),
        keras.layers.Dense(CLASSES, "softmax"),
    ]
    model = keras.Sequential(layers)
    model.layers[0].bias.trainable = not frozen
    return model


@keras.saving.register_keras_serializable()
class Named(keras.Model):
    """Keras loads its optimizer between its two layers."""

    def __init__(self, **options):
        super().__init__(**options)
        self.early = keras.layers.Dense(6, "tanh")
        self.zone = keras.layers.Dense(CLASSES, "softmax")

    def build(self, shape):
        self.early.build(shape)
        self.zone.build((None, 6))
        self.built = True

    def call(self, x):
        return self.zone(self.early(x))


def subclassed():
    keras.utils.set_random_seed(0)
    model = Named()
    model.build((None, FEATURES))
    return model


def chains():
    return mh.ParallelChains(with_dropout(), 2, seed=0)


frozen = partial(with_dropout, frozen=True)


def loaded(path, make, sampler):
    return keras.models.load_model(path)


def made_again(path, make, sampler):
    model = compiled(sampler(), make())
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    return model


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def name_of(value):
    return "frozen" if isinstance(value, partial) else value.__name__


CASES = [
    (with_dropout, sgld, loaded),
    *[(make, rsgld, loaded) for make in (with_dropout, subclassed, chains)],
    *[(make, rsgld, made_again) for make in (frozen, subclassed)],
]


@pytest.mark.parametrize("make, sampler, again", CASES, ids=name_of)
def test_a_saved_chain_goes_on_bit_for_bit(make, sampler, again, tmp_path):
    model = compiled(sampler(), make())
    fit(model, epochs=2)
    kind = "m.keras" if again is loaded else "m.weights.h5"
    save = model.save if again is loaded else model.save_weights
    save(tmp_path / kind)
    other = again(tmp_path / kind, make, sampler)
    assert_same(state_of(other), state_of(model))
    x, _ = data()
    expected = model.predict(x, verbose=0)
    np.testing.assert_array_equal(other.predict(x, verbose=0), expected)
    for one in (model, other):
        fit(one, epochs=1)
    assert_same(state_of(other), state_of(model))
    assert np.abs(model.predict(x, verbose=0) - expected).max() > 0


def test_a_backup_goes_on(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise InterruptedError

    def run(*others):
        model = compiled(rsgld(), frozen())
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        fit(model, epochs=4, callbacks=[backup, *others])
        return model

    with pytest.raises(InterruptedError):
        run(Stop())
    whole = compiled(rsgld(), frozen())
    fit(whole, epochs=4)
    assert_same(state_of(run()), state_of(whole))


@pytest.mark.parametrize("sampler", [sgld, rsgld])
@pytest.mark.parametrize("make", [frozen, sequential], ids=["dropout", "dense"])
def test_a_frozen_bias_that_the_file_does_not_know_is_refused(make, sampler, tmp_path):
    model = make()
    model.layers[0].bias.trainable = False
    compiled(sampler(), model)
    fit(model, epochs=1)
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="build.*load_weights.*a chain of"):
        keras.models.load_model(tmp_path / "m.keras")
    alone = keras.models.load_model(tmp_path / "m.keras", compile=False)
    x, _ = data()
    found = alone.predict(x, verbose=0)
    np.testing.assert_allclose(found, model.predict(x, verbose=0), atol=1e-5)


class Broken(keras.losses.Loss):
    def call(self, y_true, y_pred):
        raise RuntimeError("broken")


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize("sampler", [sgld, rsgld])
@pytest.mark.parametrize("callback", [False, True], ids=["alone", "samples"])
def test_a_refused_step_leaves_the_weights(sampler, callback):
    """Freeze, fit, unfreeze, fit; then what the refusal says."""
    model = compiled(sampler())
    model.layers[0].trainable = False
    fit(model, epochs=1)
    model.layers[0].trainable = True
    before = model.get_weights()
    if callback or keras.backend.backend() != "tensorflow":  # which traces once
        with pytest.raises(ValueError, match="optimizer` must be new"):
            fit(model, epochs=1, callbacks=[mh.PosteriorSamples()] if callback else [])
        for value, known in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(value, known)
    optimizer = model.optimizer
    new = type(optimizer).from_config(optimizer.get_config())
    fit(compiled(new, model), epochs=1)
    assert (numpy(model.layers[0].kernel) != before[0]).any()


@pytest.mark.eager_and_compiled
def test_an_error_in_the_first_step_leaves_the_weights():
    model = compiled(sgld())
    fit(model, epochs=1)
    before = state_of(model)
    model.layers[0].trainable = False
    model.compile(sgld(), loss=Broken())
    with pytest.raises(RuntimeError, match="broken"):
        fit(model, epochs=1)
    after = state_of(model)
    for name in before:
        if name.startswith("weight"):
            np.testing.assert_array_equal(after[name], before[name])
    fit(compiled(sgld(), model), epochs=1)
