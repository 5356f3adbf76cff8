"""A run that goes on: its functions and its length are checked as at the start."""

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.sampling import loop

ROWS = np.random.default_rng(0).normal(size=40).astype("float32")
LADDER = dict(
    batch_size=20, num_levels=2, step_size=0.1, burn_in=30, ring_steps=20, data=ROWS
)


def each(mean, x):
    return -0.5 * ops.square(x - mean)


def summed(mean, x):
    return ops.sum(each(mean, x))


BATCHES = dict(data=ROWS, batch_size=10, num_steps=20, num_chains=2, progress=False)


def sample(init, log_likelihood):
    kernel = mh.kernels.sgld(0.01)
    return mh.sample(kernel, init, log_likelihood=log_likelihood, **BATCHES)


def exchange(init, log_likelihood):
    return mh.replica_exchange(
        mh.kernels.sgld(0.01),
        init,
        temperatures=[1.0, 2.0],
        log_likelihood=log_likelihood,
        **BATCHES,
    )


def equi_energy(init, log_likelihood, num_steps=60, **options):
    return mh.equi_energy(
        init,
        log_likelihood=log_likelihood,
        num_steps=num_steps,
        num_chains=2,
        progress=False,
        **LADDER | options,
    )


@pytest.mark.parametrize("run", [sample, exchange, equi_energy])
def test_a_resumed_run_refuses_a_summed_likelihood(run):
    draws = run(0.0, each)
    with pytest.raises(ValueError, match="`log_likelihood`.*neither summed"):
        run(draws.state, summed)
    assert run(draws.state, each).state.steps > draws.state.steps


def test_a_ladder_that_was_stopped_early_goes_on(monkeypatch):
    """The coldest chain begins after 50 steps, and its burn-in ends after 80."""
    pieces = iter([25])

    def stop(real):
        def piece(plan, done, *others):
            steps = next(pieces, None)
            if steps is None:
                raise KeyboardInterrupt
            return steps, 0

        return piece

    with monkeypatch.context() as patch:
        patch.setattr(loop.Plan, "piece", stop(loop.Plan.piece))
        with pytest.warns(UserWarning):
            draws = equi_energy(0.0, each)
    assert draws.state.steps == 25 and draws.interrupted
    assert draws.position.shape[1] == 0
    with pytest.raises(ValueError, match="There are no draws.*burn-in"):
        draws.weight_ess
    with pytest.raises(ValueError, match="There are no draws.*burn-in"):
        draws.resample()
    with pytest.raises(ValueError, match="`num_steps` .* burn_in=30, every=1"):
        equi_energy(draws.state, each, num_steps=30)
    more = equi_energy(draws.state, each, num_steps=34)
    assert more.position.shape[1] == 4
    assert more.state.steps == 84
    whole = equi_energy(0.0, each, num_steps=34)
    np.testing.assert_array_equal(more.position, whole.position)


def test_a_ladder_goes_on_with_its_own_batches_alone():
    state = equi_energy(0.0, each).state
    size = LADDER["batch_size"] - 1
    with pytest.raises(ValueError, match="sizes of batches and rings"):
        equi_energy(state, each, batch_size=size)


def test_replica_exchange_refuses_a_beta_that_adapts():
    with pytest.raises(ValueError, match="`kernel` must have a fixed beta"):
        mh.replica_exchange(
            mh.kernels.rsgld(0.01),
            0.0,
            temperatures=[1.0, 2.0],
            log_density=lambda x: -0.5 * ops.square(x),
            num_steps=10,
        )
