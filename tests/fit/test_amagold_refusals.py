"""What `mh.AMAGOLD` refuses, and the error that says so."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.fit.test_amagold_fits import EPOCH
from tests.fit.test_amagold_fits import fit
from tests.fit.test_amagold_fits import full_energy
from tests.fit.test_amagold_fits import sampler
from tests.support.models import BATCH_SIZE
from tests.support.models import TRAIN_SIZE
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import sequential


def once():
    x, y = data()
    while True:
        for start in range(0, TRAIN_SIZE, BATCH_SIZE):
            rows = slice(start, start + BATCH_SIZE)
            yield x[rows], y[rows]


def test_data_that_can_be_read_once_is_refused_or_given():
    with pytest.raises(ValueError, match="can be read again"):
        fit(compiled(sampler()), once(), steps_per_epoch=EPOCH)
    optimizer = sampler()
    optimizer.use_data(*data())
    model = compiled(optimizer)
    _, posterior = fit(model, once(), steps_per_epoch=EPOCH)
    expected = full_energy(model, *data())
    np.testing.assert_allclose(posterior.energies[-1], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        (dict(train_size=50), {}, "train_size.*Received: train_size=50"),
        (dict(train_size=500), {}, "train_size.*data of 96"),
        ({}, dict(class_weight={0: 1.0, 1: 2.0, 2: 1.0}), "class_weight.*None"),
    ],
)
def test_what_the_test_cannot_use_is_refused(options, given, message):
    with pytest.raises(ValueError, match=message):
        fit(compiled(sampler(**options)), **given)


def test_several_chains_are_refused():
    chains = mh.ParallelChains(sequential(), 2)
    with pytest.raises(ValueError, match="Fit a model for each chain"):
        compiled(sampler(), chains)
        fit(chains)


def test_a_short_run_cannot_suggest_its_rate():
    with pytest.raises(ValueError, match="above 0.3"):
        mh.suggest_learning_rate(compiled(sampler()), *data(), batch_size=BATCH_SIZE)


def test_a_test_outside_fit_is_refused():
    x, y = data()
    model = compiled(sampler())

    model.fit(x, y, batch_size=BATCH_SIZE, verbose=0)
    model.optimizer.propose()
    with pytest.raises(ValueError, match="outside `fit`"):
        model.optimizer.settle()


def test_a_schedule_is_refused():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 100)
    with pytest.raises(ValueError, match="a schedule will not do"):
        sampler(learning_rate=schedule)
