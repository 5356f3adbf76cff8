"""What strangers do around a step: in handlers, callbacks and loops of their own."""

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


class OfTheUser(Exception):
    """Something that the caller of `fit` handles."""


def fit_in_handler(model, x, y, **options):
    """Fit as in `try: load() except FileNotFoundError: model.fit(...)`."""
    try:
        raise OfTheUser
    except OfTheUser:
        return model.fit(x, y, BATCH_SIZE, verbose=0, **options)


def strict_sgld():
    return mh.SGLD(0.1, train_size=TRAIN_SIZE, nan_policy="raise", seed=0)


def test_a_fit_in_a_handler_tells_of_a_lost_chain():
    x, y = data()
    model = compiled(strict_sgld())
    with pytest.raises(FloatingPointError):
        fit_in_handler(model, np.nan * x, y)


def test_a_fit_in_a_handler_tests_its_path():
    x, y = data()
    model = compiled(mh.AMAGOLD(0.001, train_size=TRAIN_SIZE, warm_up=0, seed=0))
    fit_in_handler(model, x, y, epochs=1)
    assert not model.optimizer.lost_chains().any()
    fit_in_handler(model, x, y, epochs=1)
    assert not model.optimizer.lost_chains().any()


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise OfTheUser


def test_the_error_of_a_callback_is_not_hidden():
    x, y = data()
    with pytest.raises(OfTheUser):
        compiled(strict_sgld()).fit(np.nan * x, y, verbose=0, callbacks=[Fails()])


class Settles(keras.callbacks.Callback):
    """Settle through a reference of its own, without a look at `self.model`."""

    def __init__(self, optimizer):
        super().__init__()
        self._optimizer, self.states = optimizer, []

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self._optimizer.settle()
            state = self._optimizer.state_values()
            self.states.append([ops.convert_to_numpy(x).copy() for x in state])
            weights = [ops.convert_to_numpy(v) for v in self.model.trainable_variables]
            for value, weight in zip(self.states[-1], weights, strict=True):
                np.testing.assert_array_equal(value, weight)


@pytest.mark.parametrize("name", ["rsgld_paper", "rsgld"])
def test_settle_within_an_epoch_puts_the_state_into_the_model(name):
    model = compiled(SAMPLERS[name].make(seed=3))
    callback = Settles(model.optimizer)
    fit(model, epochs=2, callbacks=[callback])
    assert len(callback.states) == 2


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="jax.jit")
@pytest.mark.parametrize("name", ["rsgld", "sgld"])
def test_a_compiled_gradient_without_the_step(name):
    import jax

    x, y = data()
    model, optimizer = sequential(), SAMPLERS[name].make(seed=3)
    loss = keras.losses.SparseCategoricalCrossentropy()
    optimizer.build(model.trainable_variables)

    def scaled(trainable, others, x, y):
        outputs, _ = model.stateless_call(trainable, others, x, training=True)
        return optimizer.scale_loss(loss(y, outputs))

    trainable = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]
    slots = [v.value for v in optimizer.variables]
    _, gradients = jax.jit(jax.value_and_grad(scaled))(trainable, others, x, y)
    if name == "rsgld":
        with pytest.raises(ValueError, match="`stateless_apply` in the same compiled"):
            optimizer.stateless_apply(slots, gradients, trainable)
    else:  # needs no energy
        moved, _ = optimizer.stateless_apply(slots, gradients, trainable)
        assert not np.allclose(moved[0], trainable[0])


def test_a_rate_of_zero_stops_amagold():
    model = compiled(mh.AMAGOLD(0.001, train_size=TRAIN_SIZE, warm_up=0, seed=0))
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch: [0.001, 0.0][epoch > 0]),
        mh.PosteriorSamples(),
    ]
    with pytest.raises(ValueError, match="must stay greater than 0"):
        fit(model, epochs=3, callbacks=callbacks)


class AsksInItsConstructor(keras.Model):
    """A model that goes on from the state of another one's sampler."""

    def __init__(self, sampler):
        self.state = sampler.state_values()  # Keras' own constructor has not run
        super().__init__()

    def again(self, sampler):
        return sampler.state_values()


def test_a_model_without_an_optimizer_asks_for_the_state():
    model = compiled(SAMPLERS["rsgld_paper"].make(seed=3))
    fit(model)
    asks = AsksInItsConstructor(model.optimizer)
    for value, again in zip(asks.state, asks.again(model.optimizer), strict=True):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(value), ops.convert_to_numpy(again)
        )
