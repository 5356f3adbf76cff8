"""Kernels that draw their own data refuse what would make them wrong."""

import dataclasses
import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import bounded
from tests.support.minibatch_tools import LOWER
from tests.support.minibatch_tools import NORMS
from tests.support.minibatch_tools import SIZE
from tests.support.minibatch_tools import UPPER
from tests.support.minibatch_tools import Posterior
from tests.support.minibatch_tools import X
from tests.support.minibatch_tools import Y
from tests.support.minibatch_tools import log_likelihood
from tests.support.minibatch_tools import log_prior
from tests.support.minibatch_tools import run
from tests.support.minibatch_tools import tuna


def test_a_bound_that_does_not_hold_is_an_error():
    bounds = NORMS.copy()
    bounds[17] /= 50.0
    with pytest.raises(ValueError, match="`bounds` must bound every .* example 17 at"):
        run(mh.kernels.tuna(0.3, bounds=bounds), Posterior(1.0).draw(50), steps=200)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_limit_that_does_not_hold_is_an_error(side):
    limits = dict(lower=LOWER.copy(), upper=UPPER.copy())
    limits[side][5] = 0.5 * (LOWER[5] + UPPER[5])
    with pytest.raises(
        ValueError, match="`lower` or `upper` must bound .* example 5 at"
    ):
        run(mh.kernels.poisson(0.5, **limits), Posterior(1.0).draw(100))


def test_nothing_is_accepted_after_a_bound_was_exceeded(monkeypatch):
    monkeypatch.setattr(bounded, "check_violation", lambda name, violation: None)
    start = Posterior(1.0).draw(20)
    kernel = mh.kernels.tuna(0.3, bounds=1e-3 * NORMS, chi=1e4)
    end = run(kernel, start, steps=50)
    # An example within its bound may come first, and be the only one of its batch.
    violated = end.state.values[1] >= 0
    assert violated.sum() > 15
    later = mh.sample(
        kernel,
        end.state,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        data=(X, Y),
        num_steps=30,
        every=30,
        progress=False,
    )
    assert (later.info["acceptance"][violated] == 0).all()


def test_a_likelihood_that_is_not_finite_is_an_error():
    def broken(theta, batch):
        values = log_likelihood(theta, batch)
        return ops.where(ops.sum(theta) > 1e-3, values * np.nan, values)

    with pytest.raises(ValueError, match="value is nan"):
        mh.sample(
            mh.kernels.tuna(0.3, bounds=NORMS),
            np.zeros(2),
            log_likelihood=broken,
            data=(X, Y),
            num_steps=50,
            num_chains=4,
            progress=False,
        )


OF_EXAMPLES = {
    "tuna": tuna()[0],
    "barker": mh.kernels.barker(0.5, block_size=10),
    "austerity": mh.kernels.austerity(0.5, block_size=10),
    "confidence": mh.kernels.confidence(0.5, bounds=NORMS, block_size=10),
}


@pytest.mark.parametrize("name", OF_EXAMPLES)
@pytest.mark.parametrize("argument", [dict(batch_size=10), dict(replacement=True)])
def test_arguments_that_do_not_fit_the_kernel(argument, name):
    with pytest.raises(ValueError, match=f"Argument `{[*argument][0]}` must be"):
        run(OF_EXAMPLES[name], np.zeros((2, 2)), **argument)


@pytest.mark.parametrize("name", OF_EXAMPLES)
def test_a_kernel_of_examples_refuses_a_density(name):
    with pytest.raises(ValueError, match="`log_likelihood` must be given"):
        mh.sample(
            OF_EXAMPLES[name],
            np.zeros(2),
            log_density=lambda x: -ops.sum(ops.square(x)),
            num_steps=5,
            progress=False,
        )


def test_an_expansion_whose_bounds_do_not_hold_is_an_error():
    good = mh.expansions.logistic_regression(X, Y, order=1)
    bounds = np.zeros(SIZE)
    bounds[11] = good.bounds[11] / 50.0  # the only example that is drawn
    kernel = mh.kernels.smh(dataclasses.replace(good, bounds=bounds))
    with pytest.raises(
        ValueError, match="`expansion` must bound every .* example 11 at .* value is"
    ):
        run(kernel, Posterior(1.0).draw(200), steps=100)


def test_an_expansion_of_another_data_set():
    kernel = mh.kernels.smh(mh.expansions.logistic_regression(X[:-1], Y[:-1]))
    with pytest.raises(ValueError, match=f"Received: {SIZE - 1} numbers, and {SIZE}"):
        run(kernel, np.zeros((2, 2)))
    kernel = mh.kernels.smh(mh.expansions.logistic_regression(X, Y))
    with pytest.raises(ValueError, match="`init` must have as many .* 2. Received: 3"):
        mh.sample(
            kernel,
            np.zeros(3),
            log_likelihood=lambda theta, batch: log_likelihood(theta[:2], batch),
            data=(X, Y),
            num_steps=5,
            progress=False,
        )


def test_crank_nicolson_steps_are_at_most_1():
    expansion = mh.expansions.logistic_regression(X, Y)
    with pytest.raises(ValueError, match="`step_size` must be .* in \\(0, 1\\]"):
        mh.kernels.smh(expansion, step_size=1.5)
    kernel = mh.kernels.smh(expansion, step_size=1.5, proposal="random_walk")
    assert kernel.step_size == 1.5


@pytest.mark.parametrize("build", [mh.kernels.tuna, mh.kernels.confidence])
def test_bounds_of_another_data_set(build):
    with pytest.raises(ValueError, match=f"Received: {SIZE - 1} numbers, and {SIZE}"):
        run(build(0.3, bounds=NORMS[:-1]), np.zeros((2, 2)))


def test_batches_larger_than_the_data_are_named():
    start = np.zeros((2, 2))
    data = dict(log_likelihood=log_likelihood, data=(X, Y), progress=False)
    steps = dict(num_steps=20, num_chains=2)
    with pytest.warns(UserWarning, match="evaluated .* examples in the mean"):
        mh.sample(mh.kernels.tuna(0.5, bounds=NORMS), start, **data, **steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        mh.sample(mh.kernels.tuna(0.02, bounds=NORMS), start, **data, **steps)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch alone")
def test_a_function_that_pytorch_cannot_map_has_a_remedy():
    labels = np.arange(len(X), dtype="int32") % 3

    def by_one_hot(weights, batch):
        x, y = batch
        log_p = ops.log_softmax(ops.matmul(x, weights), axis=-1)
        return ops.sum(log_p * ops.one_hot(y, 3), axis=-1)

    def by_index(weights, batch):
        x, y = batch
        log_p = ops.log_softmax(ops.matmul(x, weights), axis=-1)
        return ops.take_along_axis(log_p, ops.expand_dims(y, 1), axis=1)[:, 0]

    run = dict(data=(X, labels), batch_size=10, num_steps=3, progress=False)
    kernel, start = mh.kernels.sgld(0.01), np.zeros((2, 3))
    with pytest.raises(RuntimeError, match="vmap") as found:
        mh.sample(kernel, start, log_likelihood=by_one_hot, **run)
    assert "put one-hot labels into `data`" in found.value.__notes__[0]
    draws = mh.sample(kernel, start, log_likelihood=by_index, **run)
    assert np.isfinite(draws.position).all()


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_chains_that_never_move_say_so(start):
    """At 0 the gradient of the prior is infinite, and no proposal is a number."""

    def log_prior(theta):
        root = ops.sqrt(ops.abs(theta[0]))
        return ops.where(theta[0] >= 0.0, -root, -np.inf)

    bounds = np.full(8, 0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draws = mh.sample(
            mh.kernels.poisson(0.3, lower=-bounds, upper=bounds, proposal="barker"),
            np.full((3, 1), start, "float32"),
            log_likelihood=lambda theta, batch: 0.1 * ops.tanh(batch - theta[0]),
            log_prior=log_prior,
            data=np.linspace(-1.0, 1.0, 8, dtype="float32"),
            num_steps=220,
            num_chains=3,
            progress=False,
        )
    found = [str(w.message) for w in caught if "accepted no proposal" in str(w.message)]
    assert len(found) == (start == 0.0)
    assert (draws.info["acceptance"] == 0.0).all() == (start == 0.0)
    if found:
        assert found[0].startswith("3 of 3 chains")
