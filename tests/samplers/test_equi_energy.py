"""MINTEE: its rules against an oracle, and the law of the coldest chain."""

import keras
import numpy as np
import pytest
import scipy.stats
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers import equi_energy as rules
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.sampling.equi_energy import ladder_sizes
from tests.oracles import equi_energy as oracle
from tests.support.kernel_tools import assert_close
from tests.support.kernel_tools import tensor

IS_TORCH = keras.backend.backend() == "torch"
CHAINS = 4
LEVELS = [3.0, 5.0, 9.0, 20.0]


def normal(mean, x):
    return -0.5 * ops.square(x - mean)


def two_means(means, x):
    """An equal mixture: the posterior has two modes, which differ by an exchange."""
    return ops.logaddexp(normal(means[0], x), normal(means[1], x))


def normal_data(n, seed=0):
    return np.random.default_rng(seed).normal(size=n).astype("float32")


def run(init=0.0, data=None, **settings):
    data = normal_data(60) if data is None else data
    return mh.equi_energy(
        init,
        **{
            "log_likelihood": normal,
            "data": data,
            "batch_size": len(data) // 4,
            "growth": 2.0,
            "step_size": 0.15,
            "num_steps": 60,
            "burn_in": 20,
            "ring_steps": 20,
            "ring_capacity": 16,
            "num_chains": CHAINS,
            "seed": 1,
            "progress": False,
        }
        | settings,
    )


def test_the_ladder_is_the_papers():
    sizes = [100_000, 5378, 3841, 2743, 1959, 1400, 1000]
    expected = [1.00, 19.41, 27.13, 37.93, 53.02, 74.06, 103.51]  # its table 3
    temperatures = rules.ladder(100_000, sizes, 0.995)
    np.testing.assert_allclose(temperatures, expected, atol=0.11)
    others = np.delete(temperatures, 4), np.delete(expected, 4)
    np.testing.assert_allclose(*others, atol=0.006)
    levels = rules.default_levels(-7.0, temperatures)
    assert levels[0] == -7.0 and levels[1] == 3.0
    np.testing.assert_allclose(np.diff(levels) / temperatures[:-1], 10.0)


def test_the_papers_batch_sizes_follow_from_the_smallest():
    sizes = ladder_sizes(100_000, 1000, 1.4, 7)
    assert sizes == [100_000, 5378, 3841, 2743, 1959, 1400, 1000]
    assert ladder_sizes(100, 30, 2.0, None) == [100, 60, 30]


@pytest.mark.parametrize("seed", range(3))
def test_rules_agree_with_the_oracle(seed):
    rng = np.random.default_rng(seed)
    chains = 40
    energy, new, hotter, new_hotter = rng.uniform(0, 25, size=(4, chains))
    ratio = rng.normal(size=chains)
    levels, temperatures = (5.0, 9.0), (1.5, 4.0)
    local = rules.local_log_ratio(
        tensor(energy), tensor(new), levels[0], temperatures[0], tensor(ratio)
    )
    jump = rules.jump_log_ratio(
        *(tensor(x) for x in (energy, new, hotter, new_hotter)), levels, temperatures
    )
    gradient = rng.normal(size=(chains, 3))
    scaled = rules.tempered_gradient([tensor(gradient)], tensor(energy), 9.0, 4.0)
    rings = ops.convert_to_numpy(rules.ring_index(tensor(energy), LEVELS))
    assert_close(
        [local, jump, scaled[0]],
        [
            np.array(
                [
                    oracle.local_log_ratio(energy[c], new[c], 5.0, 1.5, ratio[c])
                    for c in range(chains)
                ]
            ),
            np.array(
                [
                    oracle.jump_log_ratio(
                        (energy[c], hotter[c]),
                        (new[c], new_hotter[c]),
                        levels,
                        temperatures,
                    )
                    for c in range(chains)
                ]
            ),
            np.stack(
                [
                    oracle.tempered_gradient(gradient[c], energy[c], 9.0, 4.0)
                    for c in range(chains)
                ]
            ),
        ],
        atol=1e-5,
    )
    assert rings.tolist() == [oracle.ring_index(e, LEVELS) for e in energy]
    assert set(rings) == {0, 1, 2, 3}


def test_a_ring_is_a_uniform_sample_of_what_came():
    rng = np.random.default_rng(0)
    capacity, came, repeats = 5, 20, 4000
    held = np.full((repeats, capacity + 1), -1)
    for count in range(came):
        slots = rules.reservoir_slot(
            ops.full((repeats,), count, dtype="int32"),
            capacity,
            tensor(rng.uniform(size=repeats)),
        )
        held[np.arange(repeats), ops.convert_to_numpy(slots)] = count
    shares = np.bincount(held[:, :capacity].ravel(), minlength=came) / held.shape[0]
    assert (held[:, :capacity] >= 0).all()
    np.testing.assert_allclose(shares, capacity / came, atol=5 * 0.43 / repeats**0.5)
    uniforms = tensor([0.0, 0.19, 0.21, 0.99, 1.0])
    full = [0, 0, 1, 4, 4]
    for count, expected in [(2, [0, 0, 0, 1, 1]), (5, full), (9, full)]:
        counts = ops.full((5,), count, dtype="int32")
        slots = rules.member_slot(counts, 5, uniforms)
        assert ops.convert_to_numpy(slots).tolist() == expected


def test_step_sizes_follow_the_acceptance():
    accepted = tensor([5.0, 20.0, 40.0, 2.0])
    proposed = tensor([50.0, 50.0, 50.0, 49.0])
    sizes, ended = rules.adapted_step_size(tensor(np.ones(4)), accepted, proposed)
    assert_close([sizes], [np.array([0.8, 1.0, 1.25, 1.0])])
    assert ops.convert_to_numpy(ended).tolist() == [True, True, True, False]


def test_a_larger_batch_begins_with_the_smaller_one():
    """What a jump relies on: the further examples follow in the same order."""
    uniforms = tensor(
        np.random.default_rng(0).uniform(size=(batches.num_rounds(1000), 3))
    )
    small, large = (
        ops.convert_to_numpy(batches.draw_batches(uniforms, 1000, m)) for m in (40, 200)
    )
    np.testing.assert_array_equal(small, large[:, :40])


def run_on_a_gaussian(chains, **settings):
    """Draws around the posterior mean, in units of its standard deviation."""
    x = normal_data(60)
    rng = np.random.default_rng(1)
    exact = (x.mean() + rng.normal(size=(chains, 1)) / 60**0.5).astype("float32")
    draws = run(
        exact,
        x,
        log_likelihood=lambda mean, x: normal(mean[0], x),
        batch_size=26,
        growth=1.54,  # 60, 40 and 26 examples
        lowest_energy=-1e4,  # below all energies: one ring holds all states
        num_chains=chains,
        num_steps=80 if IS_TORCH else 200,
        burn_in=30 if IS_TORCH else 50,
        ring_steps=30 if IS_TORCH else 100,
        ring_capacity=100,
        **settings,
    )
    return draws, (draws.position[..., 0] - x.mean()) * 60**0.5


@pytest.mark.slow
def test_the_coldest_chain_has_the_posterior():
    draws, z = run_on_a_gaussian(200, jump_probability=0.3)
    assert draws.info["jump_acceptance"][:, :2].mean() > 0.1
    assert scipy.stats.kstest(z[:, -1], scipy.stats.norm.cdf).pvalue > 1e-3
    spread = np.square(z).mean(axis=1)
    assert abs(spread.mean() - 1) < 4 * spread.std() / 200**0.5


@pytest.mark.slow
def test_a_jump_without_the_hotter_law_would_be_seen(monkeypatch):
    """The test's power: jumps that forget pi_{k+1} narrow the coldest chain."""

    def forgetful(energy, new_energy, hotter, new_hotter, levels, temperatures):
        return (energy - new_energy) / temperatures[0]

    monkeypatch.setattr(rules, "jump_log_ratio", forgetful)
    _, z = run_on_a_gaussian(200, jump_probability=0.9, step_size=0.03)
    spread = np.square(z).mean(axis=1)
    assert spread.mean() + 4 * spread.std() / 200**0.5 < 1.0


@pytest.mark.slow
def test_modes_are_found_and_hot_chains_live_in_high_rings():
    rng = np.random.default_rng(2)
    n, chains = 120, 10 if IS_TORCH else 20
    x = (2.4 * rng.integers(0, 2, n) + rng.normal(size=n)).astype("float32")
    start = np.array([2.4, 0.0], "float32")

    def go(jump_probability):
        return run(
            start, x, log_likelihood=two_means, batch_size=15, growth=2.0,
            reference=np.full(2, 1.2, "float32"), num_chains=chains, step_size=0.15,
            num_steps=250 if IS_TORCH else 1000, burn_in=100, ring_steps=100,
            ring_capacity=200, jump_probability=jump_probability, alpha=0.9,
            lowest_energy=_energy(start, x),
        )  # fmt: skip

    alone, draws = go(0.0), go(0.2)
    other = draws.position[..., 1] > draws.position[..., 0]
    assert np.mean(alone.position[..., 1] > alone.position[..., 0]) < 0.02
    share = other.mean(axis=1)
    assert 0.2 < share.mean() < 0.8
    shares = draws.rings.shares
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    # Ring for ring: the share above each level grows with the temperature.
    above = 1.0 - np.cumsum(shares, axis=1)[:, :-1]
    assert (np.diff(above, axis=0) > -0.02).all()
    assert above[-1, -1] > above[0, -1] + 0.1


def _energy(means, x):
    each = np.logaddexp(-0.5 * (x - means[0]) ** 2, -0.5 * (x - means[1]) ** 2)
    return -float(each.sum())


@pytest.mark.slow_on("jax", "tensorflow")
def test_draws_and_table_have_their_shapes():
    init = {"mean": np.zeros(1, "float32"), "shift": np.float32(0.1)}
    draws = run(
        init,
        {"x": normal_data(60)},
        batch_size=15,
        log_likelihood=lambda p, batch: normal(p["mean"][0] + p["shift"], batch["x"]),
        log_prior=lambda p: -0.5 * ops.square(p["shift"]),
        keep_all=True,
        every=2,
    )
    assert draws.position["mean"].shape == (CHAINS, 20, 1)
    assert draws.info["energy"].shape == draws.position["shift"].shape == (CHAINS, 20)
    mean = draws.position["mean"][..., 0].astype("float64") + draws.position["shift"]
    x = normal_data(60).astype("float64")
    energy = 0.5 * np.square(x - mean[..., None]).sum(-1)
    energy += 0.5 * draws.position["shift"].astype("float64") ** 2
    np.testing.assert_allclose(draws.info["energy"], energy, rtol=1e-4)
    assert len(draws.levels) == 3 and draws.levels[0] is draws
    for name in ("acceptance", "jump_acceptance", "step_sizes"):
        assert draws.info[name].shape == (CHAINS, 3)
    assert np.isnan(draws.info["jump_acceptance"][:, 2]).all()
    assert draws.info["batch_sizes"].tolist() == [60, 30, 15]
    lines = repr(draws.rings).split("\n")
    assert len({len(line) for line in lines}) == 1 and len(lines) == 4
    assert "<H1" in lines[0] and ">=H2" in lines[0] and "[H1,H2)" in lines[0]
    pandas = pytest.importorskip("pandas")
    frame = draws.rings.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["batch_size"].tolist() == [60, 30, 15]


@pytest.mark.slow
def test_two_halves_are_one_run():
    whole = run(num_steps=40)
    first = run(num_steps=25)
    second = run(first.state, num_steps=15)
    together = np.concatenate([first.position, second.position], axis=1)
    np.testing.assert_array_equal(together, whole.position)
    np.testing.assert_array_equal(second.rings.shares, whole.rings.shares)
    with pytest.raises(ValueError, match="`init`.*rings of 16.*rings of 17"):
        run(first.state, ring_capacity=17)


@pytest.mark.slow_on("jax", "tensorflow")
def test_an_interrupted_run_returns_its_draws(monkeypatch):
    calls = []
    convert = ops.convert_to_numpy

    def interrupt(x):
        calls.append(x)
        if len(calls) == 120:
            raise KeyboardInterrupt
        return convert(x)

    monkeypatch.setattr("keras_mhmcmc.sampling.loop.ops.convert_to_numpy", interrupt)
    with pytest.warns(UserWarning, match="Interrupted after"):
        draws = run(num_steps=100000)
    assert draws.interrupted
    assert np.isfinite(draws.position).all() and draws.rings.shares.shape == (3, 3)


def test_moves_to_where_nothing_is_finite_are_refused():
    def log_likelihood(mean, x):
        inside = ops.abs(mean) < 0.3
        return ops.where(inside, normal(mean, x), np.nan)

    draws = run(log_likelihood=log_likelihood, step_size=0.5)
    assert (np.abs(draws.position) < 0.3).all()
    assert draws.info["nonfinite"].sum() > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 60},
        {"batch_size": 45, "growth": 1.4, "num_levels": 3},
        {"batch_size": 20, "growth": 1.0},
        {"batch_size": 2, "growth": 1.01},
        {"batch_size": 20, "num_levels": 1},
    ],
)
def test_ladders_that_do_not_fit_the_data_are_refused(settings):
    with pytest.raises(ValueError, match="`batch_size`|`growth`|`num_levels`"):
        run(**settings)


def test_a_start_without_a_density_is_refused():
    with pytest.raises(ValueError, match="`init`.*finite"):
        run(log_likelihood=lambda mean, x: normal(mean, x) + np.inf)
