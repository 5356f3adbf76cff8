"""A warm-up that was not given is as long as the burn-in of the samples allows."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.fit import arguments
from keras_mhmcmc.samplers import mhbt
from tests.support.models import TRAIN_SIZE
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import sequential
from tests.support.models import weights

# Ten epochs have 240 steps, more than the shortest warm-up, which is shorter here.
BATCH_SIZE, SHORTEST = 4, 125
BURN_IN, PLANNED, EPOCHS = 300, 150, 13


@pytest.fixture(autouse=True)
def shortest(monkeypatch, request):
    if request.function is not test_half_of_the_burn_in_at_most_ten_epochs:
        for module in (arguments, mhbt):
            monkeypatch.setattr(module, "WARM_UP", SHORTEST)


def make(**options):
    sizes = dict(train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, seed=3)
    return mh.RSGLD(**{"learning_rate": 0.01} | sizes | options)


def fit(model, epochs=EPOCHS, callbacks=(), **options):
    x, y = data()
    return model.fit(
        x,
        y,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **options,
    ).history


class StopAfter(keras.callbacks.Callback):
    """End the fit after some epochs."""

    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = epoch + 1 >= self.epochs


@pytest.mark.parametrize(
    "burn_in, steps",
    [(0, 500), (1000, 500), (4000, 2000), (12_000, 6000), (30_000, 6000)],
)
def test_half_of_the_burn_in_at_most_ten_epochs(burn_in, steps):
    sampler = mh.RSGLD(0.1, train_size=60_000, batch_size=100)
    assert sampler.plan_warm_up(burn_in) == steps + 1  # one evaluates the last move
    assert sampler.warm_up_argument == ("warm_up", steps)


def test_a_fit_with_samples_has_the_longer_warm_up():
    posterior = mh.PosteriorSamples(burn_in=BURN_IN, every=3)
    model = compiled(make())
    history = fit(model, callbacks=[posterior])
    whole = PLANNED * BATCH_SIZE // TRAIN_SIZE  # epochs
    assert np.isnan(history["forward_acceptance"][:whole]).all()
    assert not np.isnan(history["forward_acceptance"][whole:]).any()
    assert posterior.iterations[0] == BURN_IN + 3
    assert model.optimizer.get_config()["warm_up"] == PLANNED
    given = compiled(make(warm_up=PLANNED))
    fit(given, callbacks=[mh.PosteriorSamples(burn_in=BURN_IN, every=3)])
    np.testing.assert_array_equal(weights(model), weights(given))


def test_it_stays_as_it_is_once_the_chain_has_moved():
    model = compiled(make())
    fit(model, epochs=1)
    fit(model, callbacks=[mh.PosteriorSamples(burn_in=BURN_IN)])
    assert model.optimizer.warm_up_argument == ("warm_up", SHORTEST)


@pytest.mark.slow
def test_a_loaded_chain_that_has_left_the_warm_up_does_not_go_back(tmp_path):
    model = compiled(make())
    fit(model, epochs=6)  # 144 steps
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    copy = compiled(make())
    copy.optimizer.build(copy.trainable_variables)
    copy.load_weights(tmp_path / "model.weights.h5")
    for later in (keras.saving.load_model(tmp_path / "model.keras"), copy):
        history = fit(later, callbacks=[mh.PosteriorSamples(burn_in=BURN_IN)])
        assert later.optimizer.warm_up_argument == ("warm_up", SHORTEST)
        assert not np.isnan(history["forward_acceptance"]).any()


def test_a_refused_fit_leaves_nothing_behind():
    model = compiled(make())
    with pytest.raises(ValueError, match="must leave an iteration to keep"):
        fit(model, epochs=2, callbacks=[mh.PosteriorSamples(burn_in=750)])
    assert model.optimizer.get_config()["warm_up"] is None


@pytest.mark.parametrize(
    "burn_ins", [(0, BURN_IN), pytest.param((BURN_IN, 0), marks=pytest.mark.slow)]
)
def test_the_shortest_of_several_burn_ins_counts(burn_ins):
    model = compiled(make())
    samples = [mh.PosteriorSamples(burn_in=n, every=10) for n in burn_ins]
    fit(model, callbacks=samples)
    assert model.optimizer.warm_up_argument == ("warm_up", 78)  # a quarter
    first = {n: p.iterations[0] for n, p in zip(burn_ins, samples, strict=True)}
    assert first == {0: 80, BURN_IN: 310}


def test_a_run_that_stops_in_the_warm_up_goes_on_bit_for_bit(tmp_path):
    def samples():
        return mh.PosteriorSamples(burn_in=BURN_IN, every=3)

    whole = compiled(make())
    fit(whole, callbacks=[samples()])
    stopped = compiled(make())
    fit(stopped, callbacks=[samples(), StopAfter(2)])
    stopped.save(tmp_path / "model.keras")
    resumed = keras.saving.load_model(tmp_path / "model.keras")
    fit(resumed, callbacks=[samples()], initial_epoch=2)
    np.testing.assert_array_equal(weights(whole), weights(resumed))


def test_weights_that_a_new_process_loads_go_on_in_the_warm_up(tmp_path):
    """Backups keep weights and the state of the optimizer, and no arguments."""
    backup = tmp_path / "backup"

    def callbacks():
        samples = mh.PosteriorSamples(burn_in=BURN_IN, every=3)
        return [keras.callbacks.BackupAndRestore(backup), samples]

    class Break(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    broken = compiled(make())
    with pytest.raises(KeyboardInterrupt):
        fit(broken, callbacks=[*callbacks(), Break()])
    resumed = compiled(make())
    history = fit(resumed, callbacks=callbacks())
    assert np.isnan(history["forward_acceptance"][:4]).all()  # to the sixth epoch
    assert resumed.optimizer.warm_up_argument == ("warm_up", PLANNED)


def test_chains_plan_it_together():
    chains = mh.ParallelChains(sequential(), 2, seed=0)
    chains.compile(optimizer=make(), loss="sparse_categorical_crossentropy")
    fit(chains, callbacks=[mh.PosteriorSamples(burn_in=BURN_IN, every=5)])
    acceptance = chains.chain_history["forward_acceptance"]
    whole = PLANNED * BATCH_SIZE // TRAIN_SIZE
    assert np.isnan(acceptance[:whole]).all()
    assert not np.isnan(acceptance[whole:]).any()
