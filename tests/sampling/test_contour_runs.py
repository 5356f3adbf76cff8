"""Runs of contour chains: what they reach, what they report, what they refuse."""

import functools
import json
import pickle

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.oracles import contour as oracle
from tests.support.contour_tools import PARTITION
from tests.support.contour_tools import long_run


def mixture(x):
    parts = [np.log(w) - 0.5 * ops.square(x - m) for w, m in ((0.4, -6), (0.6, 4))]
    return ops.logaddexp(*parts) - 0.5 * float(np.log(2 * np.pi))


MIXTURE = dict(partition=mh.EnergyPartition(2.0, 1.0, 50), zeta=0.75)


@pytest.mark.slow
@long_run
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("options", [MIXTURE, {}])
def test_a_contour_chain_crosses_where_sgld_does_not(options, shared):
    """With the partition of the paper, and with the one of a pilot."""
    kernel = mh.kernels.csgld(0.1, **options, shared_density=shared)
    run = functools.partial(
        mh.sample,
        init=4.0,
        log_density=mixture,
        num_steps=30_000,
        num_chains=20,
        every=10,
        burn_in=5000,
        seed=2,
        progress=False,
    )
    draws = run(kernel)
    means = np.average(draws.position, axis=1, weights=draws.weights)
    assert (means < 3).mean() > 0.5
    assert (run(mh.kernels.sgld(0.1)).position.mean(axis=1) > 3).mean() > 0.8
    count = 50 if options else 100
    assert draws.info["masses"].shape == draws.info["visits"].shape == (20, count)
    assert (draws.info["visits"].sum(axis=1) == len(draws)).all()
    np.testing.assert_allclose(draws.info["masses"].sum(axis=1), 1, atol=1e-5)
    if shared:
        assert (draws.info["masses"] == draws.info["masses"][0]).all()


def test_zeta_near_zero_is_the_plain_sampler():
    run = functools.partial(
        mh.sample,
        init=[1.0, 2.0],
        log_density=lambda x: -ops.sum(ops.square(x)),
        num_steps=200,
        num_chains=3,
        progress=False,
    )
    settings = dict(partition=mh.EnergyPartition(0.5, 0.2, 20), zeta=1e-12)
    for contour_kernel, plain in (
        (mh.kernels.csgld(0.1, **settings), mh.kernels.sgld(0.1)),
        (mh.kernels.csghmc(0.1, **settings), mh.kernels.sghmc(0.1)),
    ):
        draws = run(contour_kernel)
        np.testing.assert_allclose(
            draws.position, run(plain).position, rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(draws.weights, 1.0, rtol=1e-6)


def test_a_known_density_is_not_learned():
    masses = np.linspace(2.0, 1.0, 50)
    kernel = mh.kernels.csgld(0.1, **MIXTURE, masses=masses, adapt=False)
    draws = mh.sample(
        kernel, 4.0, log_density=mixture, num_steps=300, num_chains=2, progress=False
    )
    expected = masses / masses.sum()
    np.testing.assert_allclose(draws.info["masses"][1], expected, rtol=1e-5)


def test_a_contour_chain_goes_on_bit_for_bit():
    kernel = mh.kernels.csghmc(0.1, **MIXTURE)
    run = functools.partial(
        mh.sample, kernel, log_density=mixture, num_chains=3, progress=False
    )
    whole = run(4.0, num_steps=200)
    first = run(4.0, num_steps=120)
    second = run(first.state, num_steps=80)
    np.testing.assert_array_equal(second.position, whole.position[:, 120:])
    np.testing.assert_array_equal(second.info["masses"], whole.info["masses"])


def literal_run(low, gap, m, size, num_steps, num_chains):
    """Algorithm 1 as it stands, theta in float32, from a uniform theta."""
    rng = np.random.default_rng(0)
    rows = np.arange(num_chains)
    theta, x = np.full((num_chains, m), 1.0 / m, "float32"), np.full(num_chains, 4.0)
    for _ in range(num_steps):
        place = np.ceil((oracle.mixture_energy(x) - low) / gap)
        index = np.clip(np.nan_to_num(place), 0, m - 1).astype(int)
        rate = size * theta[rows, index] ** 0.75
        theta *= (1 - rate)[:, None]
        theta[rows, index] += rate
        # Compiled programs take numbers below float32's normal ones for 0.
        theta[theta < np.finfo("float32").tiny] = 0.0
        slope = np.log(theta[rows, index] / theta[rows, np.maximum(index - 1, 0)]) / gap
        x = x - 0.1 * (1 + 0.75 * slope) * oracle.mixture_gradient(x)
        x = x + np.sqrt(0.2) * rng.normal(size=num_chains)
    return x


@pytest.mark.slow_on("tensorflow", "torch")
def test_a_literal_implementation_blows_up_and_ours_does_not():
    """A partition from below the lowest energy, uniform theta, no limit."""
    low, gap, m, size = -8.0, 1.0, 50, 0.01
    with np.errstate(all="ignore"):
        end = literal_run(low, gap, m, size, num_steps=30_000, num_chains=20)
    assert not np.isfinite(end).all()

    kernel = mh.kernels.csgld(
        0.1,
        partition=mh.EnergyPartition(energy_min=low, energy_gap=gap, partitions=m),
        zeta=0.75,
        step_size=size,
        masses=np.ones(m),
    )
    with pytest.warns(UserWarning, match="No point was in the first 10 of 50"):
        draws = mh.sample(
            kernel,
            4.0,
            log_density=mixture,
            num_steps=30_000,
            every=100,
            num_chains=20,
            progress=False,
        )
    assert np.isfinite(draws.position).all()
    assert np.isfinite(draws.weights).all()


def test_energies_outside_the_partition_are_reported_with_the_fix():
    run = functools.partial(
        mh.sample, init=4.0, log_density=mixture, num_steps=500, progress=False
    )
    advice = r"try `mh.EnergyPartition\(energy_min="
    for energy_min, where in ((-60.0, "above the last"), (60.0, "below the first")):
        partition = mh.EnergyPartition(energy_min, 1.0, 20)
        with pytest.warns(UserWarning, match=f"{where} .* {advice}"):
            run(mh.kernels.csgld(0.1, partition=partition))


@long_run
def test_a_suggested_partition_holds_the_pilot_and_more():
    pilot = mh.sample(
        mh.kernels.sgld(0.1),
        4.0,
        log_density=mixture,
        num_steps=2000,
        num_chains=5,
        progress=False,
    )
    energies = pilot.info["energy"]
    advice = mh.suggest_partition(energies, partitions=40)
    top = advice.energy_min + advice.energy_gap * 38
    assert energies.min() < advice.energy_min < np.median(energies)
    assert top > energies.max()
    draws = mh.sample(
        mh.kernels.csgld(0.1, partition=advice),
        4.0,
        log_density=mixture,
        num_steps=30_000,
        every=10,
        num_chains=10,
        progress=False,
    )
    assert (draws.position.min(axis=1) < -4).mean() > 0.5


# The pilot of `partition="auto"`.


def auto(build=mh.kernels.csghmc, **options):
    return build(0.1, **{"pilot_steps": 60} | options)


def run_auto(kernel, **options):
    settings = dict(init=4.0, num_steps=200, num_chains=3, burn_in=60, seed=1)
    return mh.sample(kernel, log_density=mixture, progress=False, **settings | options)


def rule(energies):
    low = np.quantile(energies.astype("float64"), 0.1)
    return low, 4.0 * (energies.max() - low) / 98


@pytest.mark.parametrize("shared", [False, True])
def test_the_pilot_of_a_kernel_is_the_plain_kernel(shared):
    plain = run_auto(mh.kernels.sghmc(0.1), burn_in=0)
    draws = run_auto(auto(shared_density=shared))
    # The first draw after the pilot is where its last step went.
    np.testing.assert_allclose(draws.position[:, 0], plain.position[:, 60], rtol=1e-5)
    kept = plain.info["energy"][:, 30:60]
    expected = [rule(kept)] * 3 if shared else [rule(row) for row in kept]
    actual = np.stack([draws.info["energy_min"], draws.info["energy_gap"]], axis=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(draws.position[:, 10:] - plain.position[:, 70:]).max() > 1e-3
    assert (draws.info["visits"].sum(axis=1) == 140).all()
    # A visit belongs to the subregion of its own chain's partition.
    for k, (low, gap) in enumerate(actual):
        bounds = oracle.boundaries(low, gap, 100)
        index = [oracle.index_of(u, bounds) for u in draws.info["energy"][k]]
        visits = np.bincount(index, minlength=100)
        assert np.abs(visits - draws.info["visits"][k]).sum() <= 2  # rounding


def test_a_run_goes_on_bit_for_bit_after_the_pilot():
    whole = run_auto(auto())
    first = run_auto(auto(), num_steps=61)
    second = run_auto(auto(), init=first.state, num_steps=139, burn_in=0)
    np.testing.assert_array_equal(second.position, whole.position[:, 1:])
    np.testing.assert_array_equal(second.info["masses"], whole.info["masses"])


def test_draws_of_the_pilot_are_refused_with_the_remedy():
    message = r"`burn_in` must be at least 60, .*smaller `pilot_steps`.*burn_in=59"
    with pytest.raises(ValueError, match=message):
        run_auto(auto(), burn_in=59)
    with pytest.raises(ValueError, match="pilot_steps=1000"):
        run_auto(mh.kernels.csgld(0.1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zeta": 0.0}, "`zeta` must be a number"),
        ({"zeta": -1.0}, "`zeta`"),
        ({"partition": None}, "`partition` must be .*`mh.suggest_partition"),
        ({"partition": (2.0, 0.5, 12)}, "`partition` must be an `mh.EnergyPartition`"),
        ({"partition": "Auto"}, r"`partition` must be .* Received: partition='Auto'"),
        ({"pilot_steps": 0}, r"`pilot_steps` must be .* Received: pilot_steps=0"),
        ({"masses": np.ones(11)}, r"`masses` must have one number for each of the 12"),
        ({"masses": np.r_[np.ones(11), 0.0]}, r"`masses` .* masses\[11\]=0.0"),
        ({"masses": np.r_[np.nan, np.ones(11)]}, r"`masses` .* masses\[0\]=nan"),
        ({"adapt": False}, "`masses` must be given"),
        ({"max_multiplier": 0.5}, "`max_multiplier`"),
        ({"random_field": "two"}, "`random_field` must be one of"),
        ({"difference": "central"}, "`difference` must be one of"),
        ({"weight_power": -1.0}, "`weight_power`"),
        ({"rho": -1.0}, "`rho`"),
        ({"rho": 1e9}, "`step_size` and `rho`"),
        ({"step_size": 1.5}, "`step_size`"),
        ({"step_size": mh.schedules.PowerDecay(0.01, 1.0, 0.0)}, "`step_size` must be"),
        ({"step_size": mh.schedules.CyclicalCosine(0.1, 70)}, "`step_size` must be"),
        (
            {"step_size": keras.optimizers.schedules.ExponentialDecay(0.1, 10, 1.5)},
            "`step_size` must be",
        ),
    ],
)
def test_bad_arguments_are_named(changes, message):
    arguments = {"partition": PARTITION, **changes}
    kernels = (
        lambda: mh.kernels.csgld(0.1, **arguments),
        lambda: mh.kernels.csghmc(0.1, **arguments),
        lambda: mh.CSGLD(0.1, train_size=10, **arguments),
        lambda: mh.CSGHMC(0.1, train_size=10, **arguments),
    )
    for make in kernels:
        with pytest.raises(ValueError, match=message):
            make()


def test_a_partition_is_an_object_that_is_compared_and_saved():
    partition = mh.EnergyPartition(np.float32(2), energy_gap=1, partitions=np.int64(50))
    assert partition == mh.EnergyPartition(2.0, 1.0, 50)
    assert partition != mh.EnergyPartition(2.0, 1.0, 51)
    assert hash(partition) == hash(mh.EnergyPartition(2.0, 1.0, 50))
    shown = "EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=50)"
    assert repr(partition) == shown
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(partition)))
    assert keras.saving.deserialize_keras_object(stored) == partition
    assert pickle.loads(pickle.dumps(partition)) == partition
    with pytest.raises(AttributeError):
        partition.energy_min = 3.0


@pytest.mark.parametrize("energies", [[], [1.0] * 20, [1.0, 2.0], [np.nan] * 20])
def test_a_partition_needs_energies_that_differ(energies):
    with pytest.raises(ValueError, match="`energies` must have at least 10 finite"):
        mh.suggest_partition(energies)


def test_draws_are_resampled_by_their_weights():
    masses = np.r_[np.full(25, 3.0), np.full(25, 1.0)]
    # Half of a flat square has three times the weight of the other half.
    kernel = mh.kernels.csgld(
        0.01,
        partition=mh.EnergyPartition(0.02, 0.02, 50),
        zeta=1.0,
        masses=masses,
        adapt=False,
        weight_power=1.0,
        max_multiplier=1.0,
    )
    draws = mh.sample(
        kernel,
        {"x": 0.5},
        log_density=lambda p: -(1.0 - ops.cos(p["x"])),
        num_steps=500,
        num_chains=4,
        progress=False,
    )
    assert draws.weights.max() > 1.5 * draws.weights.min()
    again = draws.resample(num_draws=100_000)["x"]
    assert again.shape == (100_000,)
    expected = np.average(draws.position["x"], weights=draws.weights)
    assert abs(again.mean() - expected) < 2e-3
    assert 1 <= draws.weight_ess < 2000
    with pytest.warns(UserWarning, match="have importance weights"):
        draws.summary()


@long_run
def test_the_field_does_not_change_the_weights():
    """With theta(J) in the update, theta is a root of the mass; the weight stays.

    On the paper's mixture with zeta = 2, Psi^zeta gives the mean energy, as it does
    with any theta, and Psi, the weight of the authors' code, does not.
    """
    run = functools.partial(
        mh.sample,
        init=4.0,
        log_density=mixture,
        num_steps=60_000,
        num_chains=30,
        every=10,
        burn_in=20_000,
        seed=4,
        progress=False,
    )
    settings = MIXTURE | dict(zeta=2.0, random_field="one")
    exact = run(mh.kernels.csgld(0.05, **settings))
    share = np.average(exact.info["energy"], weights=exact.weights)
    # By quadrature, up to the noise of 30 chains and the bias of the step.
    energies = oracle.mixture_energy(np.linspace(-16.0, 14.0, 300_001))
    expected = np.average(energies, weights=np.exp(-energies))
    assert abs(share - expected) < 0.1
    root = run(mh.kernels.csgld(0.05, **settings, weight_power=1.0))
    biased = np.average(root.info["energy"], weights=root.weights)
    assert biased > expected + 0.3
