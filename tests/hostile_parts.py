"""Rows of hostile input: parts of samplers, kernels, laws, numbers and data sets."""

import keras
import numpy as np
from hostile_tools import AT_LEAST_ONE
from hostile_tools import COUNT
from hostile_tools import FLAG
from hostile_tools import HUGE
from hostile_tools import NOT_NEGATIVE
from hostile_tools import NUMBER
from hostile_tools import OPEN_SHARE
from hostile_tools import POSITIVE
from hostile_tools import SHARE
from hostile_tools import TEXT
from hostile_tools import Row

import keras_mhmcmc as mh


def round_trip(result):
    """The object can be made again from its configuration."""
    config = result.get_config()
    assert type(result).from_config(config).get_config() == config


def schedule(result):
    round_trip(result)
    values = [float(result(step)) for step in (0, 1, 1000)]
    assert np.isfinite(values).all() and min(values) >= 0.0


def loss(result):
    round_trip(result)
    nats = keras.ops.convert_to_numpy(result([[0.5]], [[0.5]]))
    assert np.isfinite(nats).all()


def per_example(result):
    assert keras.ops.convert_to_numpy(result).shape == (4,)


def prior(result):
    round_trip(result)
    variable = keras.Variable([0.5, -1.0], name="kernel", trainable=False)
    energy = float(result.bind([variable]).energy([variable.value], like=0.0))
    assert np.isfinite(energy) and energy >= 0.0


def kernel(result):
    """The kernel has a step on data of 100 examples."""
    bound = result.bind_data_size(100, 10)
    bound.init([keras.ops.zeros((2, 1))])


POWER_DECAY = dict(initial=0.1, offset=1.0, power=0.5)
CYCLE = dict(initial=0.1, cycle_steps=10, decay=0.9, decay_steps=5, growth=2.0)
UP_TO_ONE = [v for v in OPEN_SHARE if not (isinstance(v, float) and 0.9 < v <= 1.0)]
NULLABLE_POSITIVE = [v for v in POSITIVE if v is not None]
NULLABLE_COUNT = [v for v in COUNT if v is not None]
PARTITION = dict(energy_min=10.0, energy_gap=1.0, partitions=5)
SPIKE_SLAB = dict(sparse="kernel", v0=1e-3, v1=1.0)
BAD_MASSES = [
    "abc",
    ["a"] * 5,
    [1.0] * 4,
    [1.0] * 6,
    [],
    1.0,
    [[1.0] * 5],
    [1, 1, 1, 1, 0],
    [1, 1, 1, 1, -1],
    [1, 1, 1, 1, np.nan],
    [1, 1, 1, 1, np.inf],
    [1, 1, 1, 1, 1j],
    {"a": 1},
    [None] * 5,
    [HUGE] * 5,
    True,
]
STEP_SIZE = [v for v in OPEN_SHARE if v is not None] + [
    keras.optimizers.schedules.ExponentialDecay(0.1, 1, 1.0),  # does not fall
    keras.optimizers.schedules.ExponentialDecay(2.0, 10, 0.5),  # starts above 1
    mh.schedules.RobbinsMonro,
]
RATE = [*NOT_NEGATIVE, mh.schedules.PowerDecay, "auto"]
TEMPERATURE = [*NOT_NEGATIVE, mh.schedules.PowerDecay]
ANY_PROPOSAL = [
    "RandomWalk",
    1.0,
    mh.proposals.RandomWalk,
    mh.proposals.Proposal,
    mh.priors.Gaussian(1.0),
    lambda x: x,
    [mh.proposals.RandomWalk()],
    {},
    False,
]
CONTOUR = {
    "learning_rate": RATE,
    "partition": [
        None,
        1,
        "auto",
        [],
        {},
        (10.0, 1.0, 5),
        PARTITION,
        mh.EnergyPartition,
        lambda x: x,
    ],
    "zeta": POSITIVE,
    "temperature": TEMPERATURE,
    "step_size": STEP_SIZE,
    "random_field": [*TEXT, "Zeta", "two", True],
    "difference": [*TEXT, "central", True],
    "max_multiplier": [v for v in AT_LEAST_ONE if v is not None],
    "weight_power": [v for v in NOT_NEGATIVE if v is not None],
    "rho": [*NOT_NEGATIVE, 1e30],
    "masses": BAD_MASSES,
    "adapt": FLAG,
    "shared_density": FLAG,
}
PARTS = {
    "schedules.PowerDecay": Row(
        mh.schedules.PowerDecay,
        lambda: POWER_DECAY,
        {"initial": NOT_NEGATIVE, "offset": POSITIVE, "power": NOT_NEGATIVE},
        schedule,
    ),
    "schedules.RobbinsMonro": Row(
        mh.schedules.RobbinsMonro,
        lambda: dict(scale=10.0, power=0.8, offset=100.0, maximum=3e-3),
        {
            "scale": POSITIVE,
            "power": [*UP_TO_ONE, 0.5, 1.1],
            "offset": POSITIVE,
            "maximum": NULLABLE_POSITIVE,
        },
        schedule,
    ),
    "schedules.CyclicalCosine": Row(
        mh.schedules.CyclicalCosine,
        lambda: dict(initial=0.1, cycle_steps=10),
        {"initial": NOT_NEGATIVE, "cycle_steps": COUNT},
        schedule,
    ),
    "schedules.GeometricCycle": Row(
        mh.schedules.GeometricCycle,
        lambda: CYCLE,
        {
            "initial": NOT_NEGATIVE,
            "cycle_steps": COUNT,
            "decay": [*UP_TO_ONE, 1.1],
            "decay_steps": COUNT,
            "growth": AT_LEAST_ONE,
        },
        round_trip,
    ),
    "priors.Gaussian": Row(
        mh.priors.Gaussian,
        lambda: dict(scale=1.0),
        {
            "scale": [
                *(v for v in POSITIVE if v != {"a": 1}),
                1e-30,  # whose precision is infinite in float32
                {"kernel": 0.0},
                {"kernel": "1"},
                {"kernel": None},
                {"kernel": np.nan},
                {"kernel": {"kernel": 1.0}},
                {"(": 1.0},
                {1: 1.0},
                {None: 1.0},
                {b"kernel": 1.0},
            ]
        },
        prior,
    ),
    "priors.SpikeSlab": Row(
        mh.priors.SpikeSlab,
        lambda: SPIKE_SLAB,
        {
            "sparse": ["(", None, 1, True, b"kernel", [], {}, object()],
            **dict.fromkeys(("v0", "v1", "nu", "lam", "sigma"), POSITIVE),
            **dict.fromkeys(("a", "b"), AT_LEAST_ONE),
            "delta": OPEN_SHARE,
            "initial_inclusion": [v for v in OPEN_SHARE if v is not None],
            "groups": [*TEXT, "each", True],
        },
        round_trip,
        also={"v1": {"v0"}},
    ),
    "priors.SpikeSlab.sparse_kernels": Row(
        lambda sparse: mh.priors.SpikeSlab(sparse, v0=1e-3, v1=1.0).sparse_kernels(
            [keras.Variable([[1.0]], name="kernel"), keras.Variable([1.0])]
        ),
        lambda: dict(sparse="kernel"),
        {"sparse": ["no such weight", lambda variable: False]},
    ),
    "EnergyPartition": Row(
        mh.EnergyPartition,
        lambda: PARTITION,
        {
            "energy_min": NUMBER,
            "energy_gap": POSITIVE,
            "partitions": [*COUNT, 1],
        },
        round_trip,
    ),
    "priors.Gaussian.bind": Row(
        lambda scale: mh.priors.Gaussian(scale).bind([keras.Variable([1.0])]),
        lambda: dict(scale=1.0),
        {"scale": [{"no such weight": 1.0}]},
    ),
    "proposals.Langevin": Row(
        mh.proposals.Langevin,
        lambda: dict(noise_temperature=None),
        {"noise_temperature": NULLABLE_POSITIVE},
        round_trip,
    ),
    "proposals.ReversibleLangevin": Row(
        mh.proposals.ReversibleLangevin,
        lambda: dict(beta=2.0, noise_temperature=None, normalized=False),
        {
            "beta": [*AT_LEAST_ONE, "auto"],
            "noise_temperature": NULLABLE_POSITIVE,
            "normalized": FLAG,
        },
        round_trip,
    ),
    "losses.GaussianNLL": Row(
        mh.losses.GaussianNLL,
        lambda: dict(noise_std=0.5, name="nll", reduction="sum_over_batch_size"),
        {
            "noise_std": POSITIVE,
            "name": [1, ["a"], {}, np.ones(2), b"a", 0.5],
            "reduction": ["average", 1, [], {}, True, "MEAN", np.ones(2)],
        },
        loss,
    ),
    "losses.GaussianNLL.call": Row(
        lambda y_true, y_pred: mh.losses.GaussianNLL(0.5).call(
            keras.ops.convert_to_tensor(y_true), keras.ops.convert_to_tensor(y_pred)
        ),
        lambda: dict(y_true=np.zeros((4, 2)), y_pred=np.zeros((4, 2))),
        {
            "y_true": [np.zeros((4, 3)), np.zeros((3, 2)), np.zeros(4)],
            "y_pred": [np.zeros((4, 3)), np.zeros((3, 2)), np.zeros(())],
        },
        per_example,
        is_drawn=False,  # Keras makes tensors of them
    ),
    "kernels.sgld": Row(
        mh.kernels.sgld,
        lambda: dict(learning_rate=0.1, temperature=1.0),
        {"learning_rate": RATE, "temperature": TEMPERATURE},
        kernel,
    ),
    "kernels.psgld": Row(
        mh.kernels.psgld,
        lambda: dict(learning_rate=0.1, decay=0.9, epsilon=1e-5, temperature=1.0),
        {
            "learning_rate": RATE,
            "decay": SHARE,
            "epsilon": POSITIVE,
            "temperature": TEMPERATURE,
        },
        kernel,
    ),
    "kernels.sghmc": Row(
        mh.kernels.sghmc,
        lambda: dict(learning_rate=0.1, momentum=0.9, temperature=1.0),
        {"learning_rate": RATE, "momentum": SHARE, "temperature": TEMPERATURE},
        kernel,
    ),
    "kernels.csgld": Row(
        mh.kernels.csgld,
        lambda: dict(learning_rate=0.1, partition=mh.EnergyPartition(**PARTITION)),
        CONTOUR,
        kernel,
        also={"adapt": {"masses"}},
    ),
    "kernels.csghmc": Row(
        mh.kernels.csghmc,
        lambda: dict(learning_rate=0.1, partition=mh.EnergyPartition(**PARTITION)),
        CONTOUR | {"momentum": SHARE},
        kernel,
        also={"adapt": {"masses"}},
    ),
    "kernels.mhbt": Row(
        mh.kernels.mhbt,
        lambda: dict(learning_rate=0.1),
        {
            "learning_rate": RATE,
            "proposal": ANY_PROPOSAL,
            "temperature": [*NULLABLE_POSITIVE, mh.schedules.PowerDecay],
        },
        kernel,
    ),
    "kernels.mint": Row(
        mh.kernels.mint,
        lambda: dict(learning_rate=0.1),
        {
            "learning_rate": RATE,
            "proposal": ANY_PROPOSAL,
            "alpha": [*UP_TO_ONE, 1.01],
        },
        kernel,
    ),
}
