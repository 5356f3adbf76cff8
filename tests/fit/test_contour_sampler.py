"""The contour samplers as optimizers: their step, their weights and their warnings."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.fit import run_watch
from tests.oracles import contour as oracle
from tests.support.models import Drive
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential

SETTINGS = dict(partition=mh.EnergyPartition(20.0, 8.0, 40), zeta=0.75)
N = 96


def csgld(**options):
    return mh.CSGLD(0.05, train_size=N, **(SETTINGS | {"seed": 3} | options))


def csghmc(**options):
    return mh.CSGHMC(0.02, train_size=N, **(SETTINGS | {"seed": 3} | options))


both = pytest.mark.parametrize("make", [csgld, csghmc])


def oracle_theta(losses, zeta=0.75):
    """theta after the energies of these losses, with the default step sizes."""
    theta = np.arange(40, 0, -1) / (40 * 41 / 2)
    bounds = oracle.boundaries(20.0, 8.0, 40)
    for k, loss in enumerate(losses):
        index = oracle.index_of(N * loss, bounds)
        step = min(3e-3, 10 / (100 + k**0.8))
        theta = oracle.updated(theta, index, step, zeta)
    return theta


LOSSES = [0.5, 1.0, 0.1, 2.0, 1.0, 9.0, 0.9]


@both
def test_the_density_is_the_oracles(make):
    drive = Drive(make(), np.zeros(6))
    for loss in LOSSES:
        drive.step(loss, np.zeros(6))
    expected = oracle_theta(LOSSES)
    np.testing.assert_allclose(drive.optimizer.learned_masses(), expected, rtol=2e-5)
    assert drive.optimizer.visits().sum() == len(LOSSES)
    # 9.0 is 864 nats, in the last subregion.
    assert drive.optimizer.visits()[-1] == 1


@both
@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_teaches_nothing_and_is_counted(make, loss):
    drive = Drive(make(), np.zeros(6))
    drive.step(1.0, np.zeros(6))
    before = drive.optimizer.learned_masses()
    drive.step(loss, np.zeros(6))
    np.testing.assert_array_equal(drive.optimizer.learned_masses(), before)
    report = drive.optimizer.diagnostics()
    assert report["nonfinite"] == 1
    assert np.isfinite(report["multiplier"])
    assert drive.optimizer.visits().sum() == 1


# The weights of samples.


def full_batch_fit(model, posterior, epochs, **options):
    x, y = data()
    model.fit(
        x,
        y,
        batch_size=N,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[posterior],
        **options,
    )


def energies_of(posterior, model):
    """U of each sample, from its weights."""
    x, y = data()
    members = posterior.ensemble(model).predict_members(x)
    return -N * np.log(members[:, np.arange(N), y]).mean(axis=1)


@both
def test_a_sample_has_the_energy_and_the_weight_of_its_own_point(make):
    masses = np.exp(-0.5 * np.arange(40.0))
    optimizer = make(masses=masses, adapt=False)
    model, posterior = compiled(optimizer), mh.PosteriorSamples(every=3)
    full_batch_fit(model, posterior, 14)
    expected = energies_of(posterior, model)
    np.testing.assert_allclose(posterior.energies, expected, rtol=1e-4)

    theta, bounds = masses / masses.sum(), oracle.boundaries(20.0, 8.0, 40)
    logs = np.array(
        [oracle.log_weight(theta, u, bounds, 8.0, 0.75, 1.0) for u in expected]
    )
    ratios = np.exp(logs - logs.max())
    np.testing.assert_allclose(posterior.weights, ratios / ratios.mean(), rtol=1e-3)
    assert np.ptp(posterior.weights) > 0.1


def test_the_last_sample_waits_for_the_next_fit():
    model, posterior = compiled(csgld()), mh.PosteriorSamples(every=4)
    full_batch_fit(model, posterior, 8)
    own = energies_of(posterior, model)
    np.testing.assert_allclose(posterior.energies[0], own[0], rtol=1e-4)
    # Until then it has the energy of the point before it.
    before, log_weight = posterior.energies[1], posterior.weights[1]
    assert abs(before - own[1]) > 1e-3 * own[1]
    full_batch_fit(model, posterior, 2)
    np.testing.assert_allclose(posterior.energies[1], own[1], rtol=1e-4)
    assert posterior.weights[1] != log_weight


@pytest.mark.eager_and_compiled
def test_samples_between_the_looks_of_a_callback_have_their_own_energy():
    if keras.backend.backend() == "torch":
        pytest.skip("PyTorch has no steps_per_execution")
    model = compiled(csgld(), steps_per_execution=3)
    posterior = mh.PosteriorSamples(every=3)
    x, y = data()
    # The same batch three times an epoch, so that an energy can be computed again.
    model.fit(
        np.tile(x, (3, 1)),
        np.tile(y, 3),
        batch_size=N,
        epochs=5,
        shuffle=False,
        verbose=0,
        callbacks=[posterior],
    )
    own = energies_of(posterior, model)
    np.testing.assert_allclose(posterior.energies[:-1], own[:-1], rtol=1e-4)


@pytest.mark.parametrize("directory", [False, True])
def test_an_interrupted_run_gives_the_same_weights(tmp_path, directory):
    def samples(name):
        return mh.PosteriorSamples(
            every=5, directory=tmp_path / name if directory else None
        )

    whole, posterior = compiled(csghmc()), samples("whole")
    fit(whole, epochs=6, callbacks=[posterior])
    parts, pieces = compiled(csghmc()), samples("parts")
    for _ in range(3):
        fit(parts, epochs=2, callbacks=[pieces])
    np.testing.assert_array_equal(pieces.iterations, posterior.iterations)
    np.testing.assert_array_equal(pieces.weights, posterior.weights)
    np.testing.assert_array_equal(pieces.energies, posterior.energies)
    if directory:
        loaded = mh.PosteriorSamples.load(tmp_path / "parts")
        np.testing.assert_array_equal(loaded.weights, posterior.weights)
        np.testing.assert_array_equal(loaded.energies, posterior.energies)


def test_every_sampler_gives_samples_their_energy():
    for optimizer in (
        mh.SGLD(0.05, train_size=N, seed=3),
        mh.MHBT(0.01, train_size=N, batch_size=N, seed=3),
    ):
        model, posterior = compiled(optimizer), mh.PosteriorSamples(every=3)
        full_batch_fit(model, posterior, 7)
        np.testing.assert_allclose(
            posterior.energies, energies_of(posterior, model), rtol=1e-4
        )
        assert (posterior.weights == 1).all()
    model, posterior = compiled("adam"), mh.PosteriorSamples()
    full_batch_fit(model, posterior, 2)
    assert np.isnan(posterior.energies).all()


@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_parallel_chains_have_weights_of_their_own(strategy):
    chains = mh.ParallelChains(sequential(), 3, seed=1, strategy=strategy)
    compiled(csgld(), chains)
    posterior = mh.PosteriorSamples(every=4)
    fit(chains, epochs=4, callbacks=[posterior])
    assert posterior.weights.shape == posterior.energies.shape == (6, 3)
    assert len(np.unique(posterior.weights)) == 18
    assert chains.optimizer.visits().shape == (3, 40)
    assert (chains.optimizer.visits().sum(axis=1) == 24).all()
    ensemble = posterior.ensemble(chains)
    x, _ = data()
    members = ensemble.predict_members(x)
    mean = np.average(members, axis=0, weights=posterior.weights.ravel())
    np.testing.assert_allclose(ensemble.predict(x, verbose=0), mean, rtol=1e-4)


def test_an_ensemble_of_one_effective_sample_is_reported(monkeypatch):
    def none(records, chains):
        return np.zeros((len(records), chains), bool)

    # The density pushes the chain up: its samples are worse than a constant.
    monkeypatch.setattr(run_watch, "are_above", none)
    # A steep known density: the sample of the lowest energy has all the weight.
    optimizer = csgld(masses=np.exp(-8.0 * np.arange(40.0)), adapt=False, zeta=5.0)
    model, posterior = compiled(optimizer), mh.PosteriorSamples(every=2)
    with pytest.warns(UserWarning, match="effective sample size of 1.0"):
        full_batch_fit(model, posterior, 8)
    assert posterior.weight_ess < 2
    with pytest.warns(UserWarning, match="effective sample size of 1.0") as caught:
        posterior.ensemble(model)
    assert caught[0].filename == __file__


# The partition.


def test_energies_outside_the_partition_are_reported_once():
    model = compiled(csgld(partition=mh.EnergyPartition(1e4, 8.0, 40)))
    with pytest.warns(
        UserWarning, match=r"try `mh.EnergyPartition\(energy_min="
    ) as caught:
        fit(model, epochs=4, callbacks=[mh.PosteriorSamples()])
    ours = [w for w in caught if "below the first boundary" in str(w.message)]
    assert len(ours) == 1
    model = compiled(csgld(partition=mh.EnergyPartition(-1e4, 8.0, 40), seed=4))
    with pytest.warns(UserWarning, match="above the last boundary"):
        fit(model, epochs=4)


def test_the_fix_of_the_warning_fits():
    model = compiled(csgld(partition=mh.EnergyPartition(-1e4, 8.0, 40)))
    with pytest.warns(
        UserWarning, match=r"try `mh.EnergyPartition\(energy_min="
    ) as caught:
        fit(model, epochs=4)
    text = next(str(w.message) for w in caught if "try `" in str(w.message))
    advice = eval(text.split("try `")[1].split("`")[0])
    assert isinstance(advice, mh.EnergyPartition)
    model = compiled(csgld(partition=advice))
    posterior = mh.PosteriorSamples()
    history = fit(model, epochs=4, callbacks=[posterior])
    assert 1 < history.history["partition"][0] < 40


def test_diagnostics_count_since_the_reset():
    drive = Drive(csgld(), np.zeros(6))
    for loss in (1.0, 1.0, 2.0):
        drive.step(loss, np.zeros(6))
    report = drive.optimizer.diagnostics()
    bounds = oracle.boundaries(20.0, 8.0, 40)
    indices = [oracle.index_of(N * loss, bounds) + 1 for loss in (1.0, 1.0, 2.0)]
    assert report["partition"] == pytest.approx(np.mean(indices))
    assert report["energy"] == pytest.approx(N * 4 / 3)
    drive.optimizer.reset_diagnostics()
    drive.step(0.5, np.zeros(6))
    expected = oracle.index_of(N * 0.5, bounds) + 1
    assert drive.optimizer.diagnostics()["partition"] == expected
    assert drive.optimizer.visits().sum() == 4


def test_annealing_follows_the_schedules():
    """saCSGHMC: learning rate and temperature are schedules."""
    falling = keras.optimizers.schedules.ExponentialDecay(0.02, 6, 0.9)
    cooling = keras.optimizers.schedules.ExponentialDecay(1.0, 6, 0.5)
    optimizer = mh.CSGHMC(
        falling, train_size=N, temperature=cooling, seed=3, **SETTINGS
    )
    model = compiled(optimizer)
    history = fit(model, epochs=12, callbacks=[mh.PosteriorSamples()])
    energies = history.history["energy"]
    assert energies[-1] < 0.7 * energies[0]
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
    assert numpy(again.temperature(6)) == pytest.approx(0.5)
