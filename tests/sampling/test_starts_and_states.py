"""Starts, states and data of `mh.sample` that could be read in two ways."""

from typing import Any
from typing import NamedTuple

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

QUIET = {"num_steps": 20, "progress": False}


class Pair(NamedTuple):
    mean: Any
    log_scale: Any


def normal(x):
    return -0.5 * ops.sum(ops.square(x))


def regression(seed=0):
    """Of y on x: columns, as a `Dense(1)` has them; its log-likelihood broadcasts."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(100, 1)).astype("float32")
    y = (1.0 + 2.0 * x + 0.5 * rng.normal(size=x.shape)).astype("float32")

    def log_likelihood(position, batch):
        weight, bias = position
        error = batch[1] - (ops.matmul(batch[0], weight) + bias)
        return -0.5 * ops.sum(ops.square(error / 0.5), axis=-1)

    return {"log_likelihood": log_likelihood, "data": (x, y)}


def test_a_position_of_axes_of_length_1_is_not_read_in_silence():
    """With its first axis as that of the chains, residuals would be 100 x 100."""
    init = (np.zeros((1, 1)), np.zeros(1))
    with pytest.raises(ValueError, match=r"`init` must show which axis.*\(1, 1\)"):
        mh.sample(mh.kernels.mhbt(0.1), init, **regression(), **QUIET)
    starts = (np.zeros((1, 1, 1)), np.zeros((1, 1)))
    draws = mh.sample(mh.kernels.mhbt(0.1), starts, **regression(), **QUIET)
    assert [x.shape for x in draws.position] == [(1, 20, 1, 1), (1, 20, 1)]
    draws = mh.sample(mh.kernels.mhbt(0.1), init, num_chains=2, **regression(), **QUIET)
    assert [x.shape for x in draws.position] == [(2, 20, 1, 1), (2, 20, 1)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (mh.kernels.psgld(0.05), mh.kernels.sghmc(0.01)),
        (mh.kernels.sghmc(0.01), mh.kernels.psgld(0.05)),
        (mh.kernels.sghmc(0.01), mh.kernels.sghmc(0.01, integrator="baoab")),
        (mh.kernels.hmc(warm_up=0), mh.kernels.sgld(0.01)),
    ],
)
def test_the_state_of_another_kernel_is_refused(first, second):
    draws = mh.sample(first, [0.0, 0.0], log_density=normal, num_chains=4, **QUIET)
    again = mh.sample(first, draws.state, log_density=normal, **QUIET)
    assert again.position.shape == (4, 20, 2)
    with pytest.raises(ValueError, match="same kernel.*last positions.*Received: a st"):
        mh.sample(second, draws.state, log_density=normal, **QUIET)
    start = draws.position[:, -1]
    mh.sample(second, start, log_density=normal, num_chains=4, **QUIET)


@pytest.mark.parametrize("temperatures", [[1.0, 4.0], [1.0, 2.0, 4.0, 8.0]])
def test_a_state_has_its_number_of_temperatures(temperatures):
    kernel = mh.kernels.mhbt(1.0)
    given = {"log_density": normal, **QUIET}
    draws = mh.replica_exchange(
        kernel, [0.0, 0.0], temperatures=[1.0, 4.0, 16.0], num_chains=4, **given
    )
    with pytest.raises(ValueError, match="same number of temp.*3 temperatures'"):
        mh.replica_exchange(kernel, draws.state, temperatures=temperatures, **given)
    with pytest.raises(ValueError, match="same kernel"):
        mh.sample(kernel, draws.state, **given)


def test_draws_outside_the_support_are_told_wherever_the_run_ends():
    def half_line(x):
        return ops.where(x > 0.0, -x, -np.inf)

    with pytest.warns(UserWarning, match=r"not finite: \d+\.\d% of their draws"):
        draws = mh.sample(
            mh.kernels.sgld(0.01),
            1.0,
            log_density=half_line,
            num_steps=1500,
            burn_in=100,
            progress=False,
        )
    assert np.isinf(draws.info["energy"]).any()


def count_of_ones(theta, y):
    """A likelihood of labels, as in the docstrings: 1 - 2 * 1 is 255 in eight bits."""
    return -ops.softplus(ops.cast(1 - 2 * y, "float32") * theta[0])


def of_mean(theta, x):
    return -0.5 * ops.square(x - theta[0])


@pytest.mark.parametrize(
    ("density", "data", "start", "kinds"),
    [
        (count_of_ones, np.arange(40) % 4 > 0, 0.5, ("int32", "uint8", "int64")),
        # PyTorch would compute with a scalar position in the precision of the data.
        (of_mean, 300.0 + np.arange(-8, 8), 300.0, ("float32", "float16")),
    ],
)
def test_data_of_any_type_give_the_same_chain(density, data, start, kinds):
    kernel = mh.kernels.mhbt(0.5 if start < 1.0 else 0.05)
    first, *others = (
        mh.sample(
            kernel, [start], log_likelihood=density, data=data.astype(kind), **QUIET
        ).position
        for kind in kinds
    )
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_a_named_tuple_stays_one():
    start = Pair(np.zeros(2), 0.0)

    def log_density(position):
        return normal(position.mean) + normal(position.log_scale)

    kernel = mh.kernels.mhbt(0.5)
    draws = mh.sample(kernel, start, log_density=log_density, num_chains=3, **QUIET)
    assert isinstance(draws.position, Pair)
    assert draws.position.mean.shape == (3, 20, 2)
    more = mh.sample(kernel, draws.state, log_density=log_density, **QUIET)
    assert more.position.log_scale.shape == (3, 20)
    with pytest.raises(ValueError, match="`init` must have lists of numbers only"):
        ragged = Pair([[1.0], [1.0, 2.0]], 0.0)
        mh.sample(kernel, ragged, log_density=log_density, **QUIET)


def test_integers_of_more_than_32_bits_are_refused():
    y = np.array([3_000_000_000, 5])
    with pytest.raises(
        ValueError, match=r"`data` must hold integers of 32 bits.*5 and"
    ):
        mh.sample(
            mh.kernels.mhbt(0.5), [0.5], log_likelihood=count_of_ones, data=y, **QUIET
        )


def test_rows_that_are_not_finite_are_told_when_they_cost_steps():
    x = np.random.default_rng(0).normal(size=500).astype("float32")
    x[420] = np.nan
    given = {"data": x, "batch_size": 50, "num_steps": 200, "progress": False}

    with pytest.warns(UserWarning, match="1 values that are not finite.*Remove"):
        mh.sample(mh.kernels.mhbt(0.05), [0.0], log_likelihood=of_mean, **given)
    with pytest.warns(UserWarning, match="1 values that are not finite.*Lower"):
        mh.sample(mh.kernels.sgld(0.05), [0.0], log_likelihood=of_mean, **given)
