"""MINT moves between the modes of the tied-means mixture, in the right proportion."""

import numpy as np
import pytest

import keras_mhmcmc as mh

RUNS = 10
CHAINS = 60  # of a run
STEPS = 700
BURN_IN = 100


@pytest.fixture(scope="module")
def target():
    return mh.targets.TiedMeans(40_000, (0.0, 1.0), seed=0)


def in_second_mode(target, kernel, chains):
    """Whether each draw is in the second mode; all chains start in the first one."""
    draws = mh.sample(
        kernel,
        np.tile(target.modes[0], (chains, 1)),
        log_likelihood=target.log_likelihood,
        log_prior=target.log_prior,
        data=target.data,
        batch_size=100,
        num_steps=STEPS,
        num_chains=chains,
        burn_in=BURN_IN,
        progress=False,
    )
    return draws.position[..., 1] < 0


@pytest.mark.slow
def test_mint_visits_both_modes_alike(target):
    # At the weight of m^0.6 = 16 examples. The standard error of a run's share comes
    # from its 60 independent chains: about 0.025, and that of the ratio is four times
    # as large.
    kernel = mh.kernels.mint(0.9, alpha=0.6, proposal=mh.proposals.RandomWalk())
    shares = in_second_mode(target, kernel, RUNS * CHAINS).mean(1)
    error = shares.std() / len(shares) ** 0.5
    assert abs(shares.mean() - 0.5) < 4 * error < 0.06
    runs = shares.reshape(RUNS, CHAINS).mean(1)
    ratios = (1 - runs) / runs
    assert np.sum((ratios > 0.8) & (ratios < 1.25)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel",
    [mh.kernels.sgld(0.5), mh.kernels.sghmc(0.5), mh.kernels.mhbt(0.01, temperature=1)],
    ids=["sgld", "sghmc", "cold"],
)
def test_the_others_stay_in_one_mode(target, kernel):
    assert not in_second_mode(target, kernel, 10).any()
