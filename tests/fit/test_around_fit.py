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


def sgld():
    return mh.SGLD(0.1, train_size=TRAIN_SIZE, seed=0)


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
