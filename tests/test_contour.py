"""The contour kernels against float64 oracles, exact laws and hostile energies."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from kernel_tools import assert_close
from kernel_tools import draw
from kernel_tools import tensor
from kernel_tools import tensors_of
from oracles import contour as oracle
from oracles import steps

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from keras_mhmcmc.chains import loop
from keras_mhmcmc.kernels import contour
from keras_mhmcmc.kernels import hamiltonian
from keras_mhmcmc.kernels import importance
from keras_mhmcmc.kernels import langevin
from keras_mhmcmc.partition import checked_partition

BASE = dict(
    energy_min=2.0,
    energy_gap=0.5,
    partitions=12,
    zeta=0.75,
    step_size=None,
    random_field="zeta",
    difference="backward",
    max_multiplier=5.0,
    weight_power=None,
    rho=0.0,
    pdf=None,
    adapt=True,
)


# The steps themselves are compared with the oracles on every backend.
long_run = pytest.mark.skipif(
    keras.backend.backend() == "torch",
    reason="many steps take minutes where the loop is not compiled",
)


def partition(**changes):
    return checked_partition(**(BASE | changes))


def learned(log_pdf, energy, step_size, settings, function=contour.learned):
    return function(log_pdf, contour.locate(energy, settings), step_size, settings)


def flattened(log_pdf, energy, temperature, settings):
    place = contour.locate(energy, settings)
    return contour.flattened(log_pdf, place, temperature, settings)


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
    actual = contour.partition_index(tensor(energy), partition().contour)
    assert int(actual) == expected


@pytest.mark.parametrize("rho", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("zeta", "field"), [(0.75, "zeta"), (1, "zeta"), (9, "one")])
@pytest.mark.parametrize("energy", [0.0, 3.3, 99.0])
def test_an_update_is_the_oracles(energy, zeta, field, rho):
    settings = partition(zeta=zeta, random_field=field, rho=rho).contour
    theta = a_theta()
    index = oracle.index_of(energy, oracle.boundaries(2.0, 0.5, 12))
    exponent = 1 if field == "one" else zeta
    expected = oracle.updated(theta, index, 0.05, exponent, rho)
    actual = learned(a_log_theta(theta), tensor(energy), 0.05, settings)
    actual = contour.normalized(actual)
    assert_close([actual], [np.log(expected)])


@pytest.mark.parametrize("rho", [0.0, 2.0])
def test_a_shared_update_is_the_mean_of_the_fields(rho):
    settings = partition(rho=rho).contour
    theta, energies = a_theta(), [0.0, 3.3, 3.4, 99.0, np.nan]
    bounds = oracle.boundaries(2.0, 0.5, 12)
    indices = [oracle.index_of(energy, bounds) for energy in energies[:4]]
    expected = oracle.updated_together(theta, indices, 0.05, 0.75, rho)
    actual = learned(
        a_log_theta(theta), tensor(energies), 0.05, settings, contour.learned_together
    )
    assert_close([contour.normalized(actual)], [np.log(expected)])


def test_chains_update_each_their_own():
    settings = partition(rho=1.0).contour
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
    settings = partition(max_multiplier=limit, difference=difference).contour
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
    settings = partition(max_multiplier=limit).contour
    factor, weight = flattened(a_log_theta(a_theta()), tensor(4.0), 0.0, settings)
    assert float(factor) == 1.0
    assert np.isfinite(float(weight))


def test_the_factor_scales_the_gradient_and_not_the_noise():
    rng = np.random.default_rng(4)
    x, g, v, z = (draw(rng) for _ in range(4))
    settings = dict(learning_rate=0.3, temperature=0.5, train_size=7)
    scaled = [-2.5 * part for part in g]
    actual = langevin.sgld_step(
        *map(tensors_of, (x, g, z)), **settings, multiplier=tensor(-2.5)
    )
    assert_close(actual, steps.sgld_step(x, scaled, z, 0.3, 0.5, 7))
    actual = hamiltonian.sghmc_step(
        *map(tensors_of, (x, v, g, z)), **settings, momentum=0.9, multiplier=-2.5
    )
    expected = steps.sghmc_step(x, v, scaled, z, 0.3, 0.9, 0.5, 7)
    for part, whole in zip(actual, expected, strict=True):
        assert_close(part, whole)


# Many updates.


@functools.cache
def updates(count, exponent_name="zeta", zeta=0.75, step_size=None):
    """log theta after `count` updates with energies that never leave two bins."""
    settings = partition(zeta=zeta, random_field=exponent_name, partitions=50).contour
    schedule = mh.schedules.RobbinsMonro()

    def step(state, constants, draws, number):
        # Subregions 5 and 6; all others stay empty.
        _, uniforms = draws
        energy = 2.0 + 0.5 * (4.0 + 2.0 * uniforms[0])
        size = schedule(number) if step_size is None else step_size
        log_pdf = learned(state[0], energy, size, settings)
        log_pdf = contour.normalized(log_pdf)
        return (log_pdf,), [log_pdf], []

    def noise(seed, number):
        return _backend.draw(seed, number, [(1, 1)], (1, 1))

    start = tensor(partition(partitions=50).log_pdf)[None]
    outcome = loop.run(
        step,
        noise,
        (start,),
        (),
        loop.Plan(count, 0, count),
        seed=5,
        start=0,
        names=(),
        progress=False,
    )
    return np.asarray(outcome.arrays[0], "float64")[0, 0]


def test_theta_keeps_its_sum_and_empty_bins_stay_finite():
    for exponent, zeta in (("zeta", 0.75), ("one", 100.0)):
        log_pdf = updates(10_000, exponent, zeta, step_size=0.02)
        assert np.isfinite(log_pdf).all()
        assert abs(np.exp(log_pdf).sum() - 1) < 1e-5
        # What float32 without logarithms would have lost.
        assert log_pdf.min() < -90


@pytest.mark.slow
@long_run
def test_theta_keeps_its_sum_after_a_million_updates():
    log_pdf = updates(1_000_000)
    assert np.isfinite(log_pdf).all()
    assert abs(np.exp(log_pdf).sum() - 1) < 1e-5


def test_the_update_in_place_would_lose_the_sum():
    # The order of the authors' code: entries above J see the theta(J) just changed.
    theta, rng = a_theta(), np.random.default_rng(0)
    for _ in range(5000):
        index = rng.integers(12)
        rate = 0.003 * theta[index] ** 0.75
        theta[:index] *= 1 - rate
        theta[index] += rate * (1 - theta[index])
        theta[index + 1 :] *= 1 - 0.003 * theta[index] ** 0.75
    assert abs(theta.sum() - 1) > 1e-5


@pytest.mark.parametrize("energy", [np.nan, np.inf, -np.inf])
def test_an_energy_that_is_not_finite_teaches_nothing(energy):
    settings = partition().contour
    log_pdf = a_log_theta(a_theta())
    after = learned(log_pdf, tensor(energy), 0.1, settings)
    assert_close([after], [ops.convert_to_numpy(log_pdf)], rtol=0, atol=0)
    place = contour.locate(tensor(energy), settings)
    visits = contour.visited(ops.zeros((12,), "int32"), place, settings)
    assert int(ops.sum(visits)) == 0
    factor, weight = flattened(log_pdf, tensor(energy), 1.0, settings)
    assert np.isfinite(float(factor))
    assert float(weight) < -1e20


# The weights: their law, by quadrature over the paper's mixture.

LIMITS = np.linspace(-16.0, 14.0, 300_001)


def mixture_energy(x):
    parts = [np.log(w) - 0.5 * (x - m) ** 2 for w, m in ((0.4, -6), (0.6, 4))]
    return 0.5 * np.log(2 * np.pi) - np.logaddexp(*parts)


def mixture_gradient(x):
    share = 1 / (1 + 1.5 * np.exp(0.5 * (x + 6) ** 2 - 0.5 * (x - 4) ** 2))
    return x - 4 + 10 * share


def weighted_mean(difference, step_weights):
    """The mean of the flattened mixture with its exact theta, weighted."""
    energy = mixture_energy(LIMITS)
    settings = partition(
        energy_gap=1.0, partitions=50, difference=difference, max_multiplier=None
    ).contour
    energies = tensor(energy)
    index = ops.convert_to_numpy(contour.partition_index(energies, settings))
    mass = np.bincount(index, np.exp(-energy), 50)
    log_pdf = tensor(np.log(np.maximum(mass / mass.sum(), 1e-30)))
    rows = ops.broadcast_to(log_pdf[None], (len(energy), 50))
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
    assert abs(weighted_mean(difference, step_weights=False)) < 0.02


def test_the_weights_of_the_subregions_are_not():
    # The paper's theta(J)^zeta: the reason why the weights are interpolated.
    assert weighted_mean("backward", step_weights=True) > 0.2


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
    settings = MIXTURE | dict(zeta=2.0, random_field="one", energy_gap=1.0)
    exact = run(mh.kernels.csgld(0.05, **settings))
    share = np.average(exact.info["energy"], weights=exact.weights)
    # By quadrature, up to the noise of 30 chains and the bias of the step.
    density = np.exp(-mixture_energy(LIMITS))
    expected = np.average(mixture_energy(LIMITS), weights=density)
    assert abs(share - expected) < 0.1
    root = run(mh.kernels.csgld(0.05, **settings, weight_power=1.0))
    biased = np.average(root.info["energy"], weights=root.weights)
    assert biased > expected + 0.3


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


# Runs.


def mixture(x):
    parts = [np.log(w) - 0.5 * ops.square(x - m) for w, m in ((0.4, -6), (0.6, 4))]
    return ops.logaddexp(*parts) - 0.5 * float(np.log(2 * np.pi))


MIXTURE = dict(energy_min=2.0, energy_gap=1.0, partitions=50, zeta=0.75)


@long_run
@pytest.mark.parametrize("shared", [False, True])
def test_a_contour_chain_crosses_where_sgld_does_not(shared):
    kernel = mh.kernels.csgld(0.1, **MIXTURE, shared_density=shared)
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
    assert draws.info["pdf"].shape == draws.info["visits"].shape == (20, 50)
    assert (draws.info["visits"].sum(axis=1) == len(draws)).all()
    np.testing.assert_allclose(draws.info["pdf"].sum(axis=1), 1, atol=1e-5)
    if shared:
        assert (draws.info["pdf"] == draws.info["pdf"][0]).all()


def test_zeta_near_zero_is_the_plain_sampler():
    run = functools.partial(
        mh.sample,
        init=[1.0, 2.0],
        log_density=lambda x: -ops.sum(ops.square(x)),
        num_steps=200,
        num_chains=3,
        progress=False,
    )
    settings = dict(energy_min=0.5, energy_gap=0.2, partitions=20, zeta=1e-12)
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
    pdf = np.linspace(2.0, 1.0, 50)
    kernel = mh.kernels.csgld(0.1, **MIXTURE, pdf=pdf, adapt=False)
    draws = mh.sample(
        kernel, 4.0, log_density=mixture, num_steps=300, num_chains=2, progress=False
    )
    np.testing.assert_allclose(draws.info["pdf"][1], pdf / pdf.sum(), rtol=1e-5)


def test_a_contour_chain_goes_on_bit_for_bit():
    kernel = mh.kernels.csghmc(0.1, **MIXTURE)
    run = functools.partial(
        mh.sample, kernel, log_density=mixture, num_chains=3, progress=False
    )
    whole = run(4.0, num_steps=200)
    first = run(4.0, num_steps=120)
    second = run(first.state, num_steps=80)
    np.testing.assert_array_equal(second.position, whole.position[:, 120:])
    np.testing.assert_array_equal(second.info["pdf"], whole.info["pdf"])


def literal_run(low, gap, m, size, num_steps, num_chains):
    """Algorithm 1 as it stands, theta in float32, from a uniform theta."""
    rng = np.random.default_rng(0)
    rows = np.arange(num_chains)
    theta, x = np.full((num_chains, m), 1.0 / m, "float32"), np.full(num_chains, 4.0)
    for _ in range(num_steps):
        place = np.ceil((mixture_energy(x) - low) / gap)
        index = np.clip(np.nan_to_num(place), 0, m - 1).astype(int)
        rate = size * theta[rows, index] ** 0.75
        theta *= (1 - rate)[:, None]
        theta[rows, index] += rate
        # Compiled programs take numbers below float32's normal ones for 0.
        theta[theta < np.finfo("float32").tiny] = 0.0
        slope = np.log(theta[rows, index] / theta[rows, np.maximum(index - 1, 0)]) / gap
        x = x - 0.1 * (1 + 0.75 * slope) * mixture_gradient(x)
        x = x + np.sqrt(0.2) * rng.normal(size=num_chains)
    return x


def test_a_literal_implementation_blows_up_and_ours_does_not():
    """A partition from below the lowest energy, uniform theta, no limit."""
    low, gap, m, size = -8.0, 1.0, 50, 0.01
    with np.errstate(all="ignore"):
        end = literal_run(low, gap, m, size, num_steps=30_000, num_chains=20)
    assert not np.isfinite(end).all()

    kernel = mh.kernels.csgld(
        0.1,
        energy_min=low,
        energy_gap=gap,
        partitions=m,
        zeta=0.75,
        step_size=size,
        pdf=np.ones(m),
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
    far = dict(energy_gap=1.0, partitions=20, zeta=0.75)
    run = functools.partial(
        mh.sample, init=4.0, log_density=mixture, num_steps=500, progress=False
    )
    with pytest.warns(UserWarning, match=r"above the last .* try `energy_min="):
        run(mh.kernels.csgld(0.1, energy_min=-60.0, **far))
    with pytest.warns(UserWarning, match=r"below the first .* try `energy_min="):
        run(mh.kernels.csgld(0.1, energy_min=60.0, **far))


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
    top = advice["energy_min"] + advice["energy_gap"] * 38
    assert energies.min() < advice["energy_min"] < np.median(energies)
    assert top > energies.max()
    draws = mh.sample(
        mh.kernels.csgld(0.1, zeta=0.75, **advice),
        4.0,
        log_density=mixture,
        num_steps=30_000,
        every=10,
        num_chains=10,
        progress=False,
    )
    assert (draws.position.min(axis=1) < -4).mean() > 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zeta": 0.0}, "`zeta` must be a number"),
        ({"zeta": -1.0}, "`zeta`"),
        ({"partitions": 1}, "`partitions` must be an integer that is at least 2"),
        ({"energy_gap": 0.0}, "`energy_gap`"),
        ({"energy_min": np.nan}, "`energy_min`"),
        ({"pdf": np.ones(11)}, r"`pdf` must have one number for each of the 12"),
        ({"pdf": np.r_[np.ones(11), 0.0]}, r"`pdf` .* pdf\[11\]=0.0"),
        ({"pdf": np.r_[np.nan, np.ones(11)]}, r"`pdf` .* pdf\[0\]=nan"),
        ({"adapt": False}, "`pdf` must be given"),
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
    arguments = {**BASE, **changes}
    kernels = (
        lambda: mh.kernels.csgld(0.1, **arguments),
        lambda: mh.kernels.csghmc(0.1, **arguments),
        lambda: mh.CSGLD(0.1, train_size=10, **arguments),
        lambda: mh.CSGHMC(0.1, train_size=10, **arguments),
    )
    for make in kernels:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("energies", [[], [1.0] * 20, [1.0, 2.0], [np.nan] * 20])
def test_a_partition_needs_energies_that_differ(energies):
    with pytest.raises(ValueError, match="`energies` must have at least 10 finite"):
        mh.suggest_partition(energies)


def test_draws_are_resampled_by_their_weights():
    pdf = np.r_[np.full(25, 3.0), np.full(25, 1.0)]
    # Half of a flat square has three times the weight of the other half.
    kernel = mh.kernels.csgld(
        0.01,
        energy_min=0.02,
        energy_gap=0.02,
        partitions=50,
        zeta=1.0,
        pdf=pdf,
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
