"""`mh.replica_exchange` as a program: what is kept, resumed, interrupted, refused."""

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.support.exchange_tools import KERNELS
from tests.support.exchange_tools import NOISE
from tests.support.exchange_tools import gaussian
from tests.support.exchange_tools import noisy_gaussian
from tests.support.exchange_tools import run


@pytest.mark.parametrize("swap_every", [1, 5])
def test_swaps_are_as_frequent_as_asked(swap_every):
    draws = run(
        KERNELS["random walk"], temperatures=(1.0, 1.0001), swap_every=swap_every,
        steps=200, chains=200, burn_in=0,
    )  # fmt: skip
    assert np.nanmean(draws.info["swap_acceptance"]) > 0.99
    changes = (np.diff(draws.position, axis=1) != 0).mean()
    assert changes > 0.5
    assert draws.info["energy"].shape == (200, 200)


@pytest.mark.slow_on("jax", "tensorflow")
@pytest.mark.parametrize("name", ["sgld", "langevin", "sghmc", "sgnht", "psgld"])
def test_two_halves_are_one_run(name):
    kernels = KERNELS | {
        "sghmc": mh.kernels.sghmc(0.002),
        "sgnht": mh.kernels.sgnht(0.002),
        "psgld": mh.kernels.psgld(0.01),
    }
    settings = dict(temperatures=(1.0, 3.0, 9.0), burn_in=0, keep_all=True)
    whole = run(kernels[name], steps=30, chains=4, **settings)
    first = run(kernels[name], steps=13, chains=4, **settings)
    second = run(kernels[name], first.state, steps=17, chains=99, **settings)
    for r in range(3):
        halves = [d.levels[r].position for d in (first, second)]
        np.testing.assert_array_equal(
            np.concatenate(halves, axis=1), whole.levels[r].position
        )
    assert second.state.steps == 30


def test_draws_are_those_of_the_coldest_with_and_without_the_others():
    position = {"a": np.zeros(2, "float32"), "b": np.float32(0.0)}

    def log_density(position):
        return -0.5 * ops.sum(ops.square(position["a"])) + gaussian(position["b"])

    runs = [
        run(
            KERNELS["random walk"], position, steps=20, chains=3, burn_in=10,
            log_density=log_density, keep_all=keep_all,
        )
        for keep_all in (False, True)
    ]  # fmt: skip
    assert runs[0].levels == () and runs[1].levels[0] is runs[1]
    for draws in runs:
        assert draws.position["a"].shape == (3, 10, 2)
        assert draws.info["energy"].shape == draws.position["b"].shape == (3, 10)
    np.testing.assert_array_equal(runs[0].position["a"], runs[1].position["a"])
    x = runs[1].levels[1]
    energy = 0.5 * np.square(x.position["a"]).sum(-1) + 4 * x.position["b"] ** 2
    np.testing.assert_allclose(x.info["energy"], energy, rtol=1e-5)
    pytest.importorskip("arviz")
    assert runs[0].to_arviz() is not None


def test_one_example_has_no_variance():
    settings = dict(
        log_likelihood=noisy_gaussian(1.0), data=NOISE, batch_size=1, steps=5
    )
    with pytest.raises(ValueError, match="`energy_variance`.*batch_size"):
        run(KERNELS["sgld"], chains=2, **settings)
    assert len(run(KERNELS["sgld"], chains=2, energy_variance=9.0, **settings)) == 4
