"""Rows of hostile input: parts of samplers, kernels, laws, numbers and data sets."""

import atexit
import functools
import pathlib
import shutil
import tempfile

import keras
import numpy as np
from argument_tools import NOT_FINITE
from hostile_tools import AT_LEAST_ONE
from hostile_tools import COUNT
from hostile_tools import FLAG
from hostile_tools import HUGE
from hostile_tools import INTEGER
from hostile_tools import LABELS
from hostile_tools import NO_NUMBERS
from hostile_tools import NOT_NEGATIVE
from hostile_tools import NUMBER
from hostile_tools import OPEN_SHARE
from hostile_tools import P4
from hostile_tools import POSITIVE
from hostile_tools import PROBABILITIES
from hostile_tools import SEED
from hostile_tools import SHARE
from hostile_tools import TEXT
from hostile_tools import Y4
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


def prior(result):
    round_trip(result)
    variable = keras.Variable([0.5, -1.0], name="kernel", trainable=False)
    energy = float(result.bind([variable]).energy([variable.value]))
    assert np.isfinite(energy) and energy >= 0.0


def kernel(result):
    """The kernel has a step on data of 100 examples."""
    rate = result.fit(100, 10)
    rate.init([keras.ops.zeros((2, 1))])


def finite(result):
    assert np.isfinite(np.asarray(result, "float64")).all()


def finite_or_empty_bins(result):
    empty = result.count == 0
    assert np.isfinite(result.accuracy[~empty]).all() and result.count.sum() == 4


POWER_DECAY = dict(initial=0.1, offset=1.0, power=0.5)
CYCLE = dict(initial=0.1, cycle_steps=10, decay=0.9, decay_steps=5, growth=2.0)
UP_TO_ONE = [v for v in OPEN_SHARE if not (isinstance(v, float) and 0.9 < v <= 1.0)]
NULLABLE_POSITIVE = [v for v in POSITIVE if v is not None]
NULLABLE_COUNT = [v for v in COUNT if v is not None]
PARTITION = dict(energy_min=10.0, energy_gap=1.0, partitions=5, zeta=1.0)
BAD_PDF = [
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
    "energy_min": NUMBER,
    "energy_gap": POSITIVE,
    "partitions": [*COUNT, 1],
    "zeta": POSITIVE,
    "temperature": TEMPERATURE,
    "step_size": STEP_SIZE,
    "random_field": [*TEXT, "Zeta", "two", True],
    "difference": [*TEXT, "central", True],
    "max_multiplier": [v for v in AT_LEAST_ONE if v is not None],
    "weight_power": [v for v in NOT_NEGATIVE if v is not None],
    "rho": [*NOT_NEGATIVE, 1e30],
    "pdf": BAD_PDF,
    "adapt": FLAG,
    "shared_density": FLAG,
}
NAMES = [*TEXT, "imagenet", "mnist "]
FOLDERS = [
    None,
    1,
    0.5,
    "",
    ".",
    b"x",
    "no such folder",
    [],
    {},
    "\0",
    "x" * 5000,
    True,
]


@functools.cache
def folder():
    """A folder with a data set."""
    path = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path)
    np.savez(path / "yacht.npz", X=np.ones((20, 2)), y=np.ones(20))
    return path


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
        finite,
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
        lambda: dict(PARTITION, learning_rate=0.1),
        CONTOUR,
        kernel,
        also={"adapt": {"pdf"}},
    ),
    "kernels.csghmc": Row(
        mh.kernels.csghmc,
        lambda: dict(PARTITION, learning_rate=0.1),
        CONTOUR | {"momentum": SHARE},
        kernel,
        also={"adapt": {"pdf"}},
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
    "suggest_partition": Row(
        mh.suggest_partition,
        lambda: dict(energies=np.arange(20.0), partitions=10),
        {
            "energies": [
                *NO_NUMBERS,
                [],
                1.0,
                np.arange(9.0),
                np.ones(20),
                np.full(20, np.nan),
                [np.inf] * 12 + [1.0] * 8,
            ],
            "partitions": [*COUNT, 1, 2],
        },
        lambda result: finite(list(result.values())),
    ),
    "targets.GaussianMean": Row(
        mh.targets.GaussianMean,
        lambda: dict(train_size=10, dimension=2, true_mean=2.0, seed=0),
        {
            "train_size": COUNT,
            "dimension": COUNT,
            "true_mean": [*NUMBER, 1e4, -1e4, 1000.0],
            "seed": SEED,
        },
        lambda result: finite(result.data),
    ),
    "targets.GaussianMean.moments": Row(
        mh.targets.GaussianMean(10, 2).moments,
        lambda: dict(temperature=1.0),
        {"temperature": POSITIVE},
        lambda result: finite(result[1]),
    ),
    "targets.TiedMeans": Row(
        mh.targets.TiedMeans,
        lambda: dict(train_size=10, theta=(0.0, 1.0), seed=0),
        {
            "train_size": COUNT,
            "theta": [
                *NO_NUMBERS,
                1.0,
                [],
                (0.0,),
                (0.0, 1.0, 2.0),
                (0.0, 0.0),
                (np.nan, 1.0),
                (0.0, np.inf),
                (0.0, 1e30),
                [[0.0, 1.0]],
                ("0", "1"),
            ],
            "seed": SEED,
        },
        lambda result: finite(result.data),
    ),
    "targets.TiedMeans.moments": Row(
        mh.targets.TiedMeans(100, (0.0, 2.0)).moments,
        lambda: dict(temperature=1.0),
        {"temperature": POSITIVE},
        lambda result: finite(result[0]),
    ),
    "targets.TiedMeans.log_density_grid": Row(
        mh.targets.TiedMeans(100, (0.0, 2.0)).log_density_grid,
        lambda: dict(theta_1=[0.0, 1.0], theta_2=[0.5]),
        {
            name: [*NO_NUMBERS, 1.0, [[0.0]], [np.nan], [np.inf]]
            for name in ("theta_1", "theta_2")
        },
        finite,
    ),
    "targets.mirrored": Row(
        mh.targets.mirrored,
        lambda: dict(theta=[0.0, 1.0]),
        {"theta": [*NO_NUMBERS, 1.0, [], [1.0], [1.0, 2.0, 3.0], [[1.0]]]},
    ),
    "datasets.load": Row(
        mh.datasets.load,
        lambda: dict(name="yacht", data_dir=folder(), split=0),
        {"name": NAMES, "data_dir": FOLDERS, "split": INTEGER},
        lambda result: finite(result[0][0]),
        also={"name": {"data_dir"}},
    ),
    "datasets.load_test": Row(
        mh.datasets.load_test,
        lambda: dict(name="yacht", data_dir=folder()),
        {"name": NAMES, "data_dir": FOLDERS},
        lambda result: finite(result[0]),
    ),
    "datasets.rows": Row(
        mh.datasets.rows,
        lambda: dict(name="yacht", data_dir=folder()),
        {"name": [*NAMES, "mnist"], "data_dir": FOLDERS},
        lambda result: finite(result[0]),
    ),
    "datasets.standardized": Row(
        mh.datasets.standardized,
        lambda: dict(train=np.arange(6.0).reshape(3, 2), test=np.ones((2, 2)), axis=0),
        {
            "train": [
                *NO_NUMBERS,
                [],
                1.0,
                np.ones((3, 3)),
                np.full((3, 2), np.nan),
                np.array([[np.inf, 1.0]] * 3),
                np.ones((0, 2)),
            ],
            "test": [
                *NO_NUMBERS,
                [],
                np.ones((2, 3)),
                np.ones(2),
                np.full((2, 2), np.nan),
            ],
            "axis": [2, -3, (0, 5), "0", 0.5, [[0]], None, {}, 1j, True, (0, 0)],
        },
        lambda result: finite(result[0]),
        also={"train": {"test"}, "axis": {"test"}},
    ),
    "diagnostics.to_arviz": Row(
        mh.diagnostics.to_arviz,
        lambda: dict(posterior={"x": np.zeros((4, 10))}),
        {
            "posterior": [
                None,
                1,
                "x",
                np.zeros((4, 10)),
                {},
                {"x": None},
                {"x": "abc"},
                {"x": 1.0},
                {"x": np.zeros(10)},
                {"x": [[1j] * 4] * 2},
                {"x": np.zeros((0, 10))},
                {1: np.zeros((4, 10))},
                {"x": np.zeros((4, 10)), "y": np.zeros((3, 10))},
            ],
            "sample_stats": [
                1,
                "x",
                np.zeros((4, 10)),
                {"e": "abc"},
                {"e": np.zeros(10)},
                {"e": np.zeros((3, 10))},
                {2: np.zeros((4, 10))},
            ],
        },
        needs=("arviz",),
    ),
    **{
        f"diagnostics.{function.__name__}": Row(
            function,
            lambda: dict(draws={"x": np.random.default_rng(0).normal(size=(4, 10))}),
            {
                "draws": [
                    None,
                    1,
                    "x",
                    np.zeros((4, 10)),
                    {},
                    {"x": None},
                    {"x": ["1", "2"]},
                    {"x": 1.0},
                    {"x": np.zeros(10)},
                    {"x": [[1j] * 4] * 2},
                    {"x": np.zeros((0, 10))},
                    {"x": np.zeros((4, 0))},
                    {"x": [[1.0], [1.0, 2.0]]},
                    {1: np.zeros((4, 10))},
                    lambda x: x,
                ],
                "names": [1, "y", ["y"], [1], [None], "", float("nan"), {}, ["x", "y"]],
                "max_rows": COUNT,
            },
            needs=("arviz", "pandas"),
        )
        for function in (mh.diagnostics.summary, mh.diagnostics.scalars)
    },
    **{
        f"metrics.{function.__name__}": Row(
            function,
            lambda: dict(probabilities=P4, labels=Y4),
            {"probabilities": PROBABILITIES, "labels": LABELS},
            finite,
            also={"probabilities": {"labels"}},
        )
        for function in (mh.metrics.accuracy, mh.metrics.nll, mh.metrics.brier)
    },
    "metrics.reliability": Row(
        mh.metrics.reliability,
        lambda: dict(probabilities=P4, labels=Y4, bins=15),
        {"probabilities": PROBABILITIES, "labels": LABELS, "bins": COUNT},
        finite_or_empty_bins,
        also={"probabilities": {"labels"}},
    ),
    "metrics.ece": Row(
        mh.metrics.ece,
        lambda: dict(probabilities=P4, labels=Y4, bins=15),
        {"probabilities": PROBABILITIES, "labels": LABELS, "bins": COUNT},
        finite,
        also={"probabilities": {"labels"}},
    ),
    "metrics.predictive_entropy": Row(
        mh.metrics.predictive_entropy,
        lambda: dict(probabilities=P4),
        {"probabilities": PROBABILITIES},
        finite,
    ),
    "metrics.mutual_information": Row(
        mh.metrics.mutual_information,
        lambda: dict(member_probabilities=np.stack([P4, P4]), weights=[1.0, 1.0]),
        {
            "member_probabilities": [
                *NO_NUMBERS,
                P4,
                [],
                0.5,
                np.full((2, 4, 2), np.nan),
                np.full((2, 4, 2), 0.7),
                np.full((2, 4, 2), -0.5),
                np.zeros((0, 4, 2)),
            ],
            "weights": [
                *(v for v in NO_NUMBERS if v is not None),
                1.0,
                [1.0],
                [1.0, 1.0, 1.0],
                [0.0, 0.0],
                [-1.0, 2.0],
                [np.nan, 1.0],
                [np.inf, 1.0],
                [1e308, 1e308],
                [],
            ],
        },
        finite,
        also={"member_probabilities": {"weights"}},
    ),
    "metrics.auroc": Row(
        mh.metrics.auroc,
        lambda: dict(scores=[0.1, 0.4, 0.4, 0.9], positive=[False, False, True, True]),
        {
            "scores": [
                *NO_NUMBERS,
                [],
                1.0,
                [[0.1, 0.2, 0.3, 0.4]],
                [0.1, 0.2, 0.3],
                *([0.1, 0.2, 0.3, v] for v in NOT_FINITE),
            ],
            "positive": [
                *NO_NUMBERS,
                [],
                True,
                [True] * 4,
                [False] * 4,
                [True, False],
                [0, 1, 2, 1],
                [0, 1, np.nan, 1],
                [[True, False, True, False]],
            ],
        },
        finite,
        also={"scores": {"positive"}},
    ),
}
