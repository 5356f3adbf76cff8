"""Rows of arguments: runs of chains, their draws, and scores of predictions."""

import numpy as np
from keras import ops

import keras_mhmcmc as mh
from tests.support import kinds
from tests.support.argument_rows import NO_PROPOSALS
from tests.support.argument_rows import row
from tests.support.arguments_of_samplers import OF_CONTOUR
from tests.support.kinds import Kind
from tests.support.kinds import array
from tests.support.kinds import choice
from tests.support.kinds import integer
from tests.support.kinds import listed
from tests.support.kinds import number
from tests.support.kinds import unshown


def log_density(x):
    return -0.5 * ops.sum(ops.square(x))


def log_likelihood(x, batch):
    return -0.5 * ops.square(ops.cast(batch, "float32") - x)


RUN = dict(init=0.0, num_steps=4, progress=False)
DENSITY = RUN | dict(kernel=mh.kernels.mhbt(0.5), log_density=log_density)
LIKELIHOOD = RUN | dict(log_likelihood=log_likelihood, data=np.arange(8.0))
NO_KERNELS = [mh.kernels.sgld, mh.kernels, mh.SGLD, mh.SGLD(0.1, train_size=10), "sgld"]
NO_STATES = [mh.ChainState([np.zeros(3)], 0, [(1,)], 0, 0)]
NO_INIT = [[], (), {"a": None}, {"a": "b"}, np.nan, [np.inf], kinds.HUGE, [1e300]]
INIT = Kind((*NO_STATES, *NO_INIT, True), kinds.no_array)
# What functions of a position must not give, and those of a batch.
NO_SCALARS = [lambda x: ops.ones(2), lambda x: ops.ones((1, 1)), lambda x: None]
NO_SCALARS += [lambda x: "a", lambda x: {"a": ops.sum(x)}, lambda x: []]
NO_VECTORS = [lambda x, batch: ops.sum(batch * x), lambda x, batch: (batch * x)[:2]]
NO_VECTORS += [lambda x, batch: (batch * x)[:, None], lambda x, batch: "a"]
NOWHERE = [lambda x: np.nan * ops.sum(x), lambda x: ops.sum(x) - np.inf]
NO_DATA = [[], {}, (), 1.0, ["a", "b"], np.zeros((0, 2)), np.array([None, 1.0]), None]
NO_DATA += [{"a": np.ones(3), "b": np.ones(4)}, (np.ones(3), 1.0), {"a": None}, [1j]]
FUNCTIONS = ["f", 1, 0.5, [1], {}, np.ones(2), True]
OF_BATCHES = dict(
    log_likelihood=listed(*FUNCTIONS, *NO_VECTORS),
    data=Kind(tuple(NO_DATA), kinds.no_array),
    batch_size=integer(1, 8).or_none,
    log_prior=listed(*FUNCTIONS, *NO_SCALARS),
    replacement=kinds.FLAG,
)
OF_DENSITIES = dict(
    burn_in=integer(0, 3),
    every=integer(1, 4),
    kernel=Kind((*NO_KERNELS, *NO_PROPOSALS)),
    init=INIT,
    log_density=listed(*FUNCTIONS, *NO_SCALARS),
)
# Beside a density, which has no data.
BESIDE = dict(
    log_likelihood=unshown(log_likelihood),
    data=unshown("abc", [], {}),
    batch_size=unshown(2),
    log_prior=unshown(log_density),
)
TEMPERED = dict(temperatures=[1.0, 4.0])
LADDER = LIKELIHOOD | dict(step_size=0.1, burn_in=2, ring_steps=2)
CHAINS = {
    "log_density": row(dict(function=log_density), function=listed(*FUNCTIONS)),
    "sample": row(
        DENSITY,
        also={"log_likelihood": {"log_density"}},
        control_variates=unshown(0.0, [0.0], "abc", True),  # beside a density
        jit_compile=kinds.choice("auto", True, False),
        **OF_DENSITIES | BESIDE,
    ),
    "sample of nowhere": row(
        DENSITY, log_density=listed(*NOWHERE), also={"log_density": {"init"}}
    ),
    "sample of data": row(LIKELIHOOD | dict(kernel=mh.kernels.mhbt(0.5)), **OF_BATCHES),
    "sample with control variates": row(
        LIKELIHOOD | dict(kernel=mh.kernels.sgld(0.5), batch_size=4),
        control_variates=(INIT | [[0.0, 0.0], {"a": 0.0}, (0.0,)]).or_none,
    ),
    "replica_exchange": row(
        DENSITY | TEMPERED,
        also={"log_likelihood": {"log_density"}},
        **OF_DENSITIES
        | BESIDE
        | dict(
            kernel=Kind((*NO_KERNELS, mh.kernels.csgld(0.1, **OF_CONTOUR))),
            temperatures=array(
                [1.0, 4.0],
                "(0, inf)",
                [2.0, 1.0],
                [1.0, 1.0],
                1.0,
                shapes=[(), 1, (1, 2)],
            ),
            learning_rates=array(
                [0.1, 0.1], "[0, inf)", 1.0, "ab", shapes=[1, 3]
            ).or_none,
            swap_every=kinds.COUNT,
            energy_variance=(number("[0, 0]") | ["Auto", 1.0]).but("auto"),
        ),
    ),
    "replica_exchange of data": row(
        LIKELIHOOD | TEMPERED | dict(kernel=mh.kernels.mhbt(0.5)), **OF_BATCHES
    ),
    "equi_energy": row(
        LADDER | dict(batch_size=4, num_levels=2),
        init=INIT,
        every=integer(1, 4),
        growth=number("(1, inf)"),
        num_levels=(integer(2) | [10]).or_none,
        reference=(INIT | [[0.0, 0.0], {"a": 0.0}]).but(bool).or_none,
        lowest_energy=kinds.NUMBER.or_none,
        step_size=kinds.POSITIVE,
        also={"data": {"batch_size"}},
        **{
            k: v
            for k, v in OF_BATCHES.items()
            if k not in ("batch_size", "replacement")
        }
        | dict(batch_size=integer(1, 7)),
    ),
}

# Draws and scores.

Y4 = np.array([0, 1, 0, 1])
P4 = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2]])


def few_draws():
    """Draws of three chains, as `sample` makes them."""
    position = np.random.default_rng(0).normal(size=(3, 12, 2))
    info = {"energy": 0.5 * np.sum(position**2, axis=-1)}
    return dict(self=mh.Draws(position, None, info, state=None))


THREE = {"x": np.random.default_rng(0).normal(size=(4, 10))}
NO_ENTRIES = [None, "abc", 1.0, np.zeros(10), [[1j] * 4] * 2, np.zeros((0, 10))]
NO_ENTRIES = [{"x": entry} for entry in NO_ENTRIES]
NO_DRAWS = Kind((None, 1, "x", THREE["x"], {}, {1: THREE["x"]}, [], *NO_ENTRIES))
NO_NAMES = listed(1, "y", ["y"], [1], [None], "", np.nan, {})
NO_STATS = [1, "x", THREE["x"], {"e": "abc"}, {"e": np.zeros((3, 10))}, {2: THREE["x"]}]
NO_SHARES = [0.5, [], np.full((4, 2), 0.25)]
PROBABILITIES = array(P4, "[0, 1]", *NO_SHARES, shapes=[(4, 0), (2, 2, 2)])
NO_LABELS = [np.zeros((4, 2)), np.ones((4, 2)), 0]
LABELS = array(Y4, "[0, 1]", *NO_LABELS, shapes=[3, 5, (4, 3)], planted=[0.5])
WEIGHTS = array([1.0, 1.0], "[0, inf)", [0.0, 0.0], 1.0, shapes=[1, 3, (1, 2)])
OF_LABELS = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "classwise_ece")
OF_LABELS += ("reliability", "aurc")
SCORED = dict(probabilities=PROBABILITIES, labels=LABELS)
# Probabilities of shape (members, examples, classes).
MEMBERS = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1], [0.3, 0.7]])
MEMBERS = np.stack([MEMBERS, MEMBERS[::-1], 0.5 + 0.0 * MEMBERS])
PREDICTIONS = array(MEMBERS, "[0, 1]", 0.5, MEMBERS / 2.0, shapes=[2, (3, 5, 2)])
SCORES = {
    "Draws.resample": row(few_draws),
    "Draws.summary": row(few_draws, names=NO_NAMES | ["x", ["x"]]),
    "diagnostics.to_arviz": row(
        dict(posterior=THREE),
        posterior=NO_DRAWS | [THREE | {"y": np.zeros((3, 10))}],
        sample_stats=listed(*NO_STATS),
    ),
    "diagnostics.summary": row(
        dict(draws=THREE),
        draws=NO_DRAWS | [{"x": np.zeros((4, 0))}],
        names=NO_NAMES,
    ),
    "diagnostics.agreement": row(
        dict(reference=MEMBERS, predictions=MEMBERS[::-1], reference_ess=5.0),
        reference=PREDICTIONS,
        predictions=PREDICTIONS,
        task=choice("classification", "regression"),
        reference_mean=array(MEMBERS[0], "(-inf, inf)", shapes=[4, (2, 4)]).or_none,
        reference_sd=array(MEMBERS[0], "[0, inf)", shapes=[4, (2, 4)]).or_none,
        reference_ess=array(MEMBERS[0] + 1.0, "[1, inf)", shapes=[4, (2, 4)]).or_none,
        also={"reference": {"predictions"}, "task": {"reference"}},
    ),
    **{
        f"metrics.{name}": row(
            dict(probabilities=P4, labels=Y4),
            also={"probabilities": {"labels"}},
            **SCORED,
        )
        for name in OF_LABELS
    },
    "metrics.predictive_entropy": row(
        dict(probabilities=P4), probabilities=PROBABILITIES
    ),
    "metrics.mutual_information": row(
        dict(member_probabilities=np.stack([P4, P4]), weights=[1.0, 1.0]),
        member_probabilities=array(
            [P4, P4], "[0, 1]", 0.5, P4, np.full((2, 4, 2), 0.7), shapes=[(4, 2)]
        ),
        weights=(WEIGHTS | [[1e308, 1e308]]).or_none,
        also={"member_probabilities": {"weights"}},
    ),
    **{
        f"metrics.{name}": row(
            dict(scores=[0.1, 0.4, 0.4, 0.9], positive=[False, False, True, True]),
            scores=array(Y4, "(-inf, inf)", 1.0, [], shapes=[3, (1, 4)]),
            positive=array(
                Y4, "[0, 1]", True, [True] * 4, [False] * 4, shapes=[2, (1, 4)]
            ),
            also={"scores": {"positive"}},
        )
        for name in ("auroc", "aupr")
    },
}
TABLE = CHAINS | SCORES
