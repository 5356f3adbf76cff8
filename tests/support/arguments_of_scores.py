"""Rows of arguments: predictive distributions and their scores."""

import functools

import keras
import numpy as np

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.calibrated import ConformalIntervals
from keras_mhmcmc.evaluation.calibrated import ConformalSets
from keras_mhmcmc.evaluation.evaluate import EvaluationTable
from keras_mhmcmc.evaluation.evaluate import RegressionTable
from tests.support import kinds
from tests.support.argument_rows import row
from tests.support.arguments_of_chains import LABELS
from tests.support.arguments_of_chains import WEIGHTS
from tests.support.arguments_of_chains import Y4
from tests.support.arguments_of_models import COMPILED
from tests.support.arguments_of_models import INPUTS
from tests.support.arguments_of_models import NO_DICTS
from tests.support.arguments_of_models import NO_ROWS
from tests.support.arguments_of_models import OF_MODELS
from tests.support.arguments_of_models import X4
from tests.support.arguments_of_models import classifier
from tests.support.arguments_of_models import network
from tests.support.kinds import array
from tests.support.kinds import choice
from tests.support.kinds import listed

MEANS = np.array([[0.0, 0.5, 1.0, 1.5], [0.5, 0.0, 1.5, 1.0]])
TARGETS = np.array([0.1, 0.4, 1.2, 1.1])


@functools.cache
def line():
    """A built model from inputs of shape (3,) to one mean."""
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])


@functools.cache
def slope():
    """A classifier that is right for most of `X9`, not for all."""
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, activation="softmax")]
    )
    model.set_weights([np.array([[-1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), np.zeros(2)])
    return model


def mixture():
    return mh.metrics.NormalMixture(MEANS, 0.5, [1.0, 2.0])


NOT_FINITE = [1e300 * np.ones(4), np.full(4, np.inf)]
Y = array(TARGETS, "(-inf, inf)", *NOT_FINITE, 0.5, shapes=[3, (4, 2), (1, 4)])
SAMPLES = array(MEANS, "(-inf, inf)", 0.5, 1e300 * MEANS, shapes=[4, (2, 2, 2, 1)])
LEVELS = array([0.5, 0.9], "(0, 1)", 0.5, shapes=[(1, 2)])
NOISES = kinds.POSITIVE | [{}, {"b": 0.5}, {"a": 0.0}, {"a": None}]
NOISES = NOISES.but(lambda value: value is None or value == {"a": 1})
SCORES = ("rmse", "nll", "crps", "cdf", "log_prob", "calibration_error")
METHODS = {
    **dict.fromkeys(SCORES, {"y": Y}),
    "coverage": {"y": Y},
    "calibration": {"y": Y, "levels": LEVELS},
    "quantile": {"q": kinds.OPEN_SHARE},
    "sample": {"n": kinds.COUNT},
    "interval": {},
}
GOOD = {"y": TARGETS, "levels": [0.5, 0.9], "q": 0.2, "n": 3}


def of_method(name, own):
    """A row of a method of a mixture."""
    good = {key: GOOD[key] for key in own}
    return row(lambda: dict(self=mixture()) | good, **own)


LIKELIHOODS = listed(
    "mse", 1, [], mh.losses.GaussianNLL, keras.losses.MeanSquaredError()
)
REGRESSED = {k: 0.5 for k in RegressionTable._heads} | {"model": "a", "members": 1}
REGRESSIONS = {
    "metrics.NormalMixture": row(
        dict(means=MEANS, noise_std=0.5, weights=[1.0, 2.0]),
        means=SAMPLES,
        weights=(WEIGHTS | [[1e308, 1e308]]).or_none,
        also={"means": {"weights"}},
    ),
    **{
        f"metrics.PredictiveMixture.{k}": of_method(k, own)
        for k, own in METHODS.items()
    },
    "metrics.PredictiveMixture": row(
        lambda: dict(law=mixture().law, weights=[1.0, 2.0]),
        weights=(WEIGHTS | [[1e308, 1e308]]).or_none,
    ),
    "predict_distribution": row(
        lambda: dict(model=line(), x=X4, noise_std=0.5),
        x=INPUTS,
        noise_std=kinds.POSITIVE,  # None is refused: the model has no loss
        likelihood=LIKELIHOODS,
        also={"likelihood": {"noise_std"}},
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
QUALITY = {k: 0.5 for k in EvaluationTable._heads}
QUALITY |= {"model": "a", "members": 1, "mutual_information": np.nan}
EVALUATIONS = {
    "evaluate": row(
        lambda: dict(models={"a": classifier()}, x=X4, y=Y4),
        x=INPUTS,
        y=LABELS,
        models=listed(*NO_DICTS),
        ood=(INPUTS | [{"a": None}, {"a": np.ones((4, 2))}, {"a": []}]).or_none,
        verbose=choice(0, 1),
        noise_std=listed(0.0, -1.0, np.nan, "0.5", [0.5], {}, True),
        from_logits=COMPILED["from_logits"],
        batch_size=COMPILED["batch_size"],
        also={"x": {"y"}, "noise_std": {"y"}},
    ),
    "evaluate of models": row(
        lambda: dict(models={"a": network()}, x=X4, y=Y4), **OF_MODELS
    ),
    "evaluation.EvaluationTable": row(
        dict(rows=[QUALITY]),
        rows=listed(*NO_ROWS, [QUALITY, {"model": "b"}]),
        call=EvaluationTable,
    ),
    "evaluation.EvaluationTable.column": row(
        dict(self=EvaluationTable([QUALITY]), name="accuracy"),
        name=choice(*QUALITY),
        call=EvaluationTable.column,
    ),
}
X9, Y9 = np.random.default_rng(0).normal(size=(9, 3)), np.arange(9) % 2
X9[:, 0] = np.where(Y9 == 1, 1.0, -1.0)
X9[0, 0] = 0.5
X9_KIND = array(X9, "(-inf, inf)", [], 0.5, 1e300 * X9, shapes=[(9, 2), (9, 3, 3), 9])
LABELS9 = array(Y9, "[0, 1]", np.ones((9, 2)), 0, shapes=[3, (9, 3)], planted=[0.5])
TARGETS9 = array(Y9, "(-inf, inf)", 0.5, shapes=[3, (9, 2), (1, 9)])
CLASSES = dict(x=X9_KIND, y=LABELS9)
CALIBRATION = [
    row(
        lambda: dict(model=network(), x=X9, y=Y9, level=0.5),
        also={"x": {"y"}, "level": {"x"}},
        **CLASSES,
    ),
    row(
        lambda: dict(model=line(), x=X9, y=Y9, level=0.5, likelihood=None),
        method=choice("absolute", "normalised", "quantile"),
        likelihood=LIKELIHOODS,
        x=X9_KIND,
        y=TARGETS9,
        also={"x": {"y"}, "level": {"x"}},
    ),
]
CALIBRATED = {
    "conformal_sets": CALIBRATION[0],
    "conformal_intervals": CALIBRATION[1],
    "evaluation.ConformalSets.predict": row(
        lambda: dict(self=mh.conformal_sets(network(), X9, Y9), x=X9),
        x=X9_KIND,
        call=ConformalSets.predict,
    ),
    "evaluation.ConformalIntervals.predict": row(
        lambda: dict(self=mh.conformal_intervals(line(), X9, Y9), x=X9),
        x=X9_KIND,
        call=ConformalIntervals.predict,
    ),
    "temperature_scaling": row(
        lambda: dict(model=slope(), x=X9, y=Y9),
        also={"x": {"y"}, "y": {"x"}},
        **CLASSES,
    ),
    "TemperatureScaled": row(
        lambda: dict(model=network(), temperature=2.0),
        temperature=kinds.POSITIVE,
    ),
    "Classifier.logits": row(lambda: dict(self=classifier(), x=X4), x=INPUTS),
    "Classifier.output_arrays": row(lambda: dict(self=classifier(), x=X4), x=INPUTS),
}
TABLE = REGRESSIONS | EVALUATIONS | CALIBRATED
