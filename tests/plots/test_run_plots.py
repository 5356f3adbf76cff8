"""Pictures of runs: energies, acceptance, contours, inclusion."""

import matplotlib

matplotlib.use("Agg")

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import plots
from tests.support.samplers import AT_ONCE

PARTITION = mh.EnergyPartition(energy_min=10.0, energy_gap=2.0, partitions=4)


def texts(legend):
    return [text.get_text() for text in legend.get_texts()]


def normal(position):
    return -0.5 * ops.sum(ops.square(position))


def test_energies_are_drawn_along_the_run():
    energies = np.array([[3.0, 2.0, 4.0], [1.0, 5.0, np.nan]])
    (ax,) = plots.energy(energies).axes
    assert len(ax.lines) == 2 and "2 chains" in ax.get_title()
    for line, chain in zip(ax.lines, energies, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
        np.testing.assert_array_equal(line.get_ydata(), chain)
    assert ax.get_xlabel() == "draw" and "nats" in ax.get_ylabel()


def regression():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    return x, x[:, :1]


def fitted(optimizer, epochs=2):
    keras.utils.set_random_seed(0)
    x, y = regression()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="head")])
    model.compile(optimizer=optimizer, loss=mh.losses.GaussianNLL(1.0))
    posterior = mh.PosteriorSamples(every=2)
    history = model.fit(
        x, y, batch_size=16, epochs=epochs, verbose=0, callbacks=[posterior]
    )
    return model, posterior, history


@pytest.mark.filterwarnings("ignore:.*subregion")
def test_a_contour_sampler_and_its_samples_are_drawn():
    model, posterior, _ = fitted(
        mh.CSGLD(
            1e-3,
            train_size=64,
            partition=mh.EnergyPartition(60.0, 10.0, 20),
            zeta=0.5,
            seed=0,
        )
    )
    trace, ax, density = plots.energy(posterior, model.optimizer).axes
    np.testing.assert_array_equal(trace.lines[0].get_xdata(), [2, 4, 6, 8])
    np.testing.assert_array_equal(trace.lines[0].get_ydata(), posterior.energies)
    assert trace.get_xlabel() == "iteration"
    visits = model.optimizer.visits()
    shares = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(shares, 100 * visits / visits.sum())
    # Subregion 1 ends at energy_min, the others follow.
    assert ax.patches[0].get_x() == 50.0
    assert {bar.get_width() for bar in ax.patches} == {10.0}
    (line,) = density.lines
    seen = np.flatnonzero(visits)
    shown = slice(seen[0], seen[-1] + 1)
    np.testing.assert_allclose(line.get_xdata(), 55.0 + 10.0 * np.arange(20)[shown])
    masses = model.optimizer.learned_masses()[shown]
    np.testing.assert_allclose(line.get_ydata(), np.log(masses))
    assert texts(density.get_legend()) == ["visits", r"log $\theta$"]


def test_each_chain_of_several_directories_has_its_own_iterations(tmp_path):
    for seed, every in enumerate((1, 2)):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        sampler = mh.SGLD(1e-4, train_size=64, seed=seed)
        model.compile(sampler, mh.losses.GaussianNLL(1.0))
        posterior = mh.PosteriorSamples(every=every, directory=tmp_path / str(every))
        model.fit(*regression(), 16, epochs=1 + seed, verbose=0, callbacks=[posterior])
    both = mh.PosteriorSamples.load([tmp_path / "1", tmp_path / "2"])
    (ax,) = plots.energy(both).axes
    found = [line.get_xdata().tolist() for line in ax.lines]
    assert found == [[1, 2, 3, 4], [2, 4, 6, 8]]


@pytest.mark.filterwarnings("ignore:.*energies lie below")
def test_contour_draws_bring_their_masses():
    draws = mh.sample(
        mh.kernels.csgld(
            0.1, partition=PARTITION, zeta=0.5, masses=[0.5, 0.3, 0.1, 0.1]
        ),
        np.zeros((2, 1)) + 5.0,
        log_density=normal,
        num_steps=20,
        num_chains=2,
        seed=0,
        progress=False,
    )
    _, ax, density = plots.energy(draws, partition=PARTITION).axes
    visits = draws.info["visits"].sum(0)
    shares = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(shares, 100 * visits / visits.sum())
    assert len(density.lines) == 2 and "2 chains" in ax.get_title()
    other = mh.EnergyPartition(energy_min=10.0, energy_gap=2.0, partitions=5)
    with pytest.raises(ValueError, match="`partition` must be that of the contour"):
        plots.energy(draws, partition=other)


# Acceptance.


def test_acceptance_and_beta_of_a_fit_are_drawn():
    _, _, history = fitted(
        mh.RSGLD(1e-3, train_size=64, batch_size=16, seed=0, **AT_ONCE), epochs=3
    )
    shares, beta = plots.acceptance(history).axes
    assert len(shares.lines) == 3
    np.testing.assert_array_equal(shares.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(
        shares.lines[0].get_ydata(), 100 * np.array(history.history["acceptance"])
    )
    np.testing.assert_allclose(beta.lines[0].get_ydata(), history.history["beta"])
    assert "%" in shares.get_ylabel() and shares.get_xlabel() == "epoch"
    assert texts(shares.get_legend())[0] == "all proposals"


def test_acceptance_of_several_chains_has_a_line_for_each():
    rng = np.random.default_rng(0)
    figure = plots.acceptance({"acceptance": rng.uniform(size=(4, 3))})
    assert len(figure.axes) == 1 and len(figure.axes[0].lines) == 3
    assert texts(figure.axes[0].get_legend()) == ["all proposals"]


# Contours.


def contour_paths(ax):
    """The drawn contours by their share, each as an array of points."""
    (lines,) = [c for c in ax.collections if hasattr(c, "levels")]
    shares = [lines.labelFmt[level] for level in lines.levels]
    assert {text.get_text() for text in lines.labelTexts} <= set(shares)
    paths = [path.vertices for path in lines.get_paths()]
    return dict(zip(shares, paths, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_contours_of_a_normal_law_enclose_their_shares(temperature):
    """The share p of a 2-d normal law lies within radius sqrt(-2 T log(1 - p))."""
    ax = plots.contours(
        normal,
        extent=((-5, 5), (-5, 5)),
        points=201,
        temperature=temperature,
    )
    paths = contour_paths(ax)
    assert list(paths) == ["99%", "90%", "50%", "10%"]
    for name, points in paths.items():
        share = float(name.rstrip("%")) / 100
        radius = np.sqrt(-2.0 * temperature * np.log1p(-share))
        found = np.linalg.norm(points, axis=1)
        np.testing.assert_allclose(found, radius, atol=0.04)


def test_axes_of_the_contours_are_not_swapped():
    def wide(position):
        return -0.5 * (ops.square(position[0] / 3.0) + ops.square(position[1]))

    ax = plots.contours(wide, extent=((-10, 10), (-4, 4)))
    points = contour_paths(ax)["90%"]
    assert np.ptp(points[:, 0]) == pytest.approx(3.0 * np.ptp(points[:, 1]), rel=0.05)


def test_draws_lie_on_the_contours():
    position = np.random.default_rng(0).normal(size=(4, 500, 2))
    ax = plots.contours(normal, mh.Draws(position, None, {}, None), max_draws=100)
    (dots,) = [line for line in ax.lines if line.get_marker() == "."]
    np.testing.assert_array_equal(dots.get_xydata(), position.reshape(-1, 2)[::20])
    low, high = ax.get_xlim()
    assert low < np.quantile(position[..., 0], 0.001) and high < 6.0
    assert texts(ax.get_legend())[0] == "100 draws"


def test_weighted_draws_are_resampled():
    position = np.stack([np.zeros((1, 50, 2)), np.ones((1, 50, 2))], 2).reshape(
        1, -1, 2
    )
    log_weights = np.where(position[..., 0] > 0, 0.0, -np.inf)
    ax = plots.contours(normal, mh.Draws(position, log_weights, {}, None))
    (dots,) = [line for line in ax.lines if line.get_marker() == "."]
    assert np.all(dots.get_xydata() == 1.0)


def test_a_target_of_the_library_has_contours():
    target = mh.targets.TiedMeans(train_size=100)
    ax = plots.contours(target, extent=((-2, 3), (-3, 3)), temperature=10.0, points=60)
    points = contour_paths(ax)["99%"]
    assert points.min(0)[0] < target.modes[:, 0].min()
    assert points.max(0)[0] > target.modes[:, 0].max()


# Inclusion probabilities.


def test_inclusion_probabilities_are_sorted_in_each_kernel():
    probabilities = {
        "a/kernel": np.array([[0.2, 0.9], [0.6, 0.1]]),
        "b/kernel": np.linspace(0.0, 1.0, 101)[:, None],
    }
    ax = plots.inclusion(probabilities)
    first, second = ax.lines[:2]
    np.testing.assert_array_equal(first.get_ydata(), [0.9, 0.6, 0.2, 0.1])
    np.testing.assert_array_equal(first.get_xdata(), [1, 2, 3, 4])
    np.testing.assert_allclose(second.get_ydata(), np.linspace(1, 0, 101), atol=1e-9)
    assert texts(ax.get_legend()) == [
        "a/kernel: 2 of 4 (50.0%)",
        "b/kernel: 50 of 101 (49.5%)",
    ]
    assert ax.get_xscale() == "log" and "rank" in ax.get_xlabel()


def test_a_spike_and_slab_sampler_is_drawn():
    model, _, _ = fitted(
        mh.SGLDSA(
            1e-3,
            train_size=64,
            prior=mh.priors.SpikeSlab("kernel", v0=1e-2, v1=1.0),
            likelihood="categorical",
            seed=0,
        )
    )
    ax = plots.inclusion(model.optimizer)
    (values,) = model.optimizer.inclusion_probabilities().values()
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_allclose(drawn, np.sort(values, axis=None)[::-1])
    assert "head/kernel" in texts(ax.get_legend())[0]


def test_each_chain_has_inclusion_probabilities_of_its_own():
    slab = mh.priors.SpikeSlab("kernel", v0=1e-2, v1=1.0)
    sampler = mh.SGLDSA(1e-3, train_size=64, prior=slab, seed=0)
    layers = [keras.Input((4,)), keras.layers.Dense(1, name="head")]
    chains = mh.ParallelChains(keras.Sequential(layers), 2)
    chains.compile(sampler, loss="mae")
    chains.fit(np.ones((64, 4)), np.zeros((64, 1)), verbose=0)
    ax = plots.inclusion(sampler)
    [values] = sampler.inclusion_probabilities().values()
    for line, chain in zip(ax.lines[:2], values, strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.sort(chain, axis=None)[::-1])
    for number, text in enumerate(texts(ax.get_legend())):
        assert f"head/kernel, chain {number}:" in text
