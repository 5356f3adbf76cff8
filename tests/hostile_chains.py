"""Rows of hostile input: chains, their draws, and kept samples."""

import numpy as np
from hostile_models import without_none
from hostile_parts import ANY_PROPOSAL
from hostile_parts import UP_TO_ONE
from hostile_tools import COUNT
from hostile_tools import FLAG
from hostile_tools import FUNCTION
from hostile_tools import INTEGER
from hostile_tools import NO_NUMBERS
from hostile_tools import NOT_NEGATIVE
from hostile_tools import NUMBER
from hostile_tools import OPEN_SHARE
from hostile_tools import POSITIVE
from hostile_tools import SEED
from hostile_tools import SHARE
from hostile_tools import TEXT
from hostile_tools import Row
from keras import ops

import keras_mhmcmc as mh


def log_density(x):
    return -0.5 * ops.sum(ops.square(x))


def log_likelihood(x, batch):
    return -0.5 * ops.square(ops.cast(batch, "float32") - x)


def draws_are_finite(result):
    assert np.isfinite(result.info["energy"]).all()


def few_draws():
    """Draws of three chains, as `sample` makes them."""
    position = np.random.default_rng(0).normal(size=(3, 12, 2))
    info = {"energy": 0.5 * np.sum(position**2, axis=-1)}
    return mh.Draws(position, None, info, state=None)


RUN = dict(num_steps=4, progress=False)
DENSITY = RUN | dict(init=0.0, log_density=log_density)
DATA = np.arange(8.0)
LIKELIHOOD = RUN | dict(init=0.0, log_likelihood=log_likelihood, data=DATA)
NO_KERNEL = [
    None,
    "sgld",
    1,
    {},
    mh.kernels.sgld,
    mh.kernels,
    mh.SGLD,
    mh.SGLD(0.1, train_size=10),
    mh.proposals.RandomWalk(),
    lambda x: x,
]
INIT = [
    None,
    "0",
    [],
    {},
    (),
    {"a": None},
    {"a": "b"},
    ["0"],
    [[1.0], [1.0, 2.0]],
    1j,
    [1j],
    np.nan,
    [np.inf],
    [10**400],
    10**5000,
    True,
    [1e300],
    lambda x: x,
    {0.5},
    b"0",
    np.array([None]),
    np.array(["2020-01-01"], "datetime64[D]"),
    float,
]
STATES = [
    mh.ChainState([], 0, [], 0, 0),
    mh.ChainState([np.zeros(3)], 0, [(1,)], 0, 0),
    mh.ChainState(None, None, None, None, None),
    mh.ChainState("abc", 0, [(1,)], 0, 0),
]
SCALAR_FUNCTION = [
    *FUNCTION,
    lambda x: ops.ones(2),
    lambda x: ops.ones((1, 1)),
    lambda x: None,
    lambda x: "a",
    lambda x: {"a": ops.sum(x)},
    lambda x: [],
]
NOWHERE_FINITE = [lambda x: np.nan * ops.sum(x), lambda x: ops.sum(x) - np.inf]
NO_DATA = [
    "abc",
    [],
    {},
    (),
    1.0,
    "a",
    ["a", "b"],
    [None],
    np.zeros((0, 2)),
    np.array(["a", "b"]),
    np.array([None, 1.0]),
    np.array([1j, 2.0]),
    {"a": np.ones(3), "b": np.ones(4)},
    (np.ones(3), 1.0),
    {"a": None},
    lambda x: x,
    float,
    np.array(["2020-01-01"], "datetime64[D]"),
]
PLAN = {
    "num_steps": COUNT,
    "num_chains": COUNT,
    "burn_in": [*INTEGER, 4, 100],
    "every": [*COUNT, 5],
    "seed": SEED,
    "progress": FLAG,
}
OF_BATCHES = {
    "log_likelihood": [
        *FUNCTION,
        lambda x, batch: ops.sum(batch * x),
        lambda x, batch: (batch * x)[:2],
        lambda x, batch: (batch * x)[:, None],
        lambda x, batch: None,
        lambda x, batch: "a",
        None,
    ],
    "data": [None, *NO_DATA],
    "batch_size": [*without_none(COUNT), 9],
    "log_prior": SCALAR_FUNCTION,
    "replacement": FLAG,
}
TEMPERATURES = [
    *NO_NUMBERS,
    [],
    1.0,
    [1.0],
    [2.0, 1.0],
    [1.0, 1.0],
    [0.0, 1.0],
    [-1.0, 1.0],
    [1.0, np.nan],
    [1.0, np.inf],
    [True, 2.0],
    [[1.0, 2.0]],
]
LADDER = dict(
    init=0.0,
    log_likelihood=log_likelihood,
    data=DATA,
    batch_size=4,
    num_levels=2,
    step_size=0.1,
    num_steps=4,
    burn_in=2,
    ring_steps=2,
    progress=False,
)

CHAINS = {
    "sample": Row(
        mh.sample,
        lambda: DENSITY | dict(kernel=mh.kernels.mhbt(0.5)),
        PLAN
        | {
            "kernel": [*NO_KERNEL, *ANY_PROPOSAL[:4]],
            "init": [*INIT, *STATES],
            "log_density": [*SCALAR_FUNCTION, None],
            "data": without_none(NO_DATA[:4]),
            "log_prior": [log_density],
            "batch_size": [2],
        },
        draws_are_finite,
        also={"log_density": {"log_likelihood"}},
        is_quick=False,
    ),
    "sample of nowhere": Row(
        mh.sample,
        lambda: DENSITY | dict(kernel=mh.kernels.mhbt(0.5)),
        {"log_density": NOWHERE_FINITE},
        also={"log_density": {"init"}},
        is_quick=False,
        is_drawn=False,
    ),
    "sample of data": Row(
        mh.sample,
        lambda: LIKELIHOOD | dict(kernel=mh.kernels.mhbt(0.5)),
        OF_BATCHES | {"data": [*OF_BATCHES["data"], np.full(8, np.nan)]},
        draws_are_finite,
        also={"log_likelihood": {"log_density"}},
        is_quick=False,
    ),
    "replica_exchange": Row(
        mh.replica_exchange,
        lambda: DENSITY | dict(kernel=mh.kernels.mhbt(0.5), temperatures=[1.0, 4.0]),
        PLAN
        | {
            "kernel": [
                *NO_KERNEL,
                mh.kernels.csgld(0.1, partition=mh.EnergyPartition(1.0, 1.0, 5)),
            ],
            "init": [*INIT, *STATES],
            "log_density": [*SCALAR_FUNCTION, None],
            "temperatures": TEMPERATURES,
            "learning_rates": [
                1.0,
                "ab",
                [0.1],
                [0.1] * 3,
                [0.1, -0.1],
                [0.1, np.nan],
                ["0.1", "0.2"],
                [0.1, None],
                {},
                {0.1, 0.2},
                [True, False],
                [0.1, 1j],
            ],
            "swap_every": [*OPEN_SHARE, 0, -1, 10**400],
            "energy_variance": [*NOT_NEGATIVE, "Auto", 1.0],
            "keep_all": FLAG,
        },
        draws_are_finite,
        also={"log_density": {"log_likelihood"}},
        is_quick=False,
    ),
    "replica_exchange of data": Row(
        mh.replica_exchange,
        lambda: LIKELIHOOD | dict(kernel=mh.kernels.mhbt(0.5), temperatures=[1.0, 4.0]),
        OF_BATCHES,
        also={"log_likelihood": {"log_density"}},
        is_quick=False,
    ),
    "equi_energy": Row(
        mh.equi_energy,
        lambda: LADDER,
        PLAN
        | {"burn_in": INTEGER}
        | {k: v for k, v in OF_BATCHES.items() if k not in ("replacement",)}
        | {
            "init": [*INIT, *STATES],
            "batch_size": [*COUNT, 8, 9],
            "growth": [*NUMBER, 1.0, 0.5, -1.0],
            "num_levels": [*without_none(COUNT), 1, 10],
            "alpha": [*UP_TO_ONE, 1.01],
            "reference": [
                "a",
                [],
                {},
                [0.0, 0.0],
                np.nan,
                {"a": 0.0},
                1j,
                [1e300],
                [None],
                ["0"],
                [[1.0], [1.0, 2.0]],
                lambda x: x,
                float,
            ],
            "lowest_energy": without_none(NUMBER),
            "energy_levels": [
                1.0,
                "ab",
                [1.0],
                [1.0] * 3,
                [2.0, 1.0],
                [1.0, 1.0],
                [1.0, np.nan],
                [1.0, np.inf],
                [1.0, None],
                ["1", "2"],
                {},
                {1.0, 2.0},
                [1.0, 1j],
            ],
            "jump_probability": SHARE,
            "step_size": POSITIVE,
            "target_acceptance": [
                None,
                0.5,
                "ab",
                (0.5,),
                (0.5, 0.2),
                (0.2, 0.2),
                (-0.1, 0.5),
                (0.2, 1.1),
                (0.2, np.nan),
                ("0.2", "0.5"),
                (True, False),
                (False, True),
                {},
                (0.2, 0.3, 0.4),
                (0.2, 1j),
                np.array([0.2, 0.5, 0.7]),
            ],
            "ring_steps": COUNT,
            "ring_capacity": COUNT,
            "keep_all": FLAG,
        },
        also={"data": {"batch_size"}},
        is_quick=False,
    ),
    "equi_energy by sizes": Row(
        mh.equi_energy,
        lambda: (
            {k: v for k, v in LADDER.items() if k not in ("batch_size", "num_levels")}
            | dict(batch_sizes=[8, 4])
        ),
        {
            "batch_sizes": [
                None,
                8,
                "ab",
                [],
                [8],
                [4, 8],
                [8, 8],
                [7, 4],
                [8, 0],
                [8, 4.0],
                [8, "4"],
                [8, None],
                [8, True],
                [[8, 4]],
                {},
                np.array([8.0, 4.0]),
            ]
        },
        draws_are_finite,
        is_quick=False,
    ),
    "Draws.resample": Row(
        lambda **arguments: few_draws().resample(**arguments),
        lambda: dict(num_draws=4, seed=0),
        {"num_draws": without_none(COUNT), "seed": SEED},
        lambda result: None,
    ),
    "Draws.summary": Row(
        lambda **arguments: few_draws().summary(**arguments),
        dict,
        {"names": [1, "x", ["x"], [1], "", {}, np.nan, [None]]},
        needs=("arviz", "pandas"),
    ),
    "PosteriorSamples": Row(
        mh.PosteriorSamples,
        dict,
        {
            "burn_in": INTEGER,
            "every": without_none(COUNT),
            "max_samples": without_none(COUNT),
            "weight_by": [*without_none(TEXT), "lr", True],
            "directory": [1, True, b"folder", ["folder"], {}, 0.5],
        },
    ),
    "PosteriorSamples.load": Row(
        mh.PosteriorSamples.load,
        lambda: dict(directory=""),
        {"directory": ["no such folder", __file__, ""]},
        is_quick=False,
        is_drawn=False,
    ),
}
