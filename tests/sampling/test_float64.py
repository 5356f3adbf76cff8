"""Under a float64 policy chains run in float32, and say where that is too coarse."""

import contextlib
import importlib
import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh


@pytest.fixture(autouse=True)
def float64():
    own, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(own)
    keras.config.set_dtype_policy(policy)


def far(position):
    """The log density of N(1e6, 0.001^2)."""
    return -0.5 * ((position["x"] - 1e6) / 1e-3) ** 2


def near(position):
    return -0.5 * keras.ops.sum(position["x"] ** 2)


KERNELS = {
    "hmc": lambda: mh.kernels.hmc(step_size=0.5, warm_up=0),
    "mclmc": lambda: mh.kernels.mclmc(0.3, warm_up=0),
    "sgld": lambda: mh.kernels.sgld(0.1),
    "psgld": lambda: mh.kernels.psgld(0.1),
    "sghmc": lambda: mh.kernels.sghmc(0.1),
    "sgnht": lambda: mh.kernels.sgnht(0.1),
    "mhbt": lambda: mh.kernels.mhbt(0.1),
    "rsgld": lambda: mh.kernels.rsgld(0.1, beta=1.5),
    "csgld": lambda: mh.kernels.csgld(0.1, pilot_steps=20),
}


@pytest.mark.in_turn("jax", "tensorflow")  # whose loops have types
@pytest.mark.parametrize("name", KERNELS)
def test_each_kernel_draws_what_it_draws_under_float32(name):
    """JAX has a switch for float64 besides: numbers of Python are float64 then."""
    in_float64 = contextlib.nullcontext()
    if keras.backend.backend() == "jax":
        in_float64 = importlib.import_module("jax").enable_x64(True)

    def draws():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return mh.sample(
                KERNELS[name](),
                {"x": np.ones(3)},
                log_density=near,
                num_steps=40,
                num_chains=2,
                burn_in=20,
                progress=False,
            ).position["x"]

    found = draws()
    assert keras.config.floatx() == "float64"
    with in_float64:
        wide = draws()
    keras.config.set_floatx("float32")
    np.testing.assert_array_equal(found, draws())
    np.testing.assert_allclose(found, wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rate", [1e-3, 1e-7], ids=["rounded", "still"])
def test_rounding_is_told(rate):
    kernel = mh.kernels.hmc(step_size=rate, warm_up=0)
    if rate == 1e-7:
        kernel = mh.kernels.sgld(rate)
    with pytest.warns(UserWarning, match="rounding decides where they lie"):
        mh.sample(
            kernel,
            {"x": np.float64(1e6)},
            log_density=far,
            num_steps=100,
            num_chains=2,
            progress=False,
        )
