"""The contour kernels against float64 oracles, exact laws and hostile energies."""

import functools

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from keras_mhmcmc.samplers import sghmc
from keras_mhmcmc.samplers import sgld
from keras_mhmcmc.samplers.parts import contour
from keras_mhmcmc.samplers.parts import importance
from tests.oracles import contour as oracle
from tests.oracles import steps
from tests.support.contour_tools import settings_with
from tests.support.kernel_tools import assert_close
from tests.support.kernel_tools import draw
from tests.support.kernel_tools import moved
from tests.support.kernel_tools import tensor
from tests.support.models import numpy


def learned(
    log_masses, energy, step_size, settings, function=contour.update_log_masses
):
    return function(log_masses, contour.locate(energy, settings), step_size, settings)


def flattened(log_masses, energy, temperature, settings):
    place = contour.locate(energy, settings)
    return contour.multiplier_and_log_weight(log_masses, place, temperature, settings)


def a_theta(seed=0, m=12):
    return np.random.default_rng(seed).dirichlet(np.ones(m))


def a_log_theta(theta):
    return tensor(np.log(theta))


# One step.


@pytest.mark.parametrize(
    "energy", [-50.0, 1.9, 2.0, 2.0001, 2.5, 2.6, 6.9, 7.0, 7.2, 1e6]
)
def test_the_index_is_that_of_the_boundaries(energy):
    expected = oracle.index_of(energy, oracle.boundaries(2.0, 0.5, 12))
    actual = contour.locate(tensor(energy), settings_with().contour).index
    assert int(actual) == expected


@pytest.mark.parametrize("rho", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("zeta", "field"), [(0.75, "zeta"), (1, "zeta"), (9, "one")])
@pytest.mark.parametrize("energy", [0.0, 3.3, 99.0])
def test_an_update_is_the_oracles(energy, zeta, field, rho):
    options = dict(zeta=zeta, random_field=field, rho=rho)
    theta = a_theta()
    index = oracle.index_of(energy, oracle.boundaries(2.0, 0.5, 12))
    exponent = 1 if field == "one" else zeta
    for difference in ("backward", "forward"):
        settings = settings_with(difference=difference, **options).contour
        forward = difference == "forward"
        expected = oracle.updated(theta, index, 0.05, exponent, rho, forward)
        actual = learned(a_log_theta(theta), tensor(energy), 0.05, settings)
        assert_close([contour.normalized(actual)], [np.log(expected)])


@pytest.mark.parametrize("rho", [0.0, 2.0])
def test_a_shared_update_is_the_mean_of_the_fields(rho):
    settings = settings_with(rho=rho).contour
    theta, energies = a_theta(), [0.0, 3.3, 3.4, 99.0, np.nan]
    bounds = oracle.boundaries(2.0, 0.5, 12)
    indices = [oracle.index_of(energy, bounds) for energy in energies[:4]]
    expected = oracle.updated_together(theta, indices, 0.05, 0.75, rho)
    actual = learned(
        a_log_theta(theta),
        tensor(energies),
        0.05,
        settings,
        contour.update_shared_log_masses,
    )
    assert_close([contour.normalized(actual)], [np.log(expected)])


def test_chains_update_each_their_own():
    settings = settings_with(rho=1.0).contour
    thetas, energies = [a_theta(1), a_theta(2)], [2.2, 4.9]
    together = learned(tensor(np.log(thetas)), tensor(energies), tensor(0.1), settings)
    for row, theta, energy in zip(together, thetas, energies, strict=True):
        alone = learned(a_log_theta(theta), tensor(energy), 0.1, settings)
        assert_close([row], [ops.convert_to_numpy(alone)])


@pytest.mark.parametrize("difference", ["backward", "forward"])
@pytest.mark.parametrize("limit", [None, 1.2, 5.0])
@pytest.mark.parametrize("energy", [-4.0, 2.1, 4.75, 6.8, 30.0])
def test_the_factor_and_the_weight_are_the_oracles(energy, limit, difference):
    theta, forward = a_theta(3), difference == "forward"
    settings = settings_with(max_multiplier=limit, difference=difference).contour
    bounds = oracle.boundaries(2.0, 0.5, 12)
    index = oracle.index_of(energy, bounds)
    logs, energy_ = a_log_theta(theta), tensor(energy)
    factor, weight = flattened(logs, energy_, 1.5, settings)
    expected = oracle.multiplier(theta, index, 0.5, 0.75, 1.5, forward, limit)
    assert_close([factor], [expected])
    expected = oracle.log_weight(theta, energy, bounds, 0.5, 0.75, 1.5, forward, limit)
    assert_close([weight], [expected], atol=1e-5)


@pytest.mark.parametrize("limit", [None, 1.0, 5.0])
def test_at_temperature_zero_nothing_is_flattened(limit):
    settings = settings_with(max_multiplier=limit).contour
    factor, weight = flattened(a_log_theta(a_theta()), tensor(4.0), 0.0, settings)
    assert float(factor) == 1.0
    assert np.isfinite(float(weight))


def test_the_factor_scales_the_gradient_and_not_the_noise():
    rng = np.random.default_rng(4)
    x, g, v, z = (draw(rng) for _ in range(4))
    settings = dict(learning_rate=0.3, temperature=0.5, train_size=7)
    scaled = [-2.5 * part for part in g]
    settings["multiplier"] = tensor(-2.5)
    actual = moved(sgld.sgld(1.0), sgld.State(x), g, z, **settings)
    assert_close(actual.point, steps.sgld_step(x, scaled, z, 0.3, 0.5, 7))
    actual = moved(sghmc.sghmc(1.0), sghmc.State(x, v), g, z, **settings)
    expected = steps.sghmc_step(x, v, scaled, z, 0.3, 0.9, 0.5, 7)
    for part, whole in zip(actual, expected, strict=True):
        assert_close(part, whole)


# Many updates.


@functools.cache
def updates(count, exponent_name="zeta", zeta=0.75, step_size=None):
    """log theta after `count` updates with energies that never leave two bins."""
    settings = settings_with(
        zeta=zeta, random_field=exponent_name, partitions=50
    ).contour
    schedule = mh.schedules.RobbinsMonro()

    def step(state, constants, draws, number):
        # Subregions 5 and 6; all others stay empty.
        _, uniforms = draws
        energy = 2.0 + 0.5 * (4.0 + 2.0 * uniforms[0])
        size = schedule(number) if step_size is None else step_size
        log_masses = learned(state[0], energy, size, settings)
        log_masses = contour.normalized(log_masses)
        return (log_masses,), [log_masses], []

    def noise(seed, number):
        return _backend.draw(seed, number, [(1, 1)], (1, 1))

    start = tensor(settings_with(partitions=50).log_masses)[None]

    def records(state, constants):
        return step(state, constants, noise(5, 0), 0)[1:]

    run = _backend.compile_chains(step, noise, records, 1)
    (state,), _, _ = run((start,), [], 5, 0, count, count - 1, count)
    return np.asarray(ops.convert_to_numpy(state), "float64")[0]


@pytest.mark.slow_on("torch")
def test_theta_keeps_its_sum_and_empty_bins_stay_finite():
    for exponent, zeta in (("zeta", 0.75), ("one", 100.0)):
        log_masses = updates(10_000, exponent, zeta, step_size=0.02)
        assert np.isfinite(log_masses).all()
        assert abs(np.exp(log_masses).sum() - 1) < 1e-5
        # What float32 without logarithms would have lost.
        assert log_masses.min() < -90


@pytest.mark.parametrize("energy", [np.nan, np.inf, -np.inf])
def test_an_energy_that_is_not_finite_teaches_nothing(energy):
    settings = settings_with().contour
    log_masses = a_log_theta(a_theta())
    after = learned(log_masses, tensor(energy), 0.1, settings)
    assert_close([after], [ops.convert_to_numpy(log_masses)], rtol=0, atol=0)
    place = contour.locate(tensor(energy), settings)
    visits = contour.visited(ops.zeros((12,), "int32"), place, settings)
    assert int(ops.sum(visits)) == 0
    factor, weight = flattened(log_masses, tensor(energy), 1.0, settings)
    assert np.isfinite(float(factor))
    assert float(weight) < -1e20


# The weights: their law, by quadrature over the paper's mixture.

LIMITS = np.linspace(-16.0, 14.0, 300_001)


def weighted_mean(difference, step_weights=False):
    """The mean of the flattened mixture with its exact theta, weighted."""
    energy = oracle.mixture_energy(LIMITS)
    settings = settings_with(
        energy_gap=1.0, partitions=50, difference=difference, max_multiplier=None
    ).contour
    energies = tensor(energy)
    index = ops.convert_to_numpy(contour.locate(energies, settings).index)
    mass = np.bincount(index, np.exp(-energy), 50)
    log_masses = tensor(np.log(np.maximum(mass / mass.sum(), 1e-30)))
    rows = ops.broadcast_to(log_masses[None], (len(energy), 50))
    factor, log_psi = flattened(rows, energies, 1.0, settings)
    log_psi = ops.convert_to_numpy(log_psi)
    # The flattened potential is the integral of the factor over the energy.
    potential = np.zeros_like(energy)
    steps_ = np.diff(energy) * ops.convert_to_numpy(factor)[1:]
    potential[1:] = np.cumsum(steps_.astype("float64"))
    law = np.exp(-(potential - potential.min()))
    if step_weights:
        log_psi = 0.75 * np.log(np.maximum(mass / mass.sum(), 1e-30))[index]
    weights = law * np.exp(log_psi - log_psi.max())
    return np.sum(weights * LIMITS) / weights.sum()


@pytest.mark.parametrize("difference", ["backward", "forward"])
def test_the_interpolated_weights_are_exact(difference):
    assert abs(weighted_mean(difference)) < 0.02


def test_the_weights_of_the_subregions_are_not():
    # The paper's theta(J)^zeta: the reason why the weights are interpolated.
    assert weighted_mean("backward", step_weights=True) > 0.2


def laws_of_the_energy(zeta, field, difference, last):
    """Energies, their law for a normal in four dimensions, and the weighted law.

    The subregions end at `last`; theta is where its mean update stands still.
    """
    energy = np.linspace(1e-4, 40.0, 4_001)
    plain = energy * np.exp(-energy)
    partition = dict(energy_min=0.2, energy_gap=(last - 0.2) / 20, partitions=22)
    options = dict(random_field=field, difference=difference, max_multiplier=None)
    settings = settings_with(zeta=zeta, **partition, **options).contour
    energies, theta = tensor(energy), np.full(22, 1 / 22)
    for _ in range(400):
        rows = ops.broadcast_to(tensor(np.log(theta))[None], (len(energy), 22))
        factor, log_weight = map(
            ops.convert_to_numpy, flattened(rows, energies, 1.0, settings)
        )
        rise = np.concatenate([[0], np.cumsum(factor[1:] - 1) * energy[1]])
        law = plain * np.exp(rise.min() - rise)
        law /= law.sum()
        after = learned(rows, energies, 1.0, settings)
        theta = law @ np.exp(ops.convert_to_numpy(after).astype("float64"))
        theta /= theta.sum()
    weighted = law * np.exp(log_weight.astype("float64"))
    return energy, plain / plain.sum(), weighted / weighted.sum()


@pytest.mark.parametrize("last", [4.0, 10.0])
@pytest.mark.parametrize("difference", ["backward", "forward"])
@pytest.mark.parametrize(("zeta", "field"), [(0.75, "zeta"), (1, "zeta"), (2, "one")])
def test_energies_above_the_last_boundary_get_their_weight(
    zeta, field, difference, last
):
    energy, plain, weighted = laws_of_the_energy(zeta, field, difference, last)
    above = energy > last  # 9% of the mass, or 0.05%
    assert weighted[above].sum() == pytest.approx(plain[above].sum(), rel=0.1)
    assert weighted @ energy == pytest.approx(plain @ energy, rel=0.02)


# Importance weights.


def test_the_effective_sample_size():
    assert importance.effective_sample_size(np.full(7, 3.0)) == pytest.approx(7)
    assert importance.effective_sample_size([1e200, 1e-12, 0.0]) == pytest.approx(1)


@pytest.mark.parametrize("uniform", [0.0, 0.37, 0.999])
@pytest.mark.parametrize("num_draws", [1000, 3_000_000])
def test_systematic_resampling_takes_each_as_often_as_its_weight(uniform, num_draws):
    weights = np.random.default_rng(6).dirichlet(np.full(20, 0.3))
    indices = importance.systematic(7.0 * weights, uniform, num_draws)
    counts = np.bincount(indices, minlength=20)
    assert counts.sum() == num_draws
    assert np.abs(counts - num_draws * weights).max() < 1.01


RNG = np.random.default_rng(0)


def found_by_pilot(energies, steps=50, partitions=100, is_shared=False):
    energies = ops.convert_to_tensor(np.asarray(energies, "float32"))
    return numpy(contour.Pilot(steps, partitions, is_shared).found(energies))


def rule(energies, partitions=100):
    finite = energies[np.isfinite(energies)].astype("float32").astype("float64")
    low = np.quantile(finite, 0.1)
    return low, 4.0 * (finite.max() - low) / (partitions - 2)


@pytest.mark.parametrize("count", [10, 11, 25, 500])
@pytest.mark.parametrize("partitions", [3, 40])
def test_the_rule_is_the_oracles(count, partitions):
    energies = 1000.0 + 50.0 * RNG.gamma(2.0, size=(3, count))
    expected = [rule(row, partitions) for row in energies]
    actual = found_by_pilot(energies, partitions=partitions)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    for row, one in zip(energies, actual, strict=True):
        np.testing.assert_allclose(
            found_by_pilot(row, partitions=partitions), one, rtol=1e-6
        )
    together = found_by_pilot(energies, partitions=partitions, is_shared=True)
    np.testing.assert_allclose(together, rule(energies, partitions), rtol=1e-5)


def test_energies_that_are_not_finite_do_not_count():
    energies = RNG.normal(size=(4, 25))
    energies[0, [3, 7, 8]] = np.nan, np.inf, -np.inf
    energies[1, :-1] = np.nan
    energies[2] = np.nan  # a lost chain
    actual = found_by_pilot(energies)
    for k in (0, 3):
        np.testing.assert_allclose(actual[k], rule(energies[k]), rtol=1e-5)
    assert actual[1, 0] == np.float32(energies[1, -1])
    assert np.isfinite(actual).all() and (actual[:, 1] > 0).all()
    together = found_by_pilot(energies, is_shared=True)
    np.testing.assert_allclose(together, rule(energies), rtol=1e-5)


@pytest.mark.parametrize("energy", [0.0, 2.5, -3e6])
def test_float32_tells_the_subregions_of_equal_energies_apart(energy):
    low, gap = found_by_pilot(np.full(25, energy))
    assert low == np.float32(energy)
    assert gap == pytest.approx(1e-6 * max(abs(energy), 1.0))
    assert low + gap > low


def test_only_the_last_half_is_recorded():
    pilot = contour.Pilot(21, 100, is_shared=False)
    slots = pilot.init()
    assert slots.energies.shape == (11,)
    state = type(slots)(
        *(ops.convert_to_tensor(np.full(x.shape, x.value, "float32")) for x in slots)
    )
    energies = RNG.normal(size=30).astype("float32")
    for number, energy in enumerate(energies):
        state = pilot.update(
            state, ops.convert_to_tensor(energy), ops.convert_to_tensor(number)
        )
        gap = numpy(state.partition)[1]
        assert np.isinf(gap) if number < 20 else np.isfinite(gap)
    np.testing.assert_array_equal(numpy(state.energies), energies[10:21])
    np.testing.assert_allclose(
        numpy(state.partition), rule(energies[10:21]), rtol=1e-5, atol=1e-6
    )
