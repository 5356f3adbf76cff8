"""Every form of data and every callback goes through a fit that keeps samples."""

import csv

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.data_people_write import BATCH_SIZE
from tests.support.data_people_write import CLASSES
from tests.support.data_people_write import DATA
from tests.support.data_people_write import EXAMPLES
from tests.support.data_people_write import FEATURES
from tests.support.data_people_write import WATCHING
from tests.support.data_people_write import arrays
from tests.support.data_people_write import halved
from tests.support.models import numpy

pytestmark = pytest.mark.eager_and_compiled

BACKEND = keras.backend.backend()


def network(given):
    keras.utils.set_random_seed(1)
    if given.inputs is not FEATURES:
        return given.inputs()
    layers = [keras.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")]
    return keras.Sequential(layers)


def sgld():
    return mh.SGLD(0.01, train_size=EXAMPLES, seed=3)


def langevin(rate=5e-4):
    return mh.MHBT(
        rate,
        train_size=EXAMPLES,
        batch_size=BATCH_SIZE,
        proposal=mh.proposals.Langevin(),
        temperature=float(EXAMPLES),
        seed=3,
    )


def compiled(optimizer, given, **options):
    model = network(given)
    model.compile(
        optimizer=optimizer,
        **{
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy"],
            **given.options,
            **options,
        },
    )
    return model


FORMS = [name for name, given in DATA.items() if BACKEND in given.backends]


@pytest.mark.parametrize("name", FORMS)
def test_data(name):
    given = DATA[name]
    model = compiled(sgld(), given)
    posterior = mh.PosteriorSamples(every=2)
    history = model.fit(**given.make(), epochs=2, verbose=0, callbacks=[posterior])
    last = 2 * given.steps
    steps = given.options.get("steps_per_execution", 1)
    kept = {-(-i // steps) * steps for i in range(2, last + 1, 2)}
    assert int(numpy(model.optimizer.iterations)) == last
    assert posterior.iterations.tolist() == sorted(kept)
    assert np.isfinite(history.history["loss"] + history.history["energy"]).all()
    assert ("val_loss" in history.history) == ("validation" in name)
    members = posterior.ensemble(model).num_members
    assert members == len(kept)


def fit(model, *callbacks, epochs=3):
    return model.fit(
        *arrays(),
        batch_size=BATCH_SIZE,
        epochs=epochs,
        validation_data=arrays(),
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )


@pytest.fixture(scope="module")
def unwatched():
    """The weights of a run without other callbacks."""
    model, posterior = compiled(langevin(), DATA["numpy"]), mh.PosteriorSamples(every=2)
    fit(model, posterior)
    return [numpy(variable) for variable in model.weights]


@pytest.mark.parametrize("is_first", [True, False])
def test_callbacks_that_watch(is_first, unwatched, tmp_path):
    """All of them in one fit, as people pass them, before the samples or after."""
    model, posterior = compiled(langevin(), DATA["numpy"]), mh.PosteriorSamples(every=2)
    others = [make(tmp_path) for make in WATCHING.values()]
    history = fit(model, *([posterior, *others] if is_first else [*others, posterior]))
    for one, other in zip(model.weights, unwatched, strict=True):
        np.testing.assert_array_equal(numpy(one), other)
    assert posterior.iterations.tolist() == [2, 4, 6, 8]

    # The last checkpoint has the state of the chain, which the fit ends in; so has the
    # best one, whose loss is that of its epoch.
    x, y = arrays()
    saved = keras.models.load_model(tmp_path / "model.keras")
    for one, other in zip(saved.weights, unwatched, strict=True):
        np.testing.assert_array_equal(numpy(one), other)
    model.load_weights(tmp_path / "best.weights.h5")
    loss = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(min(history.history["val_loss"]), rel=1e-4)
    with open(tmp_path / "log.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert ("acceptance" in rows[0]) == is_first


def test_rates_that_callbacks_change():
    model, posterior = compiled(langevin(), DATA["numpy"]), mh.PosteriorSamples()
    fit(
        model,
        posterior,
        keras.callbacks.LearningRateScheduler(halved),
        keras.callbacks.ReduceLROnPlateau(
            monitor="loss", factor=0.1, patience=1, min_delta=1e9, min_lr=0.0
        ),
    )
    # Halved three times; and a tenth once, after the second epoch, and the third.
    rate = float(numpy(model.optimizer.learning_rate))
    assert rate == pytest.approx(5e-4 / 8 / 100, rel=1e-4)
    assert len(posterior) == 3 and len(np.unique(posterior.energies)) == 3


def test_the_best_weights_are_restored_and_the_chain_goes_on():
    model, posterior = compiled(langevin(), DATA["numpy"]), mh.PosteriorSamples()
    stop = keras.callbacks.EarlyStopping(
        monitor="val_loss", mode="max", patience=9, restore_best_weights=True
    )
    history = fit(model, posterior, stop)
    loss = model.evaluate(*arrays(), verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(max(history.history["val_loss"]), rel=1e-4)
    fit(model, posterior, epochs=1)
    assert posterior.iterations.tolist() == [3, 6, 9, 12]
    assert np.isfinite(posterior.energies).all()
