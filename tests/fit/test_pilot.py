"""`partition="auto"`: plain first steps, whose energies give the partition."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.oracles import contour as oracle
from tests.support.models import BATCH_SIZE
from tests.support.models import TRAIN_SIZE
from tests.support.models import Drive
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import optimizer_state
from tests.support.models import sequential
from tests.support.models import weights

N = TRAIN_SIZE
STEPS = TRAIN_SIZE // BATCH_SIZE  # of an epoch
PILOT = 23  # odd: the larger half counts, from step 11 on


def csgld(**options):
    return mh.CSGLD(0.05, train_size=N, **{"seed": 3, "pilot_steps": PILOT} | options)


def csghmc(**options):
    return mh.CSGHMC(0.02, train_size=N, **{"seed": 3, "pilot_steps": PILOT} | options)


PLAIN = {
    csgld: lambda: mh.SGLD(0.05, train_size=N, seed=3),
    csghmc: lambda: mh.SGHMC(0.02, train_size=N, seed=3),
}
both = pytest.mark.parametrize("make", [csgld, csghmc])


def expected_partition(energies, steps=PILOT):
    """The rule in float64: (energy_min, energy_gap)."""
    kept = np.asarray(energies, "float64")[steps // 2 : steps]
    low = np.quantile(kept, 0.1)
    return low, 4.0 * (kept.max() - low) / 98


def driven(optimizer, losses, start=None):
    """A `Drive` after steps with these losses and a fixed gradient."""
    drive = Drive(optimizer, np.zeros(6) if start is None else start)
    for loss in losses:
        drive.step(loss, np.linspace(-1, 1, 6))
    return drive


def last_log_weight(optimizer):
    """The log weight of the point that was evaluated last."""
    return numpy(optimizer._energies.variable)[5]


LOSSES = np.random.default_rng(0).gamma(2.0, 0.5, 60).astype("float32") + 1.0


@both
def test_the_partition_is_that_of_the_last_half_of_the_pilot(make):
    drive = driven(make(), LOSSES[: PILOT - 1])
    assert drive.optimizer.partition is None
    assert np.isnan(drive.optimizer.diagnostics()["energy_gap"])
    drive.step(LOSSES[PILOT - 1], np.zeros(6))
    found = drive.optimizer.partition
    expected = expected_partition(N * LOSSES)
    np.testing.assert_allclose((found.energy_min, found.energy_gap), expected, 1e-5)
    assert found.partitions == 100
    # It begins as `mh.suggest_partition` does, and reaches twice as far.
    advice = mh.suggest_partition(N * LOSSES[PILOT // 2 : PILOT])
    assert found.energy_min == pytest.approx(advice.energy_min, rel=1e-5)
    assert found.energy_gap == pytest.approx(2.0 * advice.energy_gap, rel=1e-4)
    report = drive.optimizer.diagnostics()
    assert report["energy_min"] == pytest.approx(found.energy_min)
    assert report["energy_gap"] == pytest.approx(found.energy_gap)
    for loss in LOSSES[PILOT:40]:  # and nothing moves it
        drive.step(loss, np.zeros(6))
    assert drive.optimizer.partition == found


@both
def test_the_pilot_is_the_plain_sampler(make):
    """Up to its last step, and with no step more."""
    pilot, plain = Drive(make(), np.zeros(6)), Drive(PLAIN[make](), np.zeros(6))
    gradient = np.linspace(-1, 1, 6)
    for loss in LOSSES[:PILOT]:
        np.testing.assert_allclose(
            pilot.step(loss, gradient), plain.step(loss, gradient), rtol=1e-6, atol=1e-7
        )
    masses = np.arange(100, 0, -1) / 5050
    np.testing.assert_allclose(pilot.optimizer.learned_masses(), masses, rtol=1e-5)
    assert pilot.optimizer.visits().sum() == 0
    assert np.isnan(pilot.optimizer.diagnostics()["partition"])
    pilot.step(LOSSES[PILOT], gradient)
    assert pilot.optimizer.visits().sum() == 1
    assert pilot.optimizer.learned_masses()[0] != np.float32(masses[0])
    assert pilot.optimizer.diagnostics()["multiplier"] != 1.0


@both
def test_after_the_pilot_it_is_the_sampler_with_that_partition(make):
    """From the same state, with the noise, the masses and the weights of it."""
    schedule = mh.schedules.PowerDecay(0.05, 3.0, 0.6)  # of the masses, from there on
    auto = driven(make(step_size=schedule), LOSSES[:PILOT])
    given = make(partition=auto.optimizer.partition, step_size=schedule)
    explicit = Drive(given, auto.state())
    given._noise._state.assign(numpy(auto.optimizer._noise._state))
    if make is csghmc:
        (velocity,) = auto.optimizer.slots.base.velocity
        given.slots.base.velocity[0].assign(numpy(velocity))
    gradient = np.linspace(-1, 1, 6)
    for loss in LOSSES[PILOT:]:
        np.testing.assert_allclose(
            auto.step(loss, gradient),
            explicit.step(loss, gradient),
            rtol=2e-5,
            atol=1e-6,
        )
    np.testing.assert_allclose(
        auto.optimizer.learned_masses(), given.learned_masses(), rtol=1e-4
    )
    np.testing.assert_array_equal(auto.optimizer.visits(), given.visits())
    # The weight has the width of the subregions: weights of chains can be compared.
    own, others = map(last_log_weight, (auto.optimizer, given))
    width = 0.75 * np.log(auto.optimizer.partition.energy_gap)
    np.testing.assert_allclose(own, others - width, rtol=1e-4)


@both
def test_a_weight_is_that_of_the_oracle(make):
    drive = driven(make(), LOSSES[: PILOT + 1])
    found, energy = drive.optimizer.partition, N * float(LOSSES[PILOT])
    bounds = oracle.boundaries(found.energy_min, found.energy_gap, 100)
    theta = oracle.updated(
        np.arange(100, 0, -1) / 5050, oracle.index_of(energy, bounds), 3e-3, 0.75
    )
    expected = oracle.log_weight(theta, energy, bounds, found.energy_gap, 0.75, 1.0)
    expected -= 0.75 * np.log(found.energy_gap)
    actual = last_log_weight(drive.optimizer)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_one_line_in_compile_is_enough():
    model = sequential()
    model.compile(
        optimizer=mh.CSGHMC(0.02, train_size=N, pilot_steps=40),
        loss="sparse_categorical_crossentropy",
    )
    posterior = mh.PosteriorSamples(every=1)
    history = fit(model, epochs=20, callbacks=[posterior]).history
    assert posterior.iterations.tolist() == list(range(41, 20 * STEPS + 1))
    assert np.isnan(history["energy_min"][5]) and np.isnan(history["partition"][5])
    partition = model.optimizer.partition
    assert history["energy_min"][-1] == pytest.approx(partition.energy_min)
    assert np.isfinite(history["partition"][6:]).all()
    assert model.optimizer.visits().sum() == 20 * STEPS - 40
    assert np.isfinite(posterior.weights).all() and np.ptp(posterior.weights) > 0


@pytest.mark.in_turn("jax", "tensorflow")
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch runs eagerly")
def test_the_end_of_the_pilot_compiles_nothing_again():
    optimizer = csghmc()
    traces, step = [], optimizer._step
    optimizer._step = lambda *args: (traces.append(1), step(*args))[1]
    model = compiled(optimizer)
    fit(model, epochs=8, callbacks=[mh.PosteriorSamples()])
    # TensorFlow traces twice where an optimizer creates variables.
    assert len(traces) == (1 if keras.backend.backend() == "jax" else 2)


@both
@pytest.mark.filterwarnings("ignore:.* of the energies lie below")
@pytest.mark.parametrize("first", [2, 4, 6])
def test_a_saved_model_goes_on_bit_for_bit(make, first, tmp_path):
    """Saved in the first half of the pilot, in its last half, and after it."""
    whole = compiled(make())
    fit(whole, epochs=8, callbacks=[mh.PosteriorSamples()])
    part = compiled(make())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a run that ends in the pilot
        fit(part, epochs=first, callbacks=[])
    part.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.optimizer.get_config() == part.optimizer.get_config()
    assert again.optimizer.partition == part.optimizer.partition
    fit(again, epochs=8 - first, callbacks=[mh.PosteriorSamples()])
    np.testing.assert_array_equal(weights(again), weights(whole))
    for one, other in zip(
        optimizer_state(again.optimizer), optimizer_state(whole.optimizer), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert again.optimizer.partition == whole.optimizer.partition is not None


@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_each_chain_finds_its_own_partition(strategy):
    chains = mh.ParallelChains(sequential(), 3, seed=1, strategy=strategy)
    compiled(csghmc(), chains)
    energies = []

    class Watching(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            energies.append(numpy(self.model.optimizer._energies.variable)[:, 4])

    posterior = mh.PosteriorSamples(every=5)
    fit(chains, epochs=7, callbacks=[posterior, Watching()])
    found = chains.optimizer.partition
    assert len(found) == 3 and len(set(found)) == 3
    for partition, own in zip(found, np.array(energies).T, strict=True):
        actual = partition.energy_min, partition.energy_gap
        np.testing.assert_allclose(actual, expected_partition(own), rtol=1e-4)
    assert posterior.iterations[0] > PILOT
    assert (chains.optimizer.visits().sum(axis=1) == 7 * STEPS - PILOT).all()
    with pytest.raises(ValueError, match="with one partition"):
        mh.plots.energy(posterior, chains.optimizer)


# Runs that are too short, and energies that do not fit.


def test_a_fit_that_ends_in_the_pilot_is_refused_or_told():
    model = compiled(mh.CSGLD(0.05, train_size=N, pilot_steps=1000, seed=3))
    message = r"`fit` ends at iteration 12, .*`pilot_steps` of .*, pilot_steps=1000$"
    with pytest.raises(ValueError, match=message):
        fit(model, epochs=2, callbacks=[mh.PosteriorSamples()])
    with pytest.warns(UserWarning, match="CSGLD made 12 of its 1000 plain") as caught:
        fit(model, epochs=2, callbacks=[])
    assert sum("plain first steps" in str(w.message) for w in caught) == 1
    with pytest.raises(ValueError, match="must have run past its `pilot_steps`"):
        mh.plots.energy(np.ones(5), model.optimizer)


def test_a_pilot_that_ended_too_early_is_told_with_the_remedy():
    optimizer = csgld()
    drive = driven(optimizer, LOSSES[:PILOT] + 100.0)
    for loss in LOSSES:
        drive.step(loss, np.zeros(6))
    with pytest.warns(UserWarning, match=r"below .* larger `pilot_steps`.*steps=23"):
        optimizer.check_epoch()


@pytest.mark.parametrize("value", [3.0, np.nan])
def test_energies_without_a_spread_make_a_finite_partition(value):
    drive = driven(csgld(pilot_steps=20), np.full(25, 3.0))
    partition = drive.optimizer.partition
    assert partition.energy_min == 3.0 * N
    assert partition.energy_gap == pytest.approx(1e-6 * 3.0 * N)
    drive.step(value, np.zeros(6))
    assert np.isfinite(drive.state()).all()


# Arguments.


@both
def test_auto_is_the_default_and_is_stored(make):
    optimizer = make(pilot_steps=77)
    config = optimizer.get_config()
    assert config["partition"] == "auto" and config["pilot_steps"] == 77
    again = type(optimizer).from_config(config)
    assert again.get_config() == config and again.warm_up == 77
    assert again.partition is None
    assert type(optimizer)(0.1, train_size=N).warm_up == 1000
    known = mh.EnergyPartition(1.0, 2.0, 10)
    assert make(partition=known).warm_up == 0
    assert make(partition=known).partition == known


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pilot_steps": 19}, "`pilot_steps` must be .* Received: pilot_steps=19"),
        ({"pilot_steps": 20.5}, "`pilot_steps` must be"),
        ({"partition": "automatic"}, '`partition` must be an .* or "auto"'),
        ({"partition": None}, "`partition` must be"),
        ({"masses": np.ones(100)}, "`partition` must be an .* with `masses` or"),
        ({"adapt": False}, "`partition` must be an .* `adapt=False`"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    for make in (csgld, csghmc):
        with pytest.raises(ValueError, match=message):
            make(**changes)
    for build in (mh.kernels.csgld, mh.kernels.csghmc):
        with pytest.raises(ValueError, match=message):
            build(0.1, **changes)
