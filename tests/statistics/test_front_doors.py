"""`mh.sample` has the laws of the optimizers: the same mathematics, another way in."""

import literal
import numpy as np
import pytest
import suite
import table
from keras import ops
from targets import TARGETS

import keras_mhmcmc as mh

SHARED = ("temperature",)
CONTOUR = ("masses", "zeta", "step_size", "max_multiplier")
# Of each row of the table: the kernel, and the arguments that it shares.
KERNELS = {
    "sgld": (mh.kernels.sgld, SHARED),
    "psgld": (mh.kernels.psgld, (*SHARED, "decay", "epsilon")),
    "sghmc": (mh.kernels.sghmc, (*SHARED, "momentum")),
    "mhbt_random_walk": (mh.kernels.mhbt, SHARED),
    "mhbt_langevin": (mh.kernels.mhbt, SHARED),
    "mhbt_reversible": (mh.kernels.mhbt, SHARED),
    "mint": (mh.kernels.mint, ("alpha",)),
    "csgld": (mh.kernels.csgld, (*SHARED, *CONTOUR)),
    "csghmc": (mh.kernels.csghmc, (*SHARED, *CONTOUR, "momentum")),
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
    plan = table.SHORT._replace(every=row.every)
    optimizer = row.make(target, 0)
    build, names = KERNELS[sampler]
    config = optimizer.get_config()
    arguments = {name: config[name] for name in names}
    if row.is_metropolis:
        arguments["proposal"] = optimizer.algorithm.proposal
    if "masses" in names:
        arguments["partition"] = optimizer.arguments["partition"]
    start, _ = literal.start(optimizer, target, np.random.default_rng(3), plan.chains)

    def log_likelihood(x, batch):
        loss = target.loss(x[None], None, ops)[0]
        return -loss + 0.0 * batch

    draws = mh.sample(
        build(config["learning_rate"], **arguments),
        start.astype("float32"),
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
    position = np.moveaxis(np.asarray(draws.position, "float64"), 0, 1)
    log_weight = np.log(np.moveaxis(np.asarray(draws.weights, "float64"), 0, 1))
    reference = row.reference_of(target)(optimizer, target, plan)
    result = suite.compare(target, position, log_weight, reference)
    suite.assert_law(result, sampler)
