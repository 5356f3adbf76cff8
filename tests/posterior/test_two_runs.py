"""Samples of two runs, two callbacks in one directory, and weights that change."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def chain(sampler, chains=None):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    if chains is not None:
        model = mh.ParallelChains(model, chains, seed=0)
    model.compile(sampler, mh.losses.GaussianNLL(1.0))
    return model


def sgld(**options):
    return mh.SGLD(**{"learning_rate": 1e-3, "train_size": 64, "seed": 0} | options)


def fit(model, epochs, *callbacks, batch_size=16):
    model.fit(X, Y, batch_size, epochs=epochs, verbose=0, callbacks=list(callbacks))


OTHERS = {
    "temperature=500.0, not 1.0": lambda: sgld(temperature=500.0),
    "seed=1, not 0": lambda: sgld(seed=1),
    "sampler='PSGLD', not 'SGLD'": lambda: mh.PSGLD(1e-3, train_size=64, seed=0),
}


@pytest.mark.parametrize("is_on_disk", [True, False])
@pytest.mark.parametrize("difference", OTHERS)
def test_samples_of_another_run_are_refused(difference, is_on_disk, tmp_path):
    directory = tmp_path / "samples" if is_on_disk else None
    posterior = mh.PosteriorSamples(every=1, directory=directory)
    model = chain(sgld())
    fit(model, 2, posterior)
    other = chain(OTHERS[difference]())
    fit(other, 3)  # a burn-in of its own, longer than the first run
    if is_on_disk:
        posterior = mh.PosteriorSamples(every=1, directory=directory)
    with pytest.raises(
        ValueError, match=f"of another run.* with 8 samples.*{difference}"
    ):
        fit(other, 1, posterior)
    assert list(posterior.iterations) == list(range(1, 9))
    if is_on_disk:
        assert len(mh.PosteriorSamples.load(directory)) == 8
    fit(model, 1, posterior)  # the first run goes on
    assert list(posterior.iterations) == list(range(1, 13))


def test_another_rate_is_no_other_run():
    model, posterior = chain(sgld()), mh.PosteriorSamples()
    fit(model, 2, posterior)
    model.optimizer.learning_rate = 1e-4
    fit(model, 2, posterior)
    assert len(posterior) == 4


def test_a_directory_belongs_to_one_callback(tmp_path):
    first, second = (
        mh.PosteriorSamples(every=every, directory=tmp_path) for every in (2, 3)
    )
    with pytest.raises(ValueError, match="`directory` must be that of one"):
        fit(chain(sgld()), 2, first, second)


class Setter(keras.callbacks.Callback):
    """Changes the weights at the beginning of the epoch of this index."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            self.model.set_weights([w + 4.0 for w in self.model.get_weights()])


def csgld(**options):
    given = {"learning_rate": 1e-2, "train_size": 64, "seed": 0}
    return mh.CSGLD(partition=mh.EnergyPartition(60.0, 5.0, 60), **given, **options)


def energy(weights, bias):
    residual = Y - X @ weights - bias
    return float(np.sum(0.5 * residual**2) + 64 * 0.5 * np.log(2 * np.pi))


def own_energies(posterior):
    return np.array([energy(*arrays) for arrays in posterior._store._arrays.values()])


def check_energies(posterior, jumped):
    """Each sample has its own energy, but the one at `jumped`, whose is unknown."""
    found, own = np.array(posterior.energies), own_energies(posterior)
    assert np.isnan(found[jumped])
    known = np.delete(np.arange(len(own) - 1), jumped)
    np.testing.assert_allclose(found[known], own[known], rtol=1e-4)
    weights = [record.log_weight for record in posterior._store.records]
    assert weights[jumped] == weights[jumped - 1]


class TestChangedWeights:
    def test_between_two_fits(self):
        model, posterior = chain(csgld()), mh.PosteriorSamples()
        fit(model, 5, posterior, batch_size=64)
        model.set_weights([w + 4.0 for w in model.get_weights()])
        with pytest.warns(
            UserWarning, match="no longer has the weights of iteration 5"
        ):
            fit(model, 3, posterior, batch_size=64)
        check_energies(posterior, 4)

    def test_by_a_callback(self):
        model, posterior = chain(csgld()), mh.PosteriorSamples()
        with pytest.warns(UserWarning, match="weights of iteration 4") as caught:
            fit(model, 8, Setter(4), posterior, batch_size=64)
        told = [w for w in caught if "no longer has" in str(w.message)]
        assert len(told) == 1
        check_energies(posterior, 3)

    def test_by_early_stopping(self):
        """The realistic way: the second `fit` begins at the best weights."""
        stop = keras.callbacks.EarlyStopping(
            "loss", patience=2, restore_best_weights=True, mode="max"
        )
        model, posterior = chain(csgld()), mh.PosteriorSamples()
        fit(model, 20, posterior, stop, batch_size=64)
        stopped = len(posterior)
        assert stopped < 20
        with pytest.warns(UserWarning, match="no longer has the weights"):
            fit(model, 3, posterior, batch_size=64)
        check_energies(posterior, stopped - 1)

    @pytest.mark.parametrize(
        "name, chains",
        [(name, n) for name in ("SGLD", "SGHMC", "MHBT", "RSGLD") for n in (None, 2)]
        + [("AMAGOLD", None)],
    )
    def test_an_ordinary_run_is_not_warned(self, name, chains):
        options = {"train_size": 64, "seed": 0}
        if name in ("MHBT", "RSGLD"):
            options |= {"batch_size": 16}
        if name in ("RSGLD", "AMAGOLD"):
            options |= {"warm_up": 2}
        sampler = getattr(mh, name)(1e-3, **options)
        model = chain(sampler, chains)
        every, each = mh.PosteriorSamples(every=3), mh.PosteriorSamples()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(model, 3, each, every)
            fit(model, 3, each, every)
        assert len(each) > 1 and len(every) > 1
        assert not [w for w in caught if "no longer has" in str(w.message)]


def test_the_awaited_energy_of_chains_is_forgotten_as_well():
    model, posterior = chain(csgld(), 2), mh.PosteriorSamples()
    fit(model, 3, posterior, batch_size=64)
    model.set_weights([w + 4.0 for w in model.get_weights()])
    with pytest.warns(UserWarning, match="no longer has the weights of iteration 3"):
        fit(model, 2, posterior, batch_size=64)
    energies = np.array(posterior.energies)
    assert energies.shape == (5, 2)
    assert np.isnan(energies[2]).all() and np.isfinite(energies[[0, 1, 3]]).all()
