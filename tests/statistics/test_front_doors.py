"""`mh.sample` has the laws of the optimizers: the same mathematics, another way in."""

import inspect

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.statistics import literal
from tests.statistics import suite
from tests.statistics import table
from tests.statistics.targets import TARGETS

# The target has no mini-batches, which some kernels need.
KERNELS = {
    name: row
    for name, row in table.SAMPLERS.items()
    if row.sampler.kernel and "gaussian" not in row.law.without
}

SHORT = ("sghmc", "mhbt_langevin", "csgld")


@pytest.mark.parametrize(
    "sampler",
    [
        name if name in SHORT else pytest.param(name, marks=pytest.mark.slow)
        for name in KERNELS
    ],
)
def test_a_kernel_has_the_law_of_its_optimizer(sampler):
    """Of the Gaussian target, its loss written as that of N equal examples."""
    row, target = table.SAMPLERS[sampler], TARGETS["gaussian"]
    plan = row.plan(table.SHORT)
    optimizer = row.make(target, 0)
    build, config = row.sampler.kernel, optimizer.get_config()
    shared = inspect.signature(build).parameters.keys() & config.keys()
    arguments = {name: config[name] for name in shared}
    if "pilot_steps" in shared:  # None follows from the run
        arguments["pilot_steps"] = optimizer.warm_up_argument[1] or 20
    if "proposal" in shared:
        arguments["proposal"] = optimizer.algorithm.proposal
    if "refresh_probability" in shared:  # None follows from the proposal
        arguments["refresh_probability"] = optimizer.algorithm.refresh_probability
    for name in ("partition", "prior"):
        if name in shared:
            arguments[name] = optimizer.arguments[name]
    start, _ = literal.start(optimizer, target, np.random.default_rng(3), plan.chains)

    def log_likelihood(position, batch):
        loss = target.loss(position["kernel"][None], None, ops)[0]
        return -loss + 0.0 * batch

    draws = mh.sample(
        build(**arguments),
        {"kernel": start.astype("float32")},
        log_likelihood=log_likelihood,
        data=np.zeros(target.train_size, "float32"),
        # A draw is a point that was evaluated: the first one is `start`.
        num_steps=plan.draws * plan.every + 1,
        burn_in=1,
        every=plan.every,
        num_chains=plan.chains,
        seed=3,
        progress=False,
    )
    position = np.moveaxis(np.asarray(draws.position["kernel"], "float64"), 0, 1)
    log_weight = np.log(np.moveaxis(np.asarray(draws.weights, "float64"), 0, 1))
    reference = row.reference_of(target)(optimizer, target, plan)
    result = suite.compare(target, position, log_weight, reference)
    suite.assert_law(result, sampler)
