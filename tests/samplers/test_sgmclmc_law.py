"""SGMCLMC on a normal target whose gradient noise differs between directions."""

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

WEIGHTS, EXAMPLES, CHAINS = 20, 200, 128


def variances(learning_rate):
    """Variances over those of the posterior for each weight, and their errors."""
    rng = np.random.default_rng(0)
    precision = np.exp(rng.uniform(0.0, np.log(100.0), WEIGHTS)).astype("float32")
    # The gradient of a weight has the deviation precision * spread.
    spread = np.exp(rng.uniform(0.0, np.log(10.0), WEIGHTS)) / np.sqrt(precision)
    x = (rng.normal(size=(EXAMPLES, WEIGHTS)) * spread).astype("float32")
    mean, deviation = x.mean(axis=0), (EXAMPLES * precision) ** -0.5
    start = mean + deviation * rng.normal(size=(CHAINS, WEIGHTS))

    def log_likelihood(position, batch):
        return -0.5 * ops.sum(precision * ops.square(position - batch), axis=1)

    draws = mh.sample(
        mh.kernels.sgmclmc(learning_rate, warm_up=200, added_noise=0.1),
        start.astype("float32"),
        log_likelihood=log_likelihood,
        data=x,
        batch_size=20,
        num_steps=1200,
        num_chains=CHAINS,
        burn_in=200,
        every=5,
        seed=1,
        progress=False,
    )
    squares = np.square((draws.position - mean) / deviation).mean(axis=1)
    assert np.all(np.abs(draws.info["noise_ratio"] - 1.0) < 0.5)
    return squares.mean(axis=0), squares.std(axis=0, ddof=1) / CHAINS**0.5


@pytest.mark.in_turn("jax", "tensorflow")
@pytest.mark.parametrize(
    "learning_rate", [0.3, pytest.param(2.0, marks=pytest.mark.slow)]
)
def test_the_law_where_noise_turns_the_velocity(learning_rate):
    """Also at large angles: the step corrects for them, by eq. (4)."""
    found, errors = variances(learning_rate)
    assert np.all(errors < 0.2)
    assert np.abs((found - 1.0) / np.hypot(errors, 0.03)).max() < 4.0
    # The mean over the weights is known better than one of them.
    assert abs(found.mean() - 1.0) < 0.03 + 4.0 * errors.mean() / WEIGHTS**0.5


def test_all_data_in_one_batch_are_refused():
    for options in (
        dict(log_density=lambda x: -ops.sum(ops.square(x))),
        dict(log_likelihood=lambda x, batch: 0.0 * batch, data=np.zeros(4)),
    ):
        with pytest.raises(ValueError, match="mh.kernels.mclmc"):
            mh.sample(
                mh.kernels.sgmclmc(), np.zeros(2), num_steps=9, num_chains=1, **options
            )


def test_a_single_weight_is_refused():
    for start in (0.0, np.zeros((3, 1))):
        with pytest.raises(ValueError, match="at least 2 weights"):
            mh.sample(
                mh.kernels.sgmclmc(),
                start,
                log_likelihood=lambda x, batch: 0.0 * batch * ops.sum(x),
                data=np.zeros(4),
                batch_size=2,
                num_steps=600,
                burn_in=500,
                num_chains=3,
            )
