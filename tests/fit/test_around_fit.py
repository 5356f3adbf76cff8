"""What strangers ask and set around a fit, without a look at `self.model`."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.support.models import BATCH_SIZE
from tests.support.models import TRAIN_SIZE
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.samplers import SAMPLERS

LOSS = "sparse_categorical_crossentropy"


def sgld():
    return mh.SGLD(0.1, train_size=TRAIN_SIZE, seed=0)


def mhbt():
    return mh.MHBT(1e-4, train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, seed=1)


class Asks(keras.callbacks.Callback):
    """Ask the optimizer itself in an epoch."""

    def __init__(self, optimizer):
        super().__init__()
        self._optimizer, self.answers = optimizer, []

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self._optimizer
        optimizer.temperature_now()
        optimizer.mark_sample()
        optimizer.sample_info()
        nonfinite = optimizer.diagnostics()["nonfinite"]
        self.answers.append([bool(optimizer.has_stopped()), bool(nonfinite > 0)])
        assert optimizer.lost_chains() == optimizer.has_stopped()
        optimizer.reset_diagnostics()


def test_a_stop_is_known_within_the_epoch():
    x, y = data()
    x = x.copy()
    x[2 * BATCH_SIZE] = np.nan  # in the third of the batches
    model = compiled(sgld())
    callback = Asks(model.optimizer)
    with pytest.warns(UserWarning, match="at step 3"):
        model.fit(x, y, BATCH_SIZE, shuffle=False, verbose=0, callbacks=[callback])
    steps = TRAIN_SIZE // BATCH_SIZE
    assert callback.answers == [[step >= 2] * 2 for step in range(steps)]


@pytest.mark.parametrize("name", ["rsgld_paper", "sgld"])
def test_state_values_are_a_copy(name):
    model = compiled(SAMPLERS[name].make(seed=3))
    fit(model)
    state = model.optimizer.state_values()
    before = [ops.convert_to_numpy(x).copy() for x in state]
    fit(model)
    for value, old in zip(state, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(value), old)


@pytest.mark.parametrize("name", ["rsgld_paper", "sgld"])
def test_weights_that_somebody_sets_after_fit_are_the_state(name):
    model = compiled(SAMPLERS[name].make(seed=3))
    fit(model)
    halves = [np.full_like(value, 0.5) for value in model.get_weights()]
    model.set_weights(halves)
    for value in model.optimizer.state_values():
        np.testing.assert_array_equal(ops.convert_to_numpy(value), 0.5)
    model.optimizer.settle()
    for value, half in zip(model.get_weights(), halves, strict=True):
        np.testing.assert_array_equal(value, half)
    chains = mh.ParallelChains(sequential(), 1, start=[model])
    for weights in chains.trainable_variables:
        np.testing.assert_array_equal(ops.convert_to_numpy(weights), 0.5)


class SetsAtTheEnd(keras.callbacks.Callback):
    """As `EarlyStopping(restore_best_weights=True)` does."""

    def on_train_end(self, logs=None):
        self.model.set_weights([np.full_like(w, 0.5) for w in self.model.get_weights()])


def test_weights_that_a_callback_restores_stay():
    model = compiled(SAMPLERS["rsgld_paper"].make(seed=3))
    fit(model, callbacks=[mh.PosteriorSamples(), SetsAtTheEnd()])
    for value in model.get_weights():
        np.testing.assert_array_equal(value, 0.5)


def summed():
    return keras.losses.SparseCategoricalCrossentropy(reduction="sum")


def test_an_error_before_the_first_step_leaves_the_weights():
    x, y = data()
    model = sequential()
    before = model.get_weights()
    model.compile(sgld(), summed())
    with pytest.raises(ValueError, match="mean over the batch"):
        model.fit(x, y, verbose=0)
    for value, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, old)
    fit(compiled(sgld(), model))


def test_another_loss_is_seen_after_a_single_batch():
    x, y = data()
    model = compiled(sgld())
    model.train_on_batch(x, y)
    model.compile(model.optimizer, summed())
    with pytest.raises(ValueError, match="mean over the batch"):
        model.fit(x, y, verbose=0)


def test_other_weights_of_a_loss_are_told():
    x, y = data()
    model, sampler = sequential(), mhbt()
    model.compile(sampler, LOSS, loss_weights=[1.0])
    model.fit(x, y, BATCH_SIZE, verbose=0)
    model.compile(sampler, LOSS, loss_weights=[50.0])
    with pytest.warns(UserWarning, match="The loss has changed"):
        model.fit(x, y, BATCH_SIZE, verbose=0)


class WeightedLoss(keras.losses.Loss):
    """A cross-entropy of weighted classes, with an array in its configuration."""

    def __init__(self, of_classes, **options):
        super().__init__(**options)
        self.of_classes = np.asarray(of_classes, "float32")

    def get_config(self):
        return {**super().get_config(), "of_classes": self.of_classes}

    def call(self, y_true, y_pred):
        losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
        labels = ops.reshape(ops.cast(y_true, "int32"), (-1,))
        return losses * ops.take(ops.convert_to_tensor(self.of_classes), labels)


def test_a_loss_with_an_array_is_compared():
    x, y = data()
    model, sampler = sequential(), mhbt()
    classes = model.output_shape[-1]
    for _ in range(2):
        model.compile(sampler, WeightedLoss(np.ones(classes)))
        model.fit(x, y, BATCH_SIZE, verbose=0)
    model.compile(sampler, WeightedLoss(2.0 * np.ones(classes)))
    with pytest.warns(UserWarning, match="The loss has changed"):
        model.fit(x, y, BATCH_SIZE, verbose=0)


def test_sizes_cannot_be_changed():
    sampler = SAMPLERS["rsgld"].make(seed=3)
    for name in ("train_size", "batch_size", "prior", "seed"):
        with pytest.raises(AttributeError):
            setattr(sampler, name, 1)


@pytest.mark.parametrize("policy", ["bfloat16", "float16"])
def test_weights_in_half_precision_are_told(policy):
    layer = keras.layers.Dense(3, "softmax", dtype=policy)
    model = keras.Sequential([keras.Input((4,)), layer])
    with pytest.warns(UserWarning, match=f"half precision.*mixed_bfloat16.*{policy}"):
        mh.SGLD(0.1, train_size=10).build(model.trainable_variables)


class TwoOptimizers(keras.Model):
    """The pattern of a GAN: a sampler that is not the optimizer of `compile`."""

    def __init__(self, sampler):
        super().__init__()
        self.inner, self.sampler = sequential(), sampler
        self.loss_of = keras.losses.SparseCategoricalCrossentropy()

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        x, y = data
        weights = self.inner.trainable_variables
        if keras.backend.backend() == "torch":
            loss = self.sampler.scale_loss(self.loss_of(y, self.inner(x)))
            self.inner.zero_grad()
            loss.backward()
            gradients = [weight.value.grad for weight in weights]
        else:
            import tensorflow

            with tensorflow.GradientTape() as tape:
                loss = self.sampler.scale_loss(self.loss_of(y, self.inner(x)))
            gradients = tape.gradient(loss, [weight.value for weight in weights])
        self.sampler.apply(gradients, weights)
        return {"loss": loss}


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="another train_step")
def test_a_fit_that_does_not_know_its_sampler_is_told():
    sampler = SAMPLERS["rsgld_paper"].make(seed=3)
    model = TwoOptimizers(sampler)
    sampler.build(model.inner.trainable_variables)
    model.compile()
    x, y = data()
    with pytest.warns(UserWarning, match="not compiled with it.*`settle") as told:
        model.fit(x, y, BATCH_SIZE, epochs=2, verbose=0)
    assert len([w for w in told if "compiled with it" in str(w.message)]) == 1
