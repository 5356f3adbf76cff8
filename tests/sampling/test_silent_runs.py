"""Runs that would go wrong in silence: chains that stand still, data that is lost."""

import warnings

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

SETTINGS = {"num_steps": 300, "num_chains": 3, "seed": 0, "progress": False}


def normal(x):
    return -0.5 * ops.sum(ops.square(x))


def norm(x):
    """At 0 it is finite, and its gradient is not."""
    return -ops.sqrt(ops.sum(x * x))


def langevin(rate):
    return mh.kernels.mhbt(rate, proposal=mh.proposals.Langevin())


STILL = [
    (mh.kernels.mhbt(1e6), normal, "299 proposals, and 0 steps"),
    (langevin(0.1), norm, "0 proposals, and 300 steps that were not finite"),
    (mh.kernels.rsgld(0.1), norm, "0 proposals"),
]


@pytest.mark.parametrize(("kernel", "density", "numbers"), STILL)
def test_chains_that_stand_still_are_told(kernel, density, numbers):
    with pytest.warns(UserWarning, match=f"3 of 3 chains accepted no.*{numbers}"):
        draws = mh.sample(kernel, np.zeros(2), log_density=density, **SETTINGS)
    assert np.ptp(draws.position, axis=1).max() == 0.0


def sampled(data, origin=0.0):
    return mh.sample(
        mh.kernels.mhbt(0.5),
        0.0,
        log_likelihood=lambda theta, rows: -0.5 * ops.square(rows - origin - theta),
        data=data,
        **SETTINGS,
    )


def test_data_that_float32_cannot_hold():
    """Times in seconds: float32 knows them to 128 seconds."""
    data = np.arange(5.0) + 1.7e9
    with pytest.warns(UserWarning, match=r"rounded to float32.*1\.41 and steps of 128"):
        sampled(data, origin=1.7e9)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        sampled(data - data.mean())


def test_only_coarse_columns_count():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(50, 4)) * [1.0, 1e8, 0.0, 1e-9] + [0.0, 1e9, 1e9, 1.0]
    with pytest.warns(UserWarning, match="Received: 1 columns, such as one.*1.19e-07"):
        mh.sample(
            mh.kernels.mhbt(0.5),
            0.0,
            log_likelihood=lambda theta, rows: -0.5 * ops.square(rows[:, 0] - theta),
            data=data,
            **SETTINGS,
        )


def test_masked_data():
    data = np.ma.masked_values([1.0, 2.0, 3.0, 999.0], 999.0)
    with pytest.raises(ValueError, match="`data` must have no masked.*1 masked values"):
        sampled(data)
    without = np.ma.masked_values([1.0, 2.0, 3.0], 999.0)
    expected = sampled(np.array([1.0, 2.0, 3.0])).position
    np.testing.assert_array_equal(sampled(without).position, expected)
