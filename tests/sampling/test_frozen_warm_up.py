"""HMC and MCLMC: what the warm-up has found stays, bit for bit, when it is over.

A chain that goes on adapting has another law, by so little that no test of a law sees
it. So these tests look at the state itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers import hmc
from keras_mhmcmc.samplers import mclmc
from tests.statistics.planting import wrap

WARM_UP, CHAINS = 60, 5


class Kernel(NamedTuple):
    """A kernel, and where its state has what the warm-up has found."""

    make: Callable
    first: int  # of what must not change: scale, step, and the sums behind them
    log_step: int  # the logarithm of the step after the warm-up


KERNELS = {
    "hmc": Kernel(lambda: mh.kernels.hmc(warm_up=WARM_UP, leapfrog_steps=3), 3, 7),
    "mclmc": Kernel(lambda: mh.kernels.mclmc(warm_up=WARM_UP), 9, 10),
}


def assert_frozen(name):
    make, first, log_step = KERNELS[name]
    scales = np.array([0.1, 1.0, 3.0], "float32")

    def density(x):
        return -0.5 * ops.sum(ops.square(x / scales))

    options = dict(log_density=density, progress=False)
    start = np.random.default_rng(2).normal(size=(CHAINS, 3)).astype("float32")
    before = mh.sample(
        make(),
        start,
        num_chains=CHAINS,
        num_steps=WARM_UP + 1,
        burn_in=WARM_UP,
        **options,
    )
    after = mh.sample(make(), before.state, num_steps=20, **options)
    found, later = before.state.values, after.state.values
    assert (found[0] != later[0]).any()
    # The warm-up has found something, for each chain its own.
    scale = found[first]
    assert (scale != 1.0).all() and len(np.unique(scale)) == scale.size
    assert len(np.unique(found[log_step])) == CHAINS
    for one, other in zip(found[first:], later[first:], strict=True):
        np.testing.assert_array_equal(one, other)
    # And the later steps have used it.
    step = np.exp(found[log_step].astype("float64"))
    np.testing.assert_allclose(after.info["step_size"], step, rtol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_step_and_scale_stay_as_they_are_after_the_warm_up(name):
    assert_frozen(name)


def of_the_step_of_hmc(real, self, state, probability, warms_up):
    always = real(self, state, probability, ops.ones_like(warms_up))
    new = real(self, state, probability, warms_up)
    return new._replace(adaptation=always.adaptation)


def of_the_step_of_mclmc(real, self, state, ratio, dimension):
    search = mclmc.update_search(state.search, ratio, True)
    return real(self, state, ratio, dimension)._replace(search=search)


def of_the_scale(real, *arguments):
    new = real(*arguments)
    return new._replace(scale=[1.01 * s for s in new.scale])


@pytest.mark.parametrize(
    ("name", "kernel", "bug"),
    [
        ("hmc", hmc.hmc, of_the_step_of_hmc),
        ("hmc", hmc.hmc, of_the_scale),
        ("mclmc", mclmc.mclmc, of_the_step_of_mclmc),
        ("mclmc", mclmc.mclmc, of_the_scale),
    ],
)
def test_a_warm_up_without_an_end_is_found(monkeypatch, name, kernel, bug):
    wrap(monkeypatch, kernel, "_adapted", bug)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        assert_frozen(name)
