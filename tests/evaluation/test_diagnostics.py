"""R-hat and effective sample sizes of known series; ArviZ of both generations."""

import sys
import types

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

pytest.importorskip("arviz")


def autoregression(coefficient, chains=4, draws=4000):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(chains, draws))
    scale = (1 - coefficient**2) ** 0.5
    for i in range(1, draws):
        x[:, i] = coefficient * x[:, i - 1] + scale * x[:, i]
    return x


@pytest.mark.parametrize("coefficient", [0.0, 0.8])
def test_the_effective_size_of_an_autoregression(coefficient):
    x = autoregression(coefficient)
    row = mh.diagnostics.summary({"x": x}).loc["x"]
    expected = x.size * (1 - coefficient) / (1 + coefficient)
    assert row["ess_bulk"] == pytest.approx(expected, rel=0.15)
    assert row["r_hat"] == pytest.approx(1.0, abs=0.01)
    assert row["mean"] == pytest.approx(x.mean())
    assert row["sd"] == pytest.approx(x.std(ddof=1))


def test_r_hat_sees_a_chain_that_stands_elsewhere():
    x = autoregression(0.0)
    x[0] += 3.0
    row = mh.diagnostics.summary({"x": x}).loc["x"]
    assert row["r_hat"] > 1.3
    assert row["ess_bulk"] < 50


def test_rows_are_the_scalars_of_the_chosen_quantities():
    x = np.random.default_rng(1).normal(size=(2, 50, 2, 3))
    table = mh.diagnostics.summary({"a": x, "b": x[..., 0, 0]}, names="a")
    assert list(table.index) == [f"a[{i}, {j}]" for i in range(2) for j in range(3)]
    assert table.loc["a[1, 2]", "mean"] == pytest.approx(x[:, :, 1, 2].mean())
    assert list(mh.diagnostics.summary({"a": x, "b": x[..., 0, 0]}).index)[-1] == "b"


def test_a_summary_of_draws():
    draws = mh.sample(
        mh.kernels.mhbt(2.0),
        {"x": [0.0, 0.0], "y": 0.0},
        log_density=lambda p: -0.5 * (ops.sum(p["x"] ** 2) + p["y"] ** 2),
        num_steps=400,
        num_chains=4,
        progress=False,
    )
    table = draws.summary()
    assert list(table.index) == ["x[0]", "x[1]", "y"]
    again = mh.diagnostics.summary(draws.to_arviz())
    assert again.equals(table)


def test_a_summary_of_the_predictions_of_a_network():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    chains = mh.ParallelChains(model, num_chains=3, seed=0)
    chains.compile(
        optimizer=mh.SGLD(0.01, train_size=32, seed=0),
        loss=mh.losses.GaussianNLL(noise_std=1.0),
    )
    x, y = np.ones((32, 2)), np.ones(32)
    posterior = mh.PosteriorSamples(burn_in=4, every=2)
    chains.fit(x, y, batch_size=8, epochs=6, verbose=0, callbacks=[posterior])
    values = posterior.predictions(chains, x[:2])
    assert values.shape == (3, 10, 2, 1)
    last = chains.predict(x[:2], verbose=0)
    np.testing.assert_allclose(values[:, -1], last, rtol=1e-5)
    table = mh.diagnostics.summary({"prediction": values})
    assert list(table.index) == ["prediction[0, 0]", "prediction[1, 0]"]


@pytest.mark.parametrize(
    ("draws", "arguments", "words"),
    [
        ({"x": np.zeros(5)}, {}, "`draws`.*'x'"),
        (np.zeros((2, 5)), {}, "`draws`.*dict"),
        (3, {}, "`draws`.*3"),
        ({"x": np.zeros((2, 5))}, {"names": ["y"]}, "`names`.*x.*'y'"),
    ],
)
def test_bad_arguments_are_refused_by_name(draws, arguments, words):
    with pytest.raises(ValueError, match=words):
        mh.diagnostics.summary(draws, **arguments)


def test_arviz_1_gets_groups_in_one_dict(monkeypatch):
    module = types.ModuleType("arviz")
    module.__version__ = "1.2.0"
    module.from_dict = lambda groups: ("tree", groups)
    monkeypatch.setitem(sys.modules, "arviz", module)
    x = np.zeros((2, 3))
    groups = {"posterior": {"x": x}, "sample_stats": {"energy": x}}
    assert mh.diagnostics.to_arviz({"x": x}, {"energy": x}) == ("tree", groups)


def test_without_arviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"keras-mhmcmc\[stats\]"):
        mh.diagnostics.to_arviz({"x": np.zeros((2, 3))})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_never_changes_or_is_not_finite_has_no_r_hat():
    """ArviZ gives a constant the size of the array, and infinity a rank."""
    x = autoregression(0.0, draws=500)
    bad = {"inf": np.where(x > 2.5, np.inf, x), "nan": np.where(x > 2.5, np.nan, x)}
    draws = {"still": np.full((4, 500), 0.3), **bad, "x": x}
    with pytest.warns(UserWarning, match="3 of 4 scalars.*: still, inf, nan"):
        table = mh.diagnostics.summary(draws)
    unknown = ["r_hat", "ess_bulk", "ess_tail"]
    assert np.isnan(table.loc[["still", "inf", "nan"], unknown].to_numpy()).all()
    assert table.loc["x", "ess_bulk"] > 1500.0
    assert table.loc["still", "mean"] == pytest.approx(0.3)
