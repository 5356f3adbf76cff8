"""Rows of hostile input: pictures."""

import keras
import numpy as np
from argument_tools import make
from hostile_chains import SCALAR_FUNCTION
from hostile_models import sparse_model
from hostile_models import without_none
from hostile_scores import ROWS
from hostile_scores import SCORES
from hostile_tools import COUNT
from hostile_tools import FUNCTION
from hostile_tools import LABELS
from hostile_tools import MODEL
from hostile_tools import NO_NUMBERS
from hostile_tools import P4
from hostile_tools import POSITIVE
from hostile_tools import PROBABILITIES
from hostile_tools import Y4
from hostile_tools import Row
from keras import ops

import keras_mhmcmc as mh


def log_density(x):
    return -0.5 * ops.sum(ops.square(x))


NO_AXES = ["ax", 1, {}, [], object, np.ones(2), lambda x: x]
NO_MANY_AXES = [*NO_AXES, [None], [None] * 3, ["a", "b"]]
THREE = {"x": np.random.default_rng(0).normal(size=(4, 10))}
ACCEPTANCE = {"acceptance": [0.9, 0.4]}
CHAIN_PLOT = {
    "draws": [
        None,
        1,
        "x",
        [],
        {},
        np.zeros((4, 10)),
        {"x": None},
        {"x": "abc"},
        {"x": np.zeros(10)},
        {"x": [[1j] * 4] * 2},
        {"x": np.zeros((4, 0))},
        {1: np.zeros((4, 10))},
        {"x": np.full((4, 10), np.nan)},
        {"x": np.full((4, 10), np.inf)},
        lambda x: x,
        mh.Draws,
    ],
    "names": [1, "y", ["y"], [None], "", {}, np.nan],
    "max_chains": COUNT,
    "max_rows": COUNT,
    "axes": NO_MANY_AXES,
}
RUN_OF_ARRAYS = dict(
    run=[4.0, 2.5, 3.5],
    partition=mh.EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=2),
    masses=[0.5, 0.5],
    visits=[1, 2],
)
BAD_COUNTS = [
    *NO_NUMBERS,
    [],
    0.5,
    [0.5],
    [0.5] * 3,
    [0.5, np.nan],
    [0.5, np.inf],
    [0.5, -0.5],
    np.ones((1, 1, 2)),
]


PICTURES = {
    "acceptance": Row(
        mh.plots.acceptance,
        lambda: dict(history=ACCEPTANCE),
        {
            "history": [
                None,
                1,
                "acceptance",
                [],
                {},
                {"loss": [1.0]},
                {"": 0, 0: 0},
                {"acceptance": []},
                {"acceptance": None},
                {"acceptance": "abc"},
                {"acceptance": 0.5},
                {"acceptance": np.zeros((2, 2, 2))},
                {"acceptance": [0.5, 1j]},
                {"acceptance": [[0.5], [0.5, 0.5]]},
                {"acceptance": [0.5, 0.5], "beta": [1.0] * 3},
                keras.callbacks.History,
                keras.callbacks.History(),
                np.zeros(3),
            ],
            "axes": NO_MANY_AXES,
        },
    ),
    "adversarial_grid": Row(
        mh.plots.adversarial_grid,
        lambda: dict(
            images=np.zeros((2, 4, 3, 3)),
            probabilities=np.stack([P4, P4]),
            labels=Y4,
            epsilons=[0.0, 0.1],
        ),
        {
            "images": [
                *NO_NUMBERS,
                [],
                np.zeros((2, 4, 3)),
                np.zeros((2, 4, 3, 3, 2)),
                np.zeros((2, 0, 3, 3)),
                np.full((2, 4, 3, 3), 255.0),
                np.full((2, 4, 3, 3), np.nan),
                np.full((2, 4, 3, 3), -1.0),
            ],
            "probabilities": [*NO_NUMBERS, P4, [], np.full((2, 4, 2), np.nan)],
            "labels": LABELS,
            "epsilons": [
                *NO_NUMBERS,
                0.1,
                [],
                [0.1],
                [0.0, np.nan],
                [0.0, -0.1],
                [[0.0, 0.1]],
                [0.0, np.inf],
            ],
            "title": [1, [], {}, True, np.ones(2)],
            "axes": NO_MANY_AXES,
        },
        also={"images": {"epsilons", "probabilities", "labels"}},
    ),
    "contours": Row(
        mh.plots.contours,
        lambda: dict(
            log_density=log_density,
            draws=np.eye(2),
            extent=((-3, 3), (-3, 3)),
            points=5,
        ),
        {
            "log_density": [
                None,
                *FUNCTION,
                *SCALAR_FUNCTION[-6:],
                lambda x: np.nan * ops.sum(x),
            ],
            "draws": [
                *without_none(NO_NUMBERS),
                1.0,
                [],
                np.zeros(2),
                np.zeros((3, 3)),
                np.zeros((0, 2)),
                np.full((5, 2), np.nan),
                np.full((5, 2), np.inf),
            ],
            "extent": [
                *without_none(NO_NUMBERS),
                (-3, 3),
                ((3, -3), (-3, 3)),
                ((-3, 3), (0, 0)),
                ((-3, 3), (0, np.nan)),
                ((-3, 3), (0, np.inf)),
                [[-3, 3]] * 3,
            ],
            "temperature": POSITIVE,
            "points": [*COUNT, 1],
            "max_draws": COUNT,
            "color": ["no such colour", 1, [], {}, (2.0, 0.0, 0.0), True, b"red"],
            "ax": NO_AXES,
        },
    ),
    "energy": Row(
        mh.plots.energy,
        lambda: RUN_OF_ARRAYS,
        {
            "run": [
                *NO_NUMBERS,
                [],
                np.full(3, np.nan),
                np.full(3, np.inf),
                np.zeros((2, 2, 2)),
                mh.Draws,
            ],
            "partition": [
                1,
                "a",
                [],
                {},
                np.ones(3),
                dict(energy_min=2.0, energy_gap=1.0, partitions=2),
                mh.EnergyPartition,
            ],
            "masses": [*BAD_COUNTS, np.ones((2, 2))],
            "visits": [*BAD_COUNTS, [0, 0], np.ones((2, 2))],
            "axes": NO_MANY_AXES,
        },
        also={
            "partition": {"masses", "visits"},
            "masses": {"visits"},
            "visits": {"masses"},
        },
    ),
    "energy of an optimizer": Row(
        mh.plots.energy,
        lambda: dict(run=[4.0, 2.5], optimizer=None),
        {
            "optimizer": [
                1,
                "CSGLD",
                mh.CSGLD,
                mh.SGLD(0.1, train_size=4),
                make("CSGLD", train_size=4),
            ]
        },
    ),
    "inclusion": Row(
        mh.plots.inclusion,
        lambda: dict(probabilities=sparse_model().optimizer),
        {
            "probabilities": [
                None,
                1,
                "a",
                [],
                {},
                np.ones(3),
                {"a": None},
                {"a": "b"},
                {"a": []},
                {"a": [1.5]},
                {"a": [-0.5]},
                {"a": [np.nan, 0.5]},
                {"a": [1j]},
                mh.SGLDSA,
                mh.SGLD(0.1, train_size=4),
                make("SGLDSA", train_size=4),
            ],
            "ax": NO_AXES,
        },
    ),
    **{
        function.__name__: Row(
            function,
            lambda: dict(draws=THREE),
            CHAIN_PLOT,
            needs=("matplotlib", "arviz", "pandas"),
        )
        for function in (mh.plots.rank, mh.plots.trace)
    },
    "reliability": Row(
        mh.plots.reliability,
        lambda: dict(probabilities={"a": P4}, labels=Y4, bins=5),
        {
            "probabilities": [
                None,
                1,
                "a",
                [],
                {},
                P4,
                *({"a": p} for p in PROBABILITIES),
            ],
            "labels": LABELS,
            "bins": COUNT,
            "axes": NO_MANY_AXES,
        },
        also={"probabilities": {"labels"}},
    ),
    "robustness": Row(
        mh.plots.robustness,
        lambda: dict(table=mh.adversarial.RobustnessTable([SCORES])),
        {"table": [*ROWS, *MODEL[:4], mh.adversarial.RobustnessTable], "ax": NO_AXES},
    ),
}
PLOTS = {
    f"plots.{name}": row._replace(needs=("matplotlib", *row.needs))
    for name, row in PICTURES.items()
}
