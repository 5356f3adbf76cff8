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
from tests.support.process_tasks import samples_of
from tests.support.process_tasks import state_of
from tests.support.samplers import AT_ONCE


def sgld():
    return mh.SGLD(0.05, train_size=96, seed=0)


def rsgld():
    return mh.RSGLD(0.05, train_size=96, batch_size=16, seed=0, **AT_ONCE)


def with_lora(frozen=False):
    keras.utils.set_random_seed(0)
    model = sequential()
    model.layers[0].enable_lora(2)
    model.layers[0].bias.trainable = not frozen
    return model


def of_every_layer():
    """Each layer of Keras that has LoRA, and generators."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((FEATURES,)),
        keras.layers.Dense(6, lora_rank=1, dtype="mixed_bfloat16"),
        keras.layers.Reshape((6, 1)),
        keras.layers.Conv1D(3, 2, activation="tanh", lora_rank=1),
        keras.layers.EinsumDense("abc,cd->abd", (None, 4), lora_rank=1),
        keras.layers.Dropout(0.5, seed=3),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(CLASSES, "softmax"),
    ]
    return keras.Sequential(layers)


def embedded():
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((FEATURES,)),
        keras.layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0]),
        keras.layers.Embedding(4, 3, lora_rank=2),
        keras.layers.Flatten(),
        keras.layers.Dense(CLASSES, "softmax"),
    ]
    return keras.Sequential(layers)


def quantized():
    keras.utils.set_random_seed(0)
    model = sequential()
    model.layers[0].quantize("int8")
    model.layers[0].enable_lora(2)
    return model


def tied():
    """A layer stands in two networks. Keras makes two of it, and cannot load them."""
    keras.utils.set_random_seed(0)
    shared = keras.layers.Dense(FEATURES, "tanh", lora_rank=1)
    x = keras.Input((FEATURES,))
    body = keras.Sequential([shared, keras.layers.LayerNormalization()])
    body.layers[1].trainable = False
    y = keras.layers.Dense(CLASSES, "softmax")(shared(body(x)))
    return keras.Model(x, y)


@keras.saving.register_keras_serializable()
class Named(keras.Model):
    """Keras loads its optimizer between its two layers."""

    def __init__(self, **options):
        super().__init__(**options)
        self.early = keras.layers.Dense(6, "tanh", lora_rank=2)
        self.zone = keras.layers.Dense(CLASSES, "softmax", lora_rank=1)

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
    return mh.ParallelChains(with_lora(), 2, seed=0)


MODELS = [
    with_lora,
    of_every_layer,
    embedded,
    quantized,
    subclassed,
    chains,
    partial(with_lora, frozen=True),
]


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
    (with_lora, sgld, loaded),
    *[(make, rsgld, loaded) for make in MODELS[:-1]],
    (MODELS[-1], rsgld, made_again),
    (subclassed, rsgld, made_again),
    (tied, rsgld, made_again),
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


def test_samples_in_a_directory_go_on(tmp_path):
    whole = compiled(rsgld(), with_lora())
    fit(whole, epochs=4, callbacks=[mh.PosteriorSamples(directory=tmp_path / "a")])
    first = compiled(rsgld(), with_lora())
    fit(first, epochs=2, callbacks=[mh.PosteriorSamples(directory=tmp_path / "b")])
    first.save(tmp_path / "m.keras")
    other = keras.models.load_model(tmp_path / "m.keras")
    fit(other, epochs=2, callbacks=[mh.PosteriorSamples(directory=tmp_path / "b")])
    assert_same(state_of(other), state_of(whole))
    assert_same(samples_of(other, tmp_path / "b"), samples_of(whole, tmp_path / "a"))


def test_a_backup_goes_on(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise InterruptedError

    def run(*others):
        model = compiled(rsgld(), with_lora(frozen=True))
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        fit(model, epochs=4, callbacks=[backup, *others])
        return model

    with pytest.raises(InterruptedError):
        run(Stop())
    whole = compiled(rsgld(), with_lora(frozen=True))
    fit(whole, epochs=4)
    assert_same(state_of(run()), state_of(whole))


@pytest.mark.parametrize("sampler", [sgld, rsgld])
@pytest.mark.parametrize("make", [MODELS[-1], sequential], ids=["lora", "dense"])
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


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize(
    "first",
    [
        "predict",
        "evaluate",
        pytest.param("save", marks=pytest.mark.slow),  # half a minute on JAX
        "call",
        "goes on",
    ],
)
def test_an_ensemble_keeps_an_architecture_of_its_own(first, tmp_path):
    """LoRA of the model after sampling changes nothing in the ensemble."""
    model, posterior = compiled(sgld()), mh.PosteriorSamples()
    fit(model, epochs=2, callbacks=[posterior])
    x, y = data()
    expected = posterior.ensemble(model).predict_members(x)
    ensemble = posterior.ensemble(model)
    model.layers[0].enable_lora(2)
    if first == "predict":
        found = ensemble.predict(x, verbose=0)
        np.testing.assert_allclose(found, expected.mean(axis=0), atol=1e-6)
    elif first == "evaluate":
        assert np.isfinite(ensemble.evaluate(x, y, verbose=0)).all()
    elif first == "save":
        ensemble.save(tmp_path / "e.keras")
        ensemble = keras.models.load_model(tmp_path / "e.keras")
    elif first == "call":
        found = numpy(ensemble(x))
        np.testing.assert_allclose(found, expected.mean(axis=0), atol=1e-6)
    else:  # a model that is trained on, and another one of its samples
        fit(compiled(sgld(), model), epochs=1)
        assert len(ensemble.member.weights) == 4 < len(model.weights)
        again = posterior.ensemble(sequential()).predict_members(x)
        np.testing.assert_allclose(again, expected, atol=1e-6)
    np.testing.assert_allclose(ensemble.predict_members(x), expected, atol=1e-6)


class OneLayer(keras.Model):
    """A model of a stranger, which Keras cannot make again: `units` is no attribute."""

    def __init__(self, units):
        super().__init__()
        self.dense = keras.layers.Dense(units)
        self.build((None, 3))

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, inputs):
        return self.dense(inputs)


def test_an_ensemble_of_a_model_without_a_copy_says_that_it_has_changed():
    model = OneLayer(2)
    ensemble = mh.Ensemble(model, num_members=2)
    expected = ensemble.predict(np.ones((4, 3)), verbose=0)
    ensemble = mh.Ensemble(model, num_members=2)
    model.dense.enable_lora(1)
    assert "num_members=2" in repr(ensemble) and expected.shape == (4, 2)
    with pytest.raises(ValueError, match="same class.*4 weights, which had 2"):
        ensemble.predict_members(np.ones((4, 3)))


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
