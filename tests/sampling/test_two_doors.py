"""An optimizer and `mh.sample` run the same algorithm: without noise, the same path."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

N, INPUTS, STEPS = 24, 3, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, INPUTS)).astype("float32")
Y = (X @ [[1.0], [-0.5], [0.0]] + 0.1 * RNG.normal(size=(N, 1))).astype("float32")
START = 0.3 * RNG.normal(size=(INPUTS, 1)).astype("float32")

COLD = dict(temperature=0.0)
PRIOR = mh.priors.SpikeSlab("kernel", v0=1e-2, v1=1.0, b=2.0)
PARTITION = mh.EnergyPartition(energy_min=1.0, energy_gap=2.0, partitions=20)
# name -> optimizer, kernel, and their arguments.
ROWS = {
    "sgld": (mh.SGLD, mh.kernels.sgld, COLD),
    "psgld": (mh.PSGLD, mh.kernels.psgld, COLD | dict(decay=0.8, epsilon=0.1)),
    "sghmc": (mh.SGHMC, mh.kernels.sghmc, COLD | dict(momentum=0.7)),
    "sghmc, baoab": (
        mh.SGHMC,
        mh.kernels.sghmc,
        COLD | dict(momentum=0.7, integrator="baoab"),
    ),
    "sgnht": (mh.SGNHT, mh.kernels.sgnht, COLD | dict(momentum=0.7)),
    "csgld": (mh.CSGLD, mh.kernels.csgld, COLD | dict(partition=PARTITION)),
    "csghmc": (
        mh.CSGHMC,
        mh.kernels.csghmc,
        COLD | dict(partition=PARTITION, momentum=0.7),
    ),
    "sgldsa": (mh.SGLDSA, mh.kernels.sgldsa, COLD | dict(prior=PRIOR)),
    "sgldsa, regression": (
        mh.SGLDSA,
        mh.kernels.sgldsa,
        COLD | dict(prior=PRIOR, likelihood="gaussian", step_size=0.1),
    ),
    "sghmcsa": (
        mh.SGHMCSA,
        mh.kernels.sghmcsa,
        COLD | dict(prior=PRIOR, momentum=0.7, layer_temperatures=True),
    ),
}


def log_likelihood(position, batch):
    x, y = batch
    error = y - ops.matmul(x, position["kernel"])
    return -ops.sum(ops.square(error), axis=-1)


def by_optimizer(make, arguments):
    model = keras.Sequential(
        [keras.Input((INPUTS,)), keras.layers.Dense(1, use_bias=False, name="layer")]
    )
    model.set_weights([START])
    optimizer = make(0.02, train_size=N, seed=0, **arguments)
    model.compile(optimizer=optimizer, loss="mse")
    path = [START]
    for _ in range(STEPS):
        model.train_on_batch(X, Y)
        (weights,) = optimizer.state_values()
        path.append(ops.convert_to_numpy(weights))
    return np.array(path), optimizer


def by_sample(build, arguments):
    return mh.sample(
        build(0.02, **arguments),
        {"kernel": START},
        log_likelihood=log_likelihood,
        data=(X, Y),
        num_steps=STEPS + 1,
        progress=False,
    )


@pytest.mark.parametrize("name", ROWS)
def test_the_path_of_an_optimizer_is_that_of_its_kernel(name):
    make, build, arguments = ROWS[name]
    path, _ = by_optimizer(make, arguments)
    draws = by_sample(build, arguments).position["kernel"][0]
    assert np.abs(path[-1] - START).max() > 0.01
    np.testing.assert_allclose(draws, path, rtol=2e-4, atol=2e-5)


def test_the_latent_variables_are_those_of_the_optimizer():
    make, build, arguments = ROWS["sgldsa, regression"]
    _, optimizer = by_optimizer(make, arguments)
    draws = mh.sample(
        build(0.02, **arguments),
        {"kernel": START},
        log_likelihood=log_likelihood,
        data=(X, Y),
        num_steps=STEPS,
        progress=False,
    )
    expected = optimizer.diagnostics()
    for name in ("sparsity", "sigma", "delta"):
        assert draws.info[name][0] == pytest.approx(expected[name], rel=1e-4)
    (inclusion,) = optimizer.inclusion_probabilities().values()
    actual = draws.info["inclusion_probabilities"]["kernel"]
    assert actual.shape == (1, INPUTS, 1)
    np.testing.assert_allclose(actual[0], inclusion, rtol=1e-4, atol=1e-6)


def test_a_pattern_that_no_tensor_has_is_refused():
    kernel = mh.kernels.sgldsa(0.1, prior=mh.priors.SpikeSlab("no", v0=0.1, v1=1.0))
    with pytest.raises(ValueError, match="kernel.*sparse='no'"):
        mh.sample(
            kernel,
            {"kernel": START},
            log_likelihood=log_likelihood,
            data=(X, Y),
            num_steps=2,
            progress=False,
        )
