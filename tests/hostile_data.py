"""Rows of hostile input: laws, data sets, draws and scores in numbers."""

import atexit
import functools
import pathlib
import shutil
import tempfile

import numpy as np
from argument_tools import NOT_FINITE
from hostile_tools import COUNT
from hostile_tools import INTEGER
from hostile_tools import LABELS
from hostile_tools import NO_NUMBERS
from hostile_tools import NUMBER
from hostile_tools import P4
from hostile_tools import POSITIVE
from hostile_tools import PROBABILITIES
from hostile_tools import SEED
from hostile_tools import TEXT
from hostile_tools import Y4
from hostile_tools import Row

import keras_mhmcmc as mh


def finite(result):
    assert np.isfinite(np.asarray(result, "float64")).all()


def finite_or_empty_bins(result):
    empty = result.count == 0
    assert np.isfinite(result.accuracy[~empty]).all() and result.count.sum() == 4


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


DATA = {
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
        lambda result: finite(list(result.get_config().values())),
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
