"""Densities as people write them: constants of numpy's, constants, float32's digits."""

import warnings

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

MEAN = np.array([1.0, -2.0])
SINGLE = MEAN.astype("float32")
IDENTITY = np.eye(2)
SWAP = np.array([1, 0])


def tensor(array):
    return ops.convert_to_tensor(array)


# All of them the normal law around MEAN with variance 1.
DENSITIES = {
    "tensor - array": lambda t: -0.5 * ops.sum((t - MEAN) ** 2),
    "array - tensor": lambda t: -0.5 * ops.sum((MEAN - t) ** 2),
    "array * tensor / array": lambda t: (
        -0.5 * ops.sum((np.ones(2) * (t - SINGLE) / np.array([1, 1])) ** 2)
    ),
    "an array of integers": lambda t: (
        -0.5 * ops.sum((np.array([1, 1]) * t - MEAN) ** 2)
    ),
    "an array backwards": lambda t: -0.5 * ops.sum((t - MEAN[::-1][SWAP]) ** 2),
    "array @ tensor": lambda t: (
        -0.5 * ops.sum((IDENTITY @ (t - MEAN)[:, None]) * (t - MEAN)[:, None])
    ),
    "tensor @ array": lambda t: -0.5 * ops.sum(((t - MEAN)[None] @ IDENTITY) ** 2),
    "numpy's numbers": lambda t: (
        np.float64(-0.5) * ops.sum((np.float32(1.0) * t - MEAN) ** 2)
    ),
    "one number each": lambda t: -0.5 * ((t[0] - MEAN[0]) ** 2 + (t[1] - MEAN[1]) ** 2),
    "functions of arrays": lambda t: (
        -0.5 * ops.sum(ops.square(ops.matmul(IDENTITY, ops.subtract(MEAN, t))))
    ),
    "where": lambda t: -0.5 * ops.sum(ops.square(ops.where(MEAN > -9.0, t - MEAN, 0))),
    "take": lambda t: -0.5 * ops.sum((ops.take(t, SWAP) - MEAN[SWAP]) ** 2),
    "a tensor": lambda t: -0.5 * ops.sum((t - tensor(SINGLE)) ** 2),
}
PROPOSALS = {
    "random walk": (1.5, mh.proposals.RandomWalk()),
    "Langevin": (0.7, mh.proposals.Langevin()),
}


STEPS = 15


def run(log_density, kernel, init=(0.0, 0.0), **arguments):
    arguments = dict(num_chains=3, num_steps=STEPS, every=STEPS) | arguments
    init = np.array(init)
    return mh.sample(kernel, init, log_density=log_density, progress=False, **arguments)


def kernel(name="random walk", temperature=None):
    rate, proposal = PROPOSALS[name]
    return mh.kernels.mhbt(rate, proposal=proposal, temperature=temperature)


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("name", DENSITIES)
def test_constants_of_numpy_give_the_right_law(name, proposal):
    # From the law itself, where only the right density keeps the chains.
    start = MEAN + np.random.default_rng(1).normal(size=(4000, 2))
    draws = run(DENSITIES[name], kernel(proposal), start, num_chains=len(start))
    z = draws.position[:, 0] - MEAN
    assert np.mean(z != start - MEAN) > 0.8
    error = 4.5 / len(z) ** 0.5
    np.testing.assert_allclose(z.mean(0), 0.0, atol=error)
    np.testing.assert_allclose(z.var(0), 1.0, rtol=2**0.5 * error)


def test_likelihood_and_prior_take_arrays():
    data = np.random.default_rng(0).normal(size=(40, 2)) + MEAN
    arguments = dict(
        log_likelihood=lambda t, x: -0.5 * ops.sum((x * np.ones(2) - t) ** 2, axis=-1),
        log_prior=lambda t: -0.5 * ops.sum((t - MEAN) ** 2),
        data=data,
        batch_size=20,
        num_steps=4,
        num_chains=3,
        progress=False,
    )
    with_arrays = mh.sample(kernel(), [0.0, 0.0], **arguments)
    arguments["log_likelihood"] = lambda t, x: -0.5 * ops.sum((x - t) ** 2, axis=-1)
    arguments["log_prior"] = lambda t: -0.5 * ops.sum((t - tensor(SINGLE)) ** 2)
    without = mh.sample(kernel(), [0.0, 0.0], **arguments)
    np.testing.assert_allclose(with_arrays.position, without.position, atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: -ops.sum(np.exp(t - SINGLE)),
        lambda t: -np.linalg.norm(t - SINGLE),
        lambda t: -0.5 * ops.sum(t**2) * float(t[0]),
        lambda t: -0.5 * ops.sum(ops.einsum("i,ij->j", t, IDENTITY[:, :1, None])),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(wrong):
    with pytest.raises(Exception, match="keras.ops|einsum|dimension") as caught:
        run(wrong, kernel())
    notes = getattr(caught.value, "__notes__", [])
    assert any("Argument `log_density`" in x for x in [str(caught.value), *notes])


def shifted(constant):
    return lambda t: constant - 0.5 * ops.sum(ops.square(t))


@pytest.mark.parametrize("constant", [3e6, -1e7, 1e8])
@pytest.mark.parametrize(
    "chains",
    [
        lambda f: run(f, kernel()),
        lambda f: run(f, kernel("Langevin")),
        lambda f: run(
            f,
            mh.kernels.csgld(0.1, partition=mh.EnergyPartition(0.0, 1.0, 9), zeta=0.5),
        ),
        lambda f: mh.replica_exchange(
            kernel(),
            [0.0, 0.0],
            temperatures=[1.0, 9.0],
            log_density=f,
            num_steps=3,
            progress=False,
        ),
        lambda f: mh.replica_exchange(
            mh.kernels.sgld(0.1),
            [0.0, 0.0],
            temperatures=[1.0, 9.0],
            log_density=f,
            num_steps=3,
            progress=False,
        ),
    ],
)
def test_energies_that_float32_does_not_hold_are_refused(chains, constant):
    with pytest.raises(ValueError, match="Argument `log_density` must.*nats apart"):
        chains(shifted(constant))


def test_a_prior_that_float32_does_not_hold_is_refused_by_equi_energy():
    with pytest.raises(ValueError, match="Argument `log_prior` must.*nats apart"):
        mh.equi_energy(
            0.0,
            log_likelihood=lambda t, x: -0.5 * ops.square(x - t),
            log_prior=lambda t: 1e8 - 0.5 * ops.square(t),
            data=np.arange(8.0),
            batch_size=4,
            step_size=0.1,
            num_steps=4,
            burn_in=2,
            progress=False,
        )


@pytest.mark.parametrize(
    "constant, temperature", [(1.9e6, None), (1e7, 16.0), (-1e8, 64.0)]
)
def test_the_coarsest_energies_that_are_taken_give_the_right_variance(
    constant, temperature
):
    widths = mh.kernels.mhbt(2.0 * (temperature or 1.0) ** 0.5, temperature=temperature)
    scale = (temperature or 1.0) ** 0.5
    start = scale * np.random.default_rng(1).normal(size=(4000, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        draws = run(shifted(constant), widths, start, num_chains=len(start))
    z = draws.position.ravel() / scale
    error = 4.5 * (2 / len(z)) ** 0.5
    assert z.var() == pytest.approx(1.0, rel=error + 0.01)


def test_kernels_of_gradients_need_no_energies():
    start = np.random.default_rng(1).normal(size=(4000, 1)) / 0.9**0.5
    draws = run(shifted(1e8), mh.kernels.sgld(0.2), start, num_chains=len(start))
    error = 4.5 * (2 / len(start)) ** 0.5
    assert draws.position.var() == pytest.approx(1 / 0.9, rel=error)


def test_mini_batches_of_a_million_examples_are_taken():
    data = np.random.default_rng(0).normal(size=10**6).astype("float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        mh.sample(
            mh.kernels.mhbt(0.1),
            0.0,
            log_likelihood=lambda t, x: -8.0 - 0.5 * ops.square(x - t),
            data=data,
            batch_size=100,
            num_steps=3,
            progress=False,
        )


@pytest.mark.parametrize("constant", [0.0, 1e7])
def test_a_run_that_ends_in_coarse_energies_says_so(constant):
    def log_density(t):  # from 0 up to the constant
        return constant * ops.tanh(ops.sum(ops.square(t))) - 0.5 * ops.sum(t**2)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(log_density, kernel(), num_chains=4, num_steps=150, every=10)
    told = [str(x.message) for x in caught if "nats apart" in str(x.message)]
    assert len(told) == (1 if constant else 0)
    if constant:
        assert "4 of 4 chains" in told[0]
