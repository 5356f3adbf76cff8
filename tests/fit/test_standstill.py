"""Runs that do not sample say so, once, with numbers and what to do."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.fit import run_watch
from keras_mhmcmc.fit import watch as watches
from tests.support.models import BATCH_SIZE
from tests.support.models import TRAIN_SIZE
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.samplers import PAPER
from tests.support.samplers import SAMPLERS

# What is compared lies on the host, the same on all backends.


def told(model, pattern, **options):
    """The warnings of a fit that hold a pattern."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, **{"callbacks": [mh.PosteriorSamples()]} | options)
    return [str(w.message) for w in caught if pattern in str(w.message)]


def rsgld(rate, **options):
    options = {"train_size": TRAIN_SIZE, "batch_size": BATCH_SIZE} | options
    temperature = TRAIN_SIZE / BATCH_SIZE
    options = {"temperature": temperature} | PAPER | options
    return mh.RSGLD(rate, beta=1.5, seed=1, **options)


@pytest.mark.parametrize("name", ["mint", "mhbt_random_walk"])
def test_a_chain_that_accepts_nothing(name):
    config = SAMPLERS[name].make(seed=3).get_config() | {"learning_rate": 1e4}
    model = compiled(type(SAMPLERS[name].make()).from_config(config))
    (message,) = told(model, "accepted none", epochs=6)
    assert "learning_rate=1e+04" in message
    # As many as were proposed until then, and no warning of single rejections.
    assert int(message.split("last ")[1].split()[0]) >= 20
    assert told(compiled(SAMPLERS[name].make(seed=3)), "accepted none", epochs=4) == []


def test_without_the_callback_the_end_of_fit_tells():
    assert len(told(compiled(rsgld(1e4)), "accepted none", epochs=6, callbacks=[])) == 1


def test_a_lost_chain_of_several():
    model = mh.ParallelChains(sequential(), 3, seed=0)
    kernel = model.trainable_variables[0]
    values = numpy(kernel).copy()
    values[1] *= np.nan
    kernel.assign(values)
    model = compiled(rsgld(0.1), model)
    posterior = mh.PosteriorSamples()
    with pytest.warns(
        UserWarning, match=r"no state to sample of the chains \[1\] of 3"
    ):
        fit(model, epochs=3, callbacks=[posterior])
    assert posterior.ensemble(model).num_members == 6


def test_a_chain_that_accepts_one_in_five_is_left_alone():
    """Of 10,000 steps, in epochs of ten: a row of 20 rejections comes by chance."""
    watch = watches.Standstill("RSGLD")
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for accepted in rng.binomial(10, 0.2, 1000):
            watch.look(np.array(accepted), np.array(10), rate=0.1, temperature=1.0)
    with pytest.warns(UserWarning, match="none of the last [56]0 proposals"):
        for _ in range(10):
            watch.look(np.array(0), np.array(10), rate=0.1, temperature=1.0)


def test_a_chain_with_refreshes_is_given_time_for_five_of_them():
    watch = watches.Standstill("RSGLD", refresh_probability=0.1)
    watch.look(np.array(50), np.array(100), rate=0.1, temperature=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            watch.look(np.array(0), np.array(12), rate=0.1, temperature=1.0)
    with pytest.warns(UserWarning, match="none of the last 60 proposals"):
        watch.look(np.array(0), np.array(12), rate=0.1, temperature=1.0)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_settled_chain_is_left_alone(correlation):
    """Of 50 weights: an energy has a deviation of 5 nats, the square root of 50/2."""
    rng = np.random.default_rng(0)
    fresh = (1.0 - correlation**2) ** 0.5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for epochs in (9, 20, 100, 400):
            for _ in range(50):
                noise = 5.0 * rng.normal(size=epochs + 1)
                for i in range(1, epochs + 1):
                    noise[i] = correlation * noise[i - 1] + fresh * noise[i]
                watch = run_watch.SampleWatch()
                for deviation in noise[1:]:
                    watch.end_epoch({"energy": 60.0 + deviation}, [], True)
                watch._check_energies(rate=0.1)
    # Of 200 runs; hardly ever, even where neighbours are alike.
    assert len(caught) <= (2 if correlation == 0.9 else 0)


class Heating(keras.optimizers.schedules.LearningRateSchedule):
    """A temperature that doubles in each epoch."""

    def __call__(self, step):
        return 2.0 ** (keras.ops.cast(step, "float32") * BATCH_SIZE / TRAIN_SIZE)

    def get_config(self):
        return {}


def test_an_energy_that_rises():
    sampler = mh.SGHMC(0.1, train_size=TRAIN_SIZE, temperature=Heating(), seed=1)
    (message,) = told(compiled(sampler), "The energy", epochs=12)
    assert message.startswith("The energy rose from ")
    assert "over the 12 epochs" in message and "learning rate (now 0.1)" in message


def test_an_energy_that_falls_is_told_and_one_that_stays_is_not():
    sampler = mh.SGHMC(0.01, train_size=TRAIN_SIZE, temperature=0.1, seed=1)
    model = compiled(sampler)
    (message,) = told(model, "The energy", epochs=12)
    assert "fell" in message and "(`burn_in`)" in message
    assert told(model, "The energy", epochs=12) == []


def energies_of(values, is_new=False):
    """The warnings of a run with these mean energies of its epochs."""
    watch = run_watch.SampleWatch()
    watch._is_unburnt = is_new
    for value in values:
        watch.end_epoch({"energy": value}, [], True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch._check_energies(0.1)
    return [str(w.message) for w in caught]


def test_how_far_an_energy_may_fall():
    falling = np.linspace(0.0, 1.0, 12)
    assert energies_of(100.0 - 90.0 * falling) != []
    assert energies_of(100.0 - 40.0 * falling) == []
    noise = 30.0 * np.random.default_rng(0).normal(size=12)
    assert energies_of(100.0 + noise) == []


def test_three_epochs_that_fall_by_chance_are_no_descent():
    (message,) = energies_of([90.0, 80.0, 70.0], is_new=True)
    assert "fell from 90 to 70 nats" in message
    assert energies_of([39.9, 39.8, 39.7], is_new=True) == []


def test_a_fit_that_stops_before_the_first_sample_is_told():
    model = compiled(mh.SGLD(1e-4, train_size=TRAIN_SIZE, seed=0))
    stop = keras.callbacks.EarlyStopping("loss", patience=0, mode="max")
    posterior = mh.PosteriorSamples(burn_in=200)
    callbacks = [posterior, stop]
    (message,) = told(model, "kept no sample", epochs=200, callbacks=callbacks)
    assert "Lower `burn_in`, now 200, or train longer" in message
    assert len(posterior) == 0


def test_iterates_are_no_samples():
    model = compiled(keras.optimizers.SGD(0.1))
    (message,) = told(model, "not a sampler", epochs=2)
    assert "SGD" in message
    chains = compiled("adam", mh.ParallelChains(sequential(), 2, seed=0))
    assert told(chains, "not a sampler", epochs=1) == []  # a deep ensemble


@pytest.mark.parametrize(
    ("name", "reduction"), [*((name, "sum") for name in SAMPLERS), ("rsgld", None)]
)
def test_a_loss_that_is_no_mean_is_refused(name, reduction):
    sampler = SAMPLERS[name].make(seed=3)
    model = sequential()
    loss = keras.losses.SparseCategoricalCrossentropy(reduction=reduction)
    model.compile(optimizer=sampler, loss=loss)
    with pytest.raises(ValueError, match=f"must be a mean.*reduction={reduction!r}"):
        fit(model, epochs=1)


def test_energies_that_float32_cannot_compare():
    sampler = rsgld(0.01, train_size=10**8, temperature=1.0)
    (message,) = told(compiled(sampler), "float32 spacing", epochs=2)
    assert "temperature 1." in message
    assert told(compiled(rsgld(0.01)), "float32 spacing", epochs=2) == []


def rates_of(rates, weight_by=None, kind=mh.SGLD):
    """The warnings of samples with these rates, one for each epoch."""
    model = compiled(kind(rates[0], train_size=TRAIN_SIZE, seed=0))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
    first = TRAIN_SIZE // BATCH_SIZE  # steps of the first epoch
    posterior = mh.PosteriorSamples(burn_in=first, every=2, weight_by=weight_by)
    callbacks = [schedule, posterior]
    return told(model, "learning rate fell", epochs=len(rates), callbacks=callbacks)


def test_a_rate_that_ends_near_zero_is_told():
    down = list(1e-3 * 0.5 * (1 + np.cos(np.linspace(0.0, 3.1, 8))))
    (message,) = rates_of(down)
    assert "samples, from" in message and 'weight_by="learning_rate"' in message
    assert rates_of(down, weight_by="learning_rate") == []
    assert rates_of([1e-3, *[1e-10] * 7]) != []
    assert rates_of([1e-3, *[1e-5] * 7]) == []  # optimise, then sample
    assert rates_of([max(rate, 1e-4) for rate in down]) == []
    assert rates_of([*down[:4], *down[:4]]) == []  # a cycle begins again
    assert rates_of(down, kind=mh.IVON) == []  # each step draws anew
