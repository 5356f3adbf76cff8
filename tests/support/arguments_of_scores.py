"""Rows of arguments: predictive distributions and their scores."""

import functools

import keras
import numpy as np

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.tables import RegressionTable
from tests.support import kinds
from tests.support.argument_rows import row
from tests.support.arguments_of_chains import WEIGHTS
from tests.support.arguments_of_models import NO_ROWS
from tests.support.arguments_of_models import inputs
from tests.support.kinds import array
from tests.support.kinds import choice
from tests.support.kinds import listed

MEANS = np.array([[0.0, 0.5, 1.0, 1.5], [0.5, 0.0, 1.5, 1.0]])
TARGETS = np.array([0.1, 0.4, 1.2, 1.1])
X4 = np.full((4, 3), 0.5)


@functools.cache
def line():
    """A built model from inputs of shape (3,) to one mean."""
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])


def mixture():
    return mh.metrics.NormalMixture(MEANS, 0.5, [1.0, 2.0])


NOT_FINITE = [1e300 * np.ones(4), np.full(4, np.inf)]
Y = array(TARGETS, "(-inf, inf)", *NOT_FINITE, 0.5, shapes=[3, (4, 2), (1, 4)])
SAMPLES = array(MEANS, "(-inf, inf)", 0.5, 1e300 * MEANS, shapes=[4, (2, 2, 2, 1)])
LEVELS = array([0.5, 0.9], "(0, 1)", 0.5, shapes=[(1, 2)])
STDS = array(0.5 * np.ones(4), "(0, inf)", shapes=[3, (4, 2)], empty=True)
NOISES = kinds.POSITIVE | [{}, {"b": 0.5}, {"a": 0.0}, {"a": None}]
NOISES = NOISES.but(lambda value: value is None or value == {"a": 1})
METHODS = {
    **dict.fromkeys(("rmse", "nll", "crps", "cdf", "calibration_error"), {"y": Y}),
    "coverage": {"y": Y},
    "calibration": {"y": Y, "levels": LEVELS},
    "quantile": {},
    "interval": {},
}
GOOD = {"y": TARGETS, "levels": [0.5, 0.9], "probability": 0.2}


def of_method(name, own):
    """A row of a method of a mixture."""
    good = {key: GOOD[key] for key in own}
    if name == "quantile":
        good["probability"] = 0.2
    return row(lambda: dict(self=mixture()) | good, **own)


REGRESSED = {k: 0.5 for k in RegressionTable._heads} | {"model": "a", "members": 1}
REGRESSIONS = {
    "metrics.NormalMixture": row(
        dict(means=MEANS, noise_std=0.5, weights=[1.0, 2.0]),
        means=SAMPLES,
        weights=(WEIGHTS | [[1e308, 1e308]]).or_none,
        also={"means": {"weights"}},
    ),
    **{f"metrics.NormalMixture.{k}": of_method(k, own) for k, own in METHODS.items()},
    "metrics.crps_normal": row(
        dict(mean=MEANS[0], std=np.full(4, 0.5), y=TARGETS),
        mean=array(MEANS[0], "(-inf, inf)", *NOT_FINITE, 0.5, shapes=[3, (2, 2, 1)]),
        std=STDS,
        y=Y,
        also={"mean": {"std", "y"}},
    ),
    "metrics.crps_samples": row(
        dict(samples=MEANS, y=TARGETS, weights=[1.0, 2.0]),
        samples=SAMPLES,
        y=Y,
        weights=(WEIGHTS | [[1e308, 1e308]]).or_none,
        also={"samples": {"y", "weights"}},
    ),
    "plots.interval_calibration": row(
        lambda: dict(predictions={"a": mixture()}, y=TARGETS),
        predictions=listed(None, 1, [], {}, MEANS, {"a": MEANS}, {"a": None}),
        y=Y,
    ),
    "predict_distribution": row(
        lambda: dict(model=line(), x=X4, noise_std=0.5),
        x=inputs("(-inf, inf)"),
        noise_std=kinds.POSITIVE,  # None is refused: the model has no loss
    ),
    "evaluate of a regression": row(
        lambda: dict(models={"a": line()}, x=X4, y=TARGETS, noise_std=0.5),
        y=Y,
        noise_std=NOISES,
        ood=kinds.unshown(X4, {"a": X4}, 1, "a"),
        also={"y": {"models"}},
    ),
    "evaluation.RegressionTable": row(
        dict(rows=[REGRESSED]),
        rows=listed(*NO_ROWS, [REGRESSED, {"model": "b"}]),
        call=RegressionTable,
    ),
    "evaluation.RegressionTable.column": row(
        dict(self=RegressionTable([REGRESSED]), name="crps"),
        name=choice(*REGRESSED),
        call=RegressionTable.column,
    ),
}
TABLE = REGRESSIONS
