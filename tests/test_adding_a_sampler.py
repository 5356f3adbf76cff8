"""The sampler of `docs/adding_a_sampler.md` works at every front door."""

import pathlib
import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import weights

PAGE = pathlib.Path(__file__).parent.parent / "docs/adding_a_sampler.md"


@pytest.fixture(scope="module")
def names():
    """What the blocks of the page define."""
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = {"__name__": "adding_a_sampler"}
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "page", "exec"), found)
    return found


def test_its_variance_is_exact_where_that_of_sgld_is_not(names):
    rate, chains = 0.8, 4000
    draws = {
        name: mh.sample(
            kernel,
            np.random.default_rng(0).normal(size=(chains, 1)).astype("float32"),
            log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
            num_steps=40,
            num_chains=chains,
            progress=False,
        ).position[:, -1, 0]
        for name, kernel in (
            ("lm", names["lm"](rate)),
            ("sgld", mh.kernels.sgld(rate)),
        )
    }
    error = np.sqrt(2 / chains)
    assert abs(draws["lm"].var() - 1.0) < 4 * error
    assert abs(draws["sgld"].var() - 1 / (1 - rate / 2)) < 4 * error / (1 - rate / 2)


def test_a_saved_and_loaded_model_goes_on_bit_for_bit(names, tmp_path):
    model = compiled(names["LM"](0.05, train_size=96, seed=1))
    fit(model, epochs=2)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, restored):
        fit(each, epochs=1)
    np.testing.assert_array_equal(weights(model), weights(restored))
    assert "noise" in model.optimizer.slots._fields


def test_many_chains_are_sampled(names):
    model = compiled(names["LM"](0.05, train_size=96, seed=1))
    chains = mh.ParallelChains(model, 3, seed=0)
    chains.compile(names["LM"](0.05, train_size=96, seed=1), model.loss)
    x, y = data()
    posterior = mh.PosteriorSamples()
    chains.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[posterior])
    assert len(posterior) == 2
    assert np.isfinite(posterior.ensemble(chains).predict(x, verbose=0)).all()
