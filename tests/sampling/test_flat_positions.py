"""HMC and MCLMC take all tensors of a position as one: the user sees no difference."""

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

CHAINS = 3
SCALES = np.geomspace(0.5, 2.0, 8).astype("float32")
KERNELS = {
    "hmc": lambda: mh.kernels.hmc(warm_up=20, leapfrog_steps=3),
    "mclmc": lambda: mh.kernels.mclmc(warm_up=20, energy_error=0.1),
}


def of_vector(x):
    return -0.5 * ops.sum(ops.square(x / SCALES))


def of_dict(position):
    """The same density of a matrix, a vector and a number."""
    parts = [ops.reshape(position[name], (-1,)) for name in ("a", "b", "c")]
    return of_vector(ops.concatenate(parts))


def as_dict(rows):
    lead = rows.shape[:-1]
    return {
        "a": rows[..., :4].reshape(*lead, 2, 2),
        "b": rows[..., 4:7],
        "c": rows[..., 7],
    }


def run(kernel, start, density, num_steps=40, burn_in=20, **options):
    return mh.sample(
        kernel,
        start,
        log_density=density,
        num_steps=num_steps,
        burn_in=burn_in,
        progress=False,
        **options,
    )


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("name", KERNELS)
def test_tensors_give_the_draws_of_one_vector(name):
    start = np.random.default_rng(0).normal(size=(CHAINS, 8)).astype("float32")
    options = dict(num_chains=CHAINS, seed=3)
    vector = run(KERNELS[name](), start, of_vector, **options)
    parts = run(KERNELS[name](), as_dict(start), of_dict, **options)
    for key, expected in as_dict(vector.position).items():
        assert parts.position[key].shape == expected.shape
        np.testing.assert_allclose(parts.position[key], expected, rtol=1e-3, atol=1e-3)
    # A run goes on from the state bit for bit, and the state has the user's tensors.
    shapes = [value.shape for value in parts.state.values[:3]]
    assert shapes == [(CHAINS, 2, 2), (CHAINS, 3), (CHAINS,)]
    first = run(KERNELS[name](), as_dict(start), of_dict, 30, **options)
    rest = run(KERNELS[name](), first.state, of_dict, 10, 0)
    for key, whole in parts.position.items():
        np.testing.assert_array_equal(first.position[key], whole[:, :10])
        np.testing.assert_array_equal(rest.position[key], whole[:, 10:])
    for mine, other in zip(rest.state.values, parts.state.values, strict=True):
        np.testing.assert_array_equal(mine, other)
