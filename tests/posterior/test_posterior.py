"""Keeping, storing and averaging samples."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.posterior import files as sample_files
from tests.support import models
from tests.support.models import BATCH_SIZE
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import TRAIN_SIZE
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import PAPER

BACKEND = keras.backend.backend()
STEPS = TRAIN_SIZE // BATCH_SIZE


def sgld(**options):
    return mh.SGLD(0.05, **({"train_size": TRAIN_SIZE, "seed": 3} | options))


def rsgld():
    return mh.RSGLD(0.1, train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, seed=3, **PAPER)


class StateOfEachStep(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.states = {}

    def on_train_batch_end(self, batch, logs=None):
        model = self.model
        iteration = int(model.optimizer.iterations)
        states = [numpy(value) for value in model.optimizer.state_values()]
        self.states[iteration] = states


@pytest.mark.parametrize("make", [sgld, rsgld])
def test_burn_in_and_every_count_iterations(make):
    model = compiled(make())
    spy = StateOfEachStep()
    posterior = mh.PosteriorSamples(burn_in=4, every=5)
    fit(model, epochs=4, callbacks=[spy, posterior])
    assert posterior.iterations.tolist() == [9, 14, 19, 24]
    assert len(posterior) == 4
    np.testing.assert_array_equal(posterior.weights, np.ones(4))
    # In the middle of an epoch too, a sample is the state and never the proposal.
    ensemble = posterior.ensemble(model)
    for index, iteration in enumerate(posterior.iterations):
        for stacked, state in zip(
            ensemble._values, spy.states[int(iteration)], strict=True
        ):
            np.testing.assert_array_equal(numpy(stacked)[index], state)


def test_watching_does_not_change_the_chain():
    plain, watched = compiled(rsgld()), compiled(rsgld())
    fit(plain, callbacks=[mh.PosteriorSamples()], epochs=3)
    fit(watched, callbacks=[mh.PosteriorSamples(every=1)], epochs=3)
    np.testing.assert_array_equal(weights(plain), weights(watched))


def test_default_is_once_an_epoch_and_max_samples_keeps_the_newest():
    model = compiled(sgld())
    posterior = mh.PosteriorSamples(burn_in=STEPS, max_samples=2)
    fit(model, epochs=4, callbacks=[posterior])
    assert posterior.iterations.tolist() == [3 * STEPS, 4 * STEPS]


def test_a_second_fit_goes_on():
    model = compiled(sgld())
    posterior = mh.PosteriorSamples(every=4)
    fit(model, epochs=1, callbacks=[posterior])
    fit(model, epochs=2, callbacks=[posterior])
    assert posterior.iterations.tolist() == [4, 8, 12, 16]


def test_another_run_removes_samples_with_a_warning():
    posterior = mh.PosteriorSamples(every=4)
    fit(compiled(sgld()), epochs=2, callbacks=[posterior])
    with pytest.warns(UserWarning, match="removed 3 samples from after iteration 0"):
        fit(compiled(sgld()), epochs=1, callbacks=[posterior])
    assert posterior.iterations.tolist() == [4]


def test_a_plain_keras_optimizer_works():
    model = compiled(keras.optimizers.SGD(0.1))
    posterior = mh.PosteriorSamples()
    history = fit(model, epochs=2, callbacks=[posterior])
    assert len(posterior) == 2
    assert "energy" not in history.history


@pytest.mark.parametrize(
    "options",
    [
        {"burn_in": -1},
        {"burn_in": 1.5},
        {"every": 0},
        {"every": -3},
        {"max_samples": 0},
    ],
)
def test_bad_arguments_are_named(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=rf"`{name}`.*Received: {name}={value}"):
        mh.PosteriorSamples(**options)


@pytest.mark.parametrize("options", [{"burn_in": 12}, {"every": 13}])
def test_a_fit_that_can_keep_nothing_is_refused(options):
    with pytest.raises(ValueError, match="burn_in"):
        fit(compiled(sgld()), epochs=2, callbacks=[mh.PosteriorSamples(**options)])


def test_an_empty_ensemble_is_refused():
    posterior = mh.PosteriorSamples()
    for call in (lambda: posterior.ensemble(sequential()), posterior.to_arviz):
        with pytest.raises(ValueError, match="no samples"):
            call()


def test_directory_holds_one_file_each_and_loads(tmp_path):
    model = compiled(rsgld())
    posterior = mh.PosteriorSamples(directory=tmp_path, burn_in=2, every=5)
    in_memory = mh.PosteriorSamples(burn_in=2, every=5)
    fit(model, epochs=4, callbacks=[posterior, in_memory])
    files = [f"sample-{i:010d}.h5" for i in (7, 12, 17, 22)]
    assert sorted(os.listdir(tmp_path)) == ["base.h5", "manifest.json", *files]

    loaded = mh.PosteriorSamples.load(tmp_path)
    assert loaded.iterations.tolist() == [7, 12, 17, 22]
    before = weights(model)
    x, _ = data()
    predictions = [
        one.ensemble(model).predict(x, verbose=0) for one in (loaded, in_memory)
    ]
    np.testing.assert_array_equal(*predictions)
    np.testing.assert_array_equal(weights(model), before)
    # Another object of the same architecture will do, compiled or not.
    again = loaded.ensemble(sequential()).predict(x, verbose=0)
    np.testing.assert_array_equal(again, predictions[0])
    # The optimizer's slots are left out of the files.
    size = os.path.getsize(tmp_path / files[0])
    model.save_weights(tmp_path / "all.weights.h5")
    assert size < os.path.getsize(tmp_path / "all.weights.h5")


def test_directory_max_samples_removes_files(tmp_path):
    model = compiled(sgld())
    fit(
        model,
        epochs=3,
        callbacks=[mh.PosteriorSamples(directory=tmp_path, max_samples=2)],
    )
    assert len(os.listdir(tmp_path)) == 4
    assert mh.PosteriorSamples.load(tmp_path).iterations.tolist() == [12, 18]


def test_a_directory_of_another_model_is_refused(tmp_path):
    fit(compiled(sgld()), callbacks=[mh.PosteriorSamples(directory=tmp_path)])
    other = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")]
    )
    with pytest.raises(ValueError, match="another model"):
        fit(
            compiled(sgld(), other),
            callbacks=[mh.PosteriorSamples(directory=tmp_path)],
        )
    with pytest.raises(ValueError, match="another model"):
        mh.PosteriorSamples.load(tmp_path).ensemble(other)


def test_a_directory_of_another_run_is_refused(tmp_path):
    fit(compiled(sgld()), callbacks=[mh.PosteriorSamples(directory=tmp_path)])
    with pytest.raises(ValueError, match="iteration 0"):
        fit(compiled(sgld()), callbacks=[mh.PosteriorSamples(directory=tmp_path)])


def test_a_resumed_run_goes_on_in_its_directory(tmp_path):
    whole = compiled(rsgld())
    fit(whole, epochs=4, callbacks=[mh.PosteriorSamples(directory=tmp_path / "whole")])

    model = compiled(rsgld())
    parts = tmp_path / "parts"
    fit(model, epochs=2, callbacks=[mh.PosteriorSamples(directory=parts)])
    model.save(tmp_path / "model.keras")
    # One more epoch is lost with the process; its sample is drawn again.
    fit(model, epochs=1, callbacks=[mh.PosteriorSamples(directory=parts)])
    model = keras.models.load_model(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="1 samples from after iteration 12") as caught:
        fit(model, epochs=2, callbacks=[mh.PosteriorSamples(directory=parts)])
    # At a line of the user, and not of Keras or of this package.
    (found,) = [w for w in caught if "samples from after" in str(w.message)]
    assert found.filename == models.__file__

    x, _ = data()
    one, other = (
        mh.PosteriorSamples.load(tmp_path / name).ensemble(model).predict(x, verbose=0)
        for name in ("whole", "parts")
    )
    assert mh.PosteriorSamples.load(parts).iterations.tolist() == [6, 12, 18, 24]
    np.testing.assert_array_equal(one, other)


def test_a_missing_or_empty_directory_is_named(tmp_path):
    with pytest.raises(ValueError, match="directory="):
        mh.PosteriorSamples.load(tmp_path / "nowhere")


_HOLDER = """
import sys, time
from keras_mhmcmc.posterior import files
files.lock(sys.argv[1], None)
print("held", flush=True)
time.sleep(600)
"""


def test_a_directory_that_another_process_writes_to_is_refused(tmp_path):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": root},
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="`directory`.*another process"):
            fit(compiled(sgld()), callbacks=[mh.PosteriorSamples(directory=tmp_path)])
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    # The lock of a killed process is gone; one of this process is given back.
    for directory in (tmp_path, tmp_path / "a"):
        fit(compiled(sgld()), callbacks=[mh.PosteriorSamples(directory=directory)])
    here = os.path.realpath(tmp_path)
    assert not [key for key in sample_files._LOCKED if key.startswith(here)]


def test_a_directory_that_another_run_filled_meanwhile_is_refused(tmp_path):
    early = mh.PosteriorSamples(directory=tmp_path)
    fit(compiled(sgld()), callbacks=[mh.PosteriorSamples(directory=tmp_path)])
    with pytest.raises(ValueError, match="empty for a new run.*holds 2 samples"):
        fit(compiled(sgld()), callbacks=[early])
    assert len(mh.PosteriorSamples.load(tmp_path)) == 2


def test_to_arviz_has_the_chain_axis(tmp_path):
    model = compiled(sgld())
    posterior = mh.PosteriorSamples(every=2)
    fit(model, epochs=2, callbacks=[posterior])
    group = posterior.to_arviz()["posterior"]
    kernel = model.trainable_variables[0]
    assert group[kernel.path].shape == (1, 6, FEATURES, 7)
    np.testing.assert_array_equal(np.asarray(group[kernel.path])[0, -1], numpy(kernel))
