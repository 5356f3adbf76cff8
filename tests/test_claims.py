"""Sizes of bias that the documentation gives, and the pages that must give them."""

import re
from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.support.example_tools import load

ROOT = Path(__file__).parents[1]


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_a_limited_multiplier_makes_the_weights_inexact():
    """Weighted mean energy of CSGLD over the exact one, as contour.md has it."""
    table = load("benchmarks/contour_weights").table()
    limited = {zeta: table[zeta, 5.0] for zeta in (0.75, 1.0, 2.0, 5.0, 10.0)}
    for zeta, expected in zip(limited, (1.0, 1.0, 1.0, 1.005, 1.034), strict=True):
        assert limited[zeta] == pytest.approx(expected, abs=6e-4)
        assert table[zeta, None] == pytest.approx(1.0, abs=6e-4)


def test_the_default_temperature_of_mhbt_widens_what_it_samples():
    """The variance is that of the distribution on weights and batches together."""
    example = load("benchmarks/batch_order")
    size, batch = example.EXAMPLES, example.BATCH
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=size)
    batches = np.array([rng.permutation(numbers)[:batch] for _ in range(40_000)])
    exact = example.mixture_variance(batches, batch)
    draws = mh.sample(
        mh.kernels.mhbt(0.4),
        [numbers.mean()],
        log_likelihood=lambda x, data: -0.5 * ops.square(data - x[0]),
        data=numbers.astype("float32"),
        batch_size=batch,
        num_steps=400,
        burn_in=100,
        every=5,
        num_chains=1000,
        seed=1,
        progress=False,
    )
    values = draws.position.astype("float64")[..., 0]
    squares = np.square(values - values.mean()).mean(axis=1)
    error = squares.std() / len(squares) ** 0.5
    assert abs(squares.mean() - exact) < 4.0 * error
    # The tempered posterior has 1 / c_n = 1 / m.
    assert exact > 1.8 / batch and squares.mean() > 1.8 / batch


@pytest.mark.parametrize("name", ["docs/choosing.md", "docs/energy_and_units.md"])
def test_tables_that_offer_rsgld_say_how_narrow_it_is(name):
    rows = re.findall(r"^\|.*\bRSGLD.*$", page(name), re.MULTILINE)
    rows = [row for row in rows if "normalized" in row or "default" in row]
    assert rows
    for row in rows:
        assert "of the posterior's standard deviation" in row


@pytest.mark.parametrize("name", ["docs/metropolis.md", "docs/papers.md"])
def test_pages_on_rsgld_give_the_command_of_its_figure(name):
    assert "nearly an optimizer" in page(name) or "nearly gradient" in page(name)
    assert "examples/benchmarks/laws.py --only rsgld" in page(name)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (mh.RSGLD, "of the posterior's standard deviation"),
        (mh.kernels.psgld, "too large"),
        (mh.kernels.sghmc, "(T + learning_rate N V / (2 (1 - mu)))"),
        (mh.kernels.sgnht, "the variance of a single weight was 0.4% too small"),
        (mh.kernels.sgld, "(T + learning_rate N V / 2)"),
        (mh.kernels.csgld, "3.4% at 10"),
        (mh.MHBT, "draws its batch at random"),
        (mh.MINT, "shuffled batches"),
        (mh.kernels.mhbt, "the stiffest directions"),
        (mh.kernels.mint, "wider than exp(-U/T)"),
        (mh.SGLDSA, "mean-field fixed point"),
        (mh.SGHMCSA, "mean-field fixed point"),
        (mh.ESM, "not a posterior probability"),
    ],
)
def test_docstrings_give_the_size_of_their_bias(sampler, words):
    assert words in " ".join(sampler.__doc__.split())


def test_nothing_is_promised_that_was_not_shown():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in pages:
        text = " ".join(path.read_text(encoding="utf-8").split()).lower()
        for words in ("nobody else", "honest uncertainty", "probability that it count"):
            assert words not in text, f"{path.name}: {words}"
