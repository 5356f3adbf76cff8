"""Pictures of chains: traces and ranks."""

import sys

import matplotlib

matplotlib.use("Agg")

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc import plots
from tests.support.plot_tools import chains
from tests.support.plot_tools import draws_of


def test_traces_show_every_scalar_of_every_chain():
    pytest.importorskip("arviz")
    values = chains((3, 200, 2))
    figure = plots.trace(draws_of(values))
    assert len(figure.axes) == 4
    table = mh.diagnostics.summary({"position": values})
    for i, (left, right) in enumerate(np.reshape(figure.axes, (2, 2))):
        expected = f"position[{i}]: R-hat {table['r_hat'].iloc[i]:.2f}, ESS"
        assert left.get_title().startswith(expected)
        assert right.get_title().startswith("3 chains")
        for line, chain in zip(right.lines, values[:, :, i], strict=True):
            np.testing.assert_array_equal(line.get_ydata(), chain)
        assert len(left.lines) == 3  # densities


def test_a_chain_apart_shows_in_its_ranks():
    pytest.importorskip("arviz")
    values = chains()
    values[3] += 10.0
    (ax,) = plots.rank({"x": values}).axes
    last = [bar.get_height() for bar in ax.patches[-20:]]
    assert max(last[:14]) == 0.0 and min(last[15:]) > 0.0
    assert "R-hat 1.00" not in ax.get_title()


def test_samples_of_parallel_chains_are_drawn():
    pytest.importorskip("arviz")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    parallel = mh.ParallelChains(model, num_chains=2, seed=0)
    parallel.compile(
        optimizer=mh.SGLD(1e-3, train_size=32, seed=0), loss=mh.losses.GaussianNLL(1.0)
    )
    posterior = mh.PosteriorSamples(every=1)
    x = np.ones((32, 2), "float32")
    parallel.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=[posterior])
    figure = plots.trace(posterior)
    assert len(figure.axes) == 4  # two weights
    assert len(figure.axes[1].lines) == 2
    assert len(figure.axes[1].lines[0].get_xdata()) == 8


def test_of_many_chains_the_first_are_drawn():
    pytest.importorskip("arviz")
    values = {"x": chains((12, 50))}
    _, right = plots.trace(values, max_chains=5).axes
    assert len(right.lines) == 5 and right.get_title().startswith("5 of 12 chains")
    (ax,) = plots.rank(values, max_chains=5).axes
    assert len(ax.get_yticks()) == 5 and "250" in ax.get_xlabel()


@pytest.mark.parametrize("plot", [plots.trace, plots.rank])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": {"x": np.zeros(5)}}, r"`draws` must have arrays.*\(5,\)"),
        ({"names": "y"}, "`names` must be among x"),
        ({"max_rows": 0}, "`max_rows` must be an integer"),
        ({"max_chains": 0}, "`max_chains` must be an integer"),
        ({"draws": {"x": chains((2, 9, 9))}}, "`names` must choose at most max_rows=8"),
        ({"axes": range(5)}, "`axes` must be"),
    ],
)
def test_plots_of_chains_refuse_what_does_not_fit(plot, change, message):
    pytest.importorskip("arviz")
    with pytest.raises(ValueError, match=message):
        plot(**({"draws": {"x": chains()}} | change))


def test_ranks_need_two_chains():
    pytest.importorskip("arviz")
    with pytest.raises(ValueError, match="at least 2 chains.*ParallelChains"):
        plots.rank({"x": chains((1, 50))})


@pytest.mark.parametrize("plot", [plots.trace, plots.rank])
def test_a_missing_arviz_names_the_extra(monkeypatch, plot):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install keras-mhmcmc\[stats\]"):
        plot({"x": chains()})
