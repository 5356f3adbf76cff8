"""Chains in threads: the same chains as in one loop, and Ctrl-C ends all of them."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.sampling import threads

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="PyTorch spreads operations, not chains"
)

DATA = np.random.default_rng(0).normal(size=(600, 3)).astype("float32")
PARTITION = mh.EnergyPartition(900.0, 20.0, 50)


def log_likelihood(position, batch):
    other = ops.sum(ops.square(position.get("other", 0.0)))
    return -0.5 * ops.sum(ops.square(batch - position["mean"]), axis=1) - other


def assert_close(found, expected):
    """Check that arrays differ by rounding alone: other sizes compile otherwise."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def sampled(kernel, groups, monkeypatch, num_steps=30, **arguments):
    seen = []

    def count(*sizes):
        seen.append(sizes)
        return groups

    monkeypatch.setattr(threads, "count_groups", count)
    options = dict(data=DATA, batch_size=500, num_chains=4, burn_in=10, seed=3)
    options |= dict(init={"mean": np.zeros(3)}, num_steps=num_steps)
    draws = mh.sample(
        kernel,
        log_likelihood=log_likelihood,
        progress=False,
        jit_compile=True,
        **options | arguments,
    )
    return draws, seen


def test_groups_give_the_chains_of_one_loop(monkeypatch):
    kernel = mh.kernels.csgld(0.1, partition=PARTITION)
    one, seen = sampled(kernel, 1, monkeypatch)
    assert seen[0][:2] == (4, 500)
    two, _ = sampled(kernel, 2, monkeypatch)
    assert_close(two.position["mean"], one.position["mean"])
    assert_close(two.info["masses"], one.info["masses"])
    assert_close(two.weights, one.weights)
    # A run goes on from the state of the other.
    later = [
        sampled(kernel, n, monkeypatch, init=draws.state, burn_in=0)[0]
        for n, draws in ((1, two), (2, one))
    ]
    assert_close(later[0].position["mean"], later[1].position["mean"])


def test_the_first_steps_of_microcanonical_chains_agree(monkeypatch):
    kernel = mh.kernels.mclmc(0.05, warm_up=0)
    options = dict(num_steps=5, burn_in=0, batch_size=None)
    # Two tensors, which the loop carries as one.
    options["init"] = {"mean": np.zeros(3), "other": np.zeros((2, 2))}
    one, two = (sampled(kernel, n, monkeypatch, **options)[0] for n in (1, 2))
    assert_close(one.position["mean"], two.position["mean"])


def test_chains_that_learn_from_each_other_stay_together(monkeypatch):
    kernel = mh.kernels.csgld(0.1, partition=PARTITION, shared_density=True)
    assert sampled(kernel, 2, monkeypatch)[1] == []


@pytest.mark.parametrize(
    "sizes, groups", [((8, 277, 2), 2), ((9, 300, 4), 3), ((7, 300, 4), 1)]
)
def test_groups_are_equal(sizes, groups):
    assert threads.count_groups(*sizes) == groups


def test_few_examples_stay_in_one_loop():
    assert threads.count_groups(8, 100, 2) == 1


def test_an_interruption_ends_all_groups(monkeypatch):
    calls, first = [], threads.Threads.__init__

    def begun(self, loop, *others):
        def run(*arguments):
            calls.append(arguments)
            if len(calls) == 6:  # a thread of the third piece
                raise KeyboardInterrupt
            return loop(*arguments)

        first(self, run, *others)

    monkeypatch.setattr(threads.Threads, "__init__", begun)
    kernel = mh.kernels.sghmc(0.01)
    with pytest.warns(UserWarning, match="Interrupted after"):
        draws, _ = sampled(kernel, 2, monkeypatch, num_steps=10**6)
    assert draws.interrupted and draws.position["mean"].shape[0] == 4
    assert len(calls) == 6


def test_replicas_that_swap_stay_together():
    found = mh.replica_exchange(
        mh.kernels.sgld(0.01),
        {"mean": np.zeros(3)},
        temperatures=[1.0, 4.0],
        log_likelihood=log_likelihood,
        data=DATA,
        num_chains=4,
        num_steps=4,
        progress=False,
    )
    assert found.position["mean"].shape == (4, 4, 3)
