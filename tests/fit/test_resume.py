"""A run that stops and goes on equals one that never stopped, bit for bit."""

import os
import shutil
import signal
from functools import partial

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.process_tasks import samples_of
from tests.support.process_tasks import state_of
from tests.support.process_tasks import with_backup
from tests.support.samplers import SAMPLERS

EPOCHS, FIRST, EVERY = 6, 2, 5  # six iterations an epoch


def sampler(name):
    return SAMPLERS[name].make(seed=3)


def chains(name):
    return compiled(sampler(name), mh.ParallelChains(sequential(), 3, seed=0))


def with_state(name):
    """A model with moving statistics and a random generator."""
    layers = [
        keras.Input((FEATURES,)),
        keras.layers.BatchNormalization(momentum=0.5),
        keras.layers.Dropout(0.5, seed=4),
        keras.layers.Dense(CLASSES, "softmax", kernel_initializer="ones"),
    ]
    return compiled(sampler(name), keras.Sequential(layers))


BUILDERS = {
    **{name: partial(lambda n: compiled(sampler(n)), name) for name in SAMPLERS},
    "chains_of_rsgld": partial(chains, "rsgld"),
    "chains_of_csgld": partial(chains, "csgld"),
    "moving_statistics_and_dropout_with_sghmc": partial(with_state, "sghmc"),
    "moving_statistics_and_dropout_with_rsgld": partial(with_state, "rsgld"),
}


# One of each kind of state in the short form: noise and slots, a pending proposal, a
# sample that waits for its weight, chains, generators. `test_contract` has all of them
# within one process.
SHORT = [
    "rsgld",
    "csghmc",
    "chains_of_csgld",
    "moving_statistics_and_dropout_with_rsgld",
]


def marked(names, short):
    return [n if n in short else pytest.param(n, marks=pytest.mark.slow) for n in names]


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


class Snapshot(keras.callbacks.Callback):
    """The model and the samples after some epochs, as a copy."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == FIRST:
            self.model.save(self._folder / "model.keras")
            shutil.copytree(self._folder / "samples", self._folder / "copy")


class Whole:
    """A run that never stopped."""

    def __init__(self, name, folder):
        self.folder = folder
        model, directory = BUILDERS[name](), folder / "samples"
        posterior = mh.PosteriorSamples(every=EVERY, directory=directory)
        fit(model, epochs=EPOCHS, callbacks=[posterior, Snapshot(folder)])
        self.result = state_of(model) | samples_of(model, directory)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    runs = {}

    def get(name):
        if name not in runs:
            runs[name] = Whole(name, tmp_path_factory.mktemp(name))
        return runs[name]

    return get


def goes_on_in_a_new_process(processes, model, samples):
    """What a new process makes of the rest of a run."""
    result = samples.parent / "result.npz"
    processes.run(
        "go_on",
        path=str(model),
        directory=str(samples),
        every=EVERY,
        epochs=EPOCHS - FIRST,
        result=str(result),
    )
    with np.load(result) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", marked(BUILDERS, SHORT))
def test_a_new_process_goes_on_bit_for_bit(name, uninterrupted, processes):
    whole = uninterrupted(name)
    result = goes_on_in_a_new_process(
        processes, whole.folder / "model.keras", whole.folder / "copy"
    )
    assert result["iterations"].tolist() == [5, 10, 15, 20, 25, 30, 35]
    # The second part did something, and there is something to lose.
    assert (result["sample 0"][1] != result["sample 0"][-1]).any()
    assert_same(result, whole.result)


# Whether the samples come before the callback that saves.
either_order = partial(pytest.mark.parametrize, "is_first")


@either_order(marked([True, False], [False]))
def test_a_backup_goes_on_after_the_death_of_its_process(
    is_first, uninterrupted, processes, tmp_path
):
    result = tmp_path / "result.npz"
    task = dict(
        name="csghmc",
        folder=str(tmp_path),
        epochs=EPOCHS,
        every=EVERY,
        is_first=is_first,
        result=str(result),
    )
    process = processes.start("backed_up", **task, stop_in=2)
    assert processes.wait(process) == -signal.SIGKILL, processes.errors()
    # Sample 10 is there, and so is its provisional weight: of the point before it.
    died = mh.PosteriorSamples.load(tmp_path / "samples")
    assert died.iterations.tolist() == [5, 10, 15][: len(died)]
    assert not result.exists()
    processes.run("backed_up", **task, stop_in=None)
    with np.load(result) as result:
        assert_same(dict(result), uninterrupted("csghmc").result)


@pytest.mark.slow
def test_a_backup_of_a_finished_run_adds_nothing(uninterrupted, tmp_path):
    run = partial(with_backup, partial(sampler, "csghmc"), tmp_path, EPOCHS, EVERY)
    run()
    model = run()
    assert_same(
        state_of(model) | samples_of(model, tmp_path / "samples"),
        uninterrupted("csghmc").result,
    )


def checkpointed(name, folder, is_first, is_whole, **options):
    """An uninterrupted run that saves its model after each epoch."""
    model = BUILDERS[name]()
    ending = "keras" if is_whole else "weights.h5"
    callbacks = [
        mh.PosteriorSamples(directory=os.path.join(folder, "samples")),
        keras.callbacks.ModelCheckpoint(
            os.path.join(folder, "{epoch}." + ending), save_weights_only=not is_whole
        ),
    ]
    if not is_first:
        callbacks.reverse()
    fit(model, epochs=EPOCHS, callbacks=callbacks, **options)
    return model


def restored(name, folder, epoch, is_whole):
    if is_whole:
        return keras.models.load_model(folder / f"{epoch}.keras")
    model = BUILDERS[name]()
    model.optimizer.build(model.trainable_variables)
    model.load_weights(folder / f"{epoch}.weights.h5")
    return model


@either_order(marked([True, False], [False]))
@pytest.mark.parametrize(
    "name, is_whole",
    [
        ("rsgld", True),
        pytest.param("rsgld", False, marks=pytest.mark.slow),
        pytest.param("csghmc", True, marks=pytest.mark.slow),
        pytest.param("chains_of_rsgld", False, marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_holds_the_state_and_goes_on(name, is_whole, is_first, tmp_path):
    model = checkpointed(name, tmp_path, is_first, is_whole)
    expected = state_of(model) | samples_of(model, tmp_path / "samples")
    # Each file has the sample of its epoch, and that is the state of the chain.
    count = len(model.weights)
    for epoch in range(1, EPOCHS + 1):
        loaded = restored(name, tmp_path, epoch, is_whole)
        state = list(state_of(loaded).values())[:count]
        for i, value in enumerate(state):
            np.testing.assert_array_equal(value, expected[f"sample {i}"][epoch - 1])
    # Samples from after the checkpoint are removed and drawn again.
    loaded = restored(name, tmp_path, FIRST, is_whole)
    posterior = mh.PosteriorSamples(directory=tmp_path / "samples")
    with pytest.warns(UserWarning, match="4 samples from after iteration 12"):
        fit(loaded, epochs=EPOCHS - FIRST, callbacks=[posterior])
    found = state_of(loaded) | samples_of(loaded, tmp_path / "samples")
    assert_same(found, expected)


def test_a_checkpoint_without_samples_is_settled_by_hand(tmp_path):
    """The file holds a proposal, and with it the state that it starts from."""
    model = compiled(sampler("rsgld"))
    states = {}

    class States(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            values = self.model.optimizer.state_values()
            states[epoch] = [keras.ops.convert_to_numpy(v) for v in values]

    path = tmp_path / "{epoch}.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(path)
    fit(model, epochs=3, callbacks=[checkpoint, States()])
    moved = []
    for epoch, known in states.items():  # a refresh proposes to stay
        loaded = keras.models.load_model(tmp_path / f"{epoch + 1}.keras")
        pairs = zip(loaded.get_weights(), known, strict=True)
        moved.append(any((p != s).any() for p, s in pairs))
        loaded.optimizer.settle()
        for value, state in zip(loaded.get_weights(), known, strict=True):
            np.testing.assert_array_equal(value, state)
    assert any(moved)


def test_a_resumed_run_in_memory_keeps_its_distances(tmp_path):
    model = compiled(sampler("sgld"))
    fit(model, epochs=2)
    posterior = mh.PosteriorSamples(every=5)
    fit(model, epochs=3, callbacks=[posterior])
    # Not 13, although the multiple 10 was passed before this `fit`.
    assert posterior.iterations.tolist() == [15, 20, 25, 30]
    with pytest.raises(ValueError, match="ends at iteration 36.*kept at 40"):
        fit(model, epochs=1, callbacks=[mh.PosteriorSamples(every=40)])


def test_a_sample_of_metropolis_hastings_has_its_own_energy():
    class Energies(keras.callbacks.Callback):
        seen = []

        def on_epoch_end(self, epoch, logs=None):
            self.seen.append(float(self.model.optimizer.sample_info().energy))

    posterior, energies = mh.PosteriorSamples(), Energies()
    fit(compiled(sampler("rsgld")), epochs=9, callbacks=[posterior, energies])
    assert len(set(energies.seen)) > 2
    np.testing.assert_array_equal(posterior.energies, energies.seen)
