"""Several `PosteriorSamples` in one `fit`: each has what it would have alone."""

import copy

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.samplers import SAMPLERS

# Iterations between samples: neighbours, multiples, and the same ones.
CADENCES = {"a": 2, "b": 3, "c": 4, "d": None}


def make():
    return compiled(SAMPLERS["csghmc"].make(seed=3))


def collections(folder):
    return {
        name: mh.PosteriorSamples(every=every, directory=folder / name)
        for name, every in CADENCES.items()
    }


def of(posterior):
    return posterior.iterations, posterior.weights, posterior.energies


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Each collection in a run of its own, with the same chain."""
    kept = {}
    for name, posterior in collections(tmp_path_factory.mktemp("alone")).items():
        fit(make(), epochs=4, callbacks=[posterior])
        kept[name] = of(posterior)
    return kept


def test_they_do_not_swap_energies_and_weights(alone, tmp_path):
    together = collections(tmp_path)
    fit(make(), epochs=4, callbacks=list(together.values()))
    for name, posterior in together.items():
        loaded = mh.PosteriorSamples.load(tmp_path / name)
        for one, other in zip(of(posterior), alone[name], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
        for one, other in zip(of(loaded), alone[name], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
    assert np.ptp(alone["a"][1]) > 0.01


def test_they_go_on_from_a_checkpoint(alone, tmp_path):
    """The process dies after the checkpoint; each sample is described once."""

    class Die(keras.callbacks.Callback):
        """Saves in the middle of an epoch, when one collection waits, and dies."""

        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 10:
                self.model.save(tmp_path / "model.keras")
                raise InterruptedError

    model = make()
    with pytest.raises(InterruptedError):
        fit(model, epochs=4, callbacks=[*collections(tmp_path).values(), Die()])
    model = keras.models.load_model(tmp_path / "model.keras")
    # The data of the chain's next step: the rest of the second epoch, and two more.
    together = collections(tmp_path)
    fit_rest(model, list(together.values()))
    for name in "abc":
        iterations, weights, energies = of(together[name])
        np.testing.assert_array_equal(iterations, alone[name][0], err_msg=name)
        np.testing.assert_array_equal(energies, alone[name][2], err_msg=name)
        np.testing.assert_allclose(weights, alone[name][1], rtol=1e-6)


def fit_rest(model, callbacks):
    """Steps 11 to 24 of the run: from the fifth batch of an epoch of six."""
    from tests.support.models import BATCH_SIZE
    from tests.support.models import data

    x, y = data()
    order = np.concatenate([np.arange(4 * BATCH_SIZE, len(x)), np.arange(len(x))])
    order = np.concatenate([order, np.arange(len(x))])
    model.fit(
        x[order],
        y[order],
        batch_size=BATCH_SIZE,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )


def test_a_copied_collection_is_empty_and_says_where_its_samples_are():
    """KerasTuner copies its callbacks for each trial."""
    posterior = mh.PosteriorSamples(burn_in=2, every=3, max_samples=4)
    other = copy.deepcopy(posterior)
    fit(make(), callbacks=[other])
    assert other.iterations.tolist() == [5, 8, 11]
    with pytest.raises(ValueError, match="KerasTuner"):
        posterior.ensemble(make())


def test_a_collection_with_a_directory_is_not_copied(tmp_path):
    posterior = mh.PosteriorSamples(directory=tmp_path)
    with pytest.raises(ValueError, match="HyperModel.*directory="):
        copy.deepcopy([posterior])
