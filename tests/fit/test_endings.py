"""How a run ends: by Ctrl-C, without a finite state, with layers that were frozen."""

import signal

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import BATCH_SIZE
from tests.support.models import TRAIN_SIZE
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import SAMPLERS


@pytest.fixture
def ctrl_c():
    """Python's own handler, whatever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Press(keras.callbacks.Callback):
    """Ctrl-C in the middle of an epoch, before a mini-batch."""

    def __init__(self, times=1):
        super().__init__()
        self._times = times

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 3:
            for _ in range(self._times):
                signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("name", ["rsgld_paper", "sghmc"])
def test_ctrl_c_leaves_the_state_in_the_model(name, tmp_path, ctrl_c):
    model = compiled(SAMPLERS[name].make(seed=3))
    posterior = mh.PosteriorSamples(every=1, directory=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[posterior, Press()])
    assert posterior.iterations.tolist() == [1, 2, 3, 4]
    state = [numpy(value) for value in model.optimizer.state_values()]
    for variable, value in zip(model.trainable_variables, state, strict=True):
        np.testing.assert_array_equal(numpy(variable), value)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # The model goes on, in the same directory.
    fit(model, epochs=1, callbacks=[posterior])
    assert len(mh.PosteriorSamples.load(tmp_path)) == 10


def test_ctrl_c_loses_no_sample_of_several_callbacks(ctrl_c):
    model = compiled(SAMPLERS["rsgld_paper"].make(seed=3))
    first, second = mh.PosteriorSamples(every=1), mh.PosteriorSamples(every=1)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[first, second, Press()])
    for posterior in (first, second):
        assert posterior.iterations.tolist() == [1, 2, 3, 4]


def test_a_second_ctrl_c_interrupts_at_once(ctrl_c):
    model = compiled(SAMPLERS["rsgld_paper"].make(seed=3))
    posterior = mh.PosteriorSamples(every=1)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[posterior, Press(times=2)])
    assert posterior.iterations.tolist() == [1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_after_a_fit_that_failed_is_pythons_own(ctrl_c):
    class Boom(Exception):
        pass

    def fail(epoch, logs):
        raise Boom

    model = compiled(SAMPLERS["sgld"].make(seed=3))
    callbacks = [
        mh.PosteriorSamples(),
        keras.callbacks.LambdaCallback(on_epoch_end=fail),
    ]
    with pytest.raises(Boom):
        fit(model, callbacks=callbacks)
    # A new fit takes over from the one that failed, of this model or of another.
    for taking in (model, compiled(SAMPLERS["sgld"].make(seed=3))):
        again = mh.PosteriorSamples(every=1)
        with pytest.raises(KeyboardInterrupt):
            fit(taking, callbacks=[again, Press()])
        assert np.diff(again.iterations).tolist() == [1, 1, 1]
        with pytest.raises(Boom):
            fit(model, callbacks=callbacks)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_sampler_that_stopped_before_its_first_sample_says_so():
    x, y = data()
    x = np.where(np.arange(len(x))[:, None] == 20, np.inf, x)  # in the second batch
    model = compiled(SAMPLERS["sghmc"].make(seed=3))
    posterior = mh.PosteriorSamples(burn_in=8)
    with pytest.warns(UserWarning, match="stopped by SGHMC at step 2"):
        model.fit(
            x,
            y,
            batch_size=BATCH_SIZE,
            epochs=3,
            shuffle=False,
            verbose=0,
            callbacks=[posterior],
        )
    with pytest.raises(ValueError, match="due at iteration 9.*at step 2.*not finite"):
        posterior.ensemble(model)


def test_a_chain_without_any_finite_point_gives_no_sample():
    model = compiled(SAMPLERS["rsgld"].make(seed=1))
    kernel = model.trainable_variables[0]
    kernel.assign(np.nan * numpy(kernel))
    posterior = mh.PosteriorSamples()
    with pytest.warns(UserWarning, match="RSGLD has no state to sample"):
        fit(model, callbacks=[posterior])
    with pytest.raises(ValueError, match="RSGLD has no state to sample"):
        posterior.ensemble(model)


def test_other_chains_are_sampled_where_one_was_stopped(tmp_path):
    """The stopped one keeps its samples from before it was stopped."""
    model = mh.ParallelChains(sequential(), 3, seed=0)
    model = compiled(mh.SGHMC(0.02, train_size=TRAIN_SIZE, seed=3), model)
    stores = [mh.PosteriorSamples(), mh.PosteriorSamples(directory=tmp_path)]

    class Break(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                kernel = self.model.trainable_variables[0]
                values = numpy(kernel).copy()
                values[1] = np.nan
                kernel.assign(values)

    with pytest.warns(UserWarning, match=r"Chains \[1\] of 3 were stopped"):
        history = fit(model, epochs=5, callbacks=[*stores, Break()])
    assert len(history.epoch) == 5
    assert np.isfinite(history.history["energy"]).all()
    x, _ = data()
    for posterior in (*stores, mh.PosteriorSamples.load(tmp_path)):
        assert len(posterior) == 5
        # The sample after the second epoch was never evaluated.
        np.testing.assert_array_equal(posterior.weights[1:, 1], 0.0)
        assert posterior.weights[0, 1] > 0.0
        assert np.isnan(posterior.energies[1:, 1]).all()
        assert np.isfinite(posterior.energies[:, [0, 2]]).all()
        ensemble = posterior.ensemble(model)
        assert ensemble.num_members == 5 * 3 - 4
        assert np.isfinite(ensemble.predict(x, verbose=0)).all()
        with pytest.warns(UserWarning, match=r"Chains \[1\] of 3 are left out"):
            assert posterior.predictions(model, x).shape[:2] == (2, 5)
        with pytest.warns(UserWarning, match=r"Chains \[1\] of 3 are left out"):
            group = posterior.to_arviz(model)["posterior"]
        assert group[model.template.trainable_variables[1].path].shape[:2] == (2, 5)


@pytest.mark.parametrize("callbacks", [0, 1])
@pytest.mark.parametrize("name", ["rsgld_paper", "sghmc"])
def test_layers_that_are_frozen_after_a_fit_ask_for_a_new_sampler(name, callbacks):
    model = compiled(SAMPLERS[name].make(seed=3))
    posterior = mh.PosteriorSamples(every=1)
    fit(model, epochs=1, callbacks=[posterior])
    before = weights(model)
    model.layers[0].trainable = False
    if callbacks == 0 and keras.backend.backend() != "torch":
        return  # Keras refuses on JAX, and on TensorFlow keeps the step it has traced
    with pytest.raises(ValueError, match=r"`layer.trainable`.*2 frozen variables"):
        fit(model, epochs=1, callbacks=[posterior][:callbacks])
    model.layers[0].trainable = True
    np.testing.assert_array_equal(weights(model), before)
    assert len(posterior) == 6
    model.layers[0].trainable = False
    model.compile(SAMPLERS[name].make(seed=4), "sparse_categorical_crossentropy")
    again = mh.PosteriorSamples(every=1)
    fit(model, epochs=1, callbacks=[again])
    assert again.ensemble(model).num_members == 6


@pytest.mark.parametrize("callbacks", [0, 1])
@pytest.mark.parametrize("name", ["rsgld", "sghmc"])
def test_a_sampler_of_another_model_is_refused(name, callbacks):
    """The slip of a cross-validation that makes its optimizer outside the loop."""
    sampler = SAMPLERS[name].make(seed=3)
    fit(compiled(sampler), epochs=1)
    second = compiled(sampler)
    before = weights(second)
    # Keras refuses as well on TensorFlow and PyTorch, where nobody else did.
    with pytest.raises(ValueError, match="new for each model|nknown variable"):
        fit(second, epochs=1, callbacks=[mh.PosteriorSamples()][:callbacks])
    if callbacks or keras.backend.backend() != "jax":  # an error in a step empties it
        np.testing.assert_array_equal(weights(second), before)
