"""Rows of arguments: corrupted images, and scores of models on them."""

import numpy as np

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.shift import CORRUPTIONS
from keras_mhmcmc.evaluation.shift import ShiftTable
from tests.support import kinds
from tests.support.argument_rows import row
from tests.support.arguments_of_chains import LABELS
from tests.support.arguments_of_chains import Y4
from tests.support.arguments_of_models import COMPILED
from tests.support.arguments_of_models import NO_DICTS
from tests.support.arguments_of_models import NO_ROWS
from tests.support.arguments_of_models import OF_MODELS
from tests.support.arguments_of_models import X4
from tests.support.arguments_of_models import classifier
from tests.support.arguments_of_models import network
from tests.support.kinds import array
from tests.support.kinds import choice
from tests.support.kinds import listed
from tests.support.kinds import unshown

IMAGES = np.full((2, 3, 3), 0.5)
NO_IMAGES = [np.full((2, 9), 0.5), np.full((2, 1, 3, 3, 1), 0.5), np.float64(0.5)]
NO_CLIPS = [(1.0, 0.0), (0.0, 0.0), 1.0, "01", (0.6, 1.0), (0.0, 0.4), None, (0, 1, 2)]
NO_CLIPS += [(0.0, np.inf), (np.nan, 1.0), {0.0, 1.0}]
NO_CORRUPTIONS = ["blur", [], {}, ["fog"], [None], {"a": None}, {"a": {}}, 1]
NO_CORRUPTIONS += [{"a": lambda x, severity: x[:, :1]}, {"a": lambda x, severity: "a"}]
CASE = {"model": "a", "corruption": "blur", "severity": 1}
CASE |= {"accuracy": 0.5, "nll": 0.1, "ece": 0.1}
FLAT = dict(x=X4, y=Y4, corruptions=["contrast"], severities=[1], image_shape=(1, 3))
TABLE = {
    "corrupt": row(
        dict(x=IMAGES, corruption="blur", severity=1),
        x=array(IMAGES, "[0, 1]", *NO_IMAGES),
        corruption=choice(*CORRUPTIONS),
        severity=kinds.integer(1, 5),
        clip=listed(*NO_CLIPS),
        also={"clip": {"x"}},
    ),
    "evaluate_shift": row(
        lambda: FLAT | dict(models={"a": classifier()}),
        x=array(X4, "[0, 1]"),
        y=LABELS,
        models=listed(*NO_DICTS),
        corruptions=listed(*NO_CORRUPTIONS),
        severities=listed(None, 1, "1", [], [0], [1.5], [2, 1], [1, 1], [6], [None]),
        image_shape=listed(3, (3,), (2, 2), (1, 3, 2), "13", (0, 3), (1.0, 3)),
        clip=listed(*NO_CLIPS),
        from_logits=COMPILED["from_logits"],
        batch_size=COMPILED["batch_size"],
        also={"x": {"y", "image_shape"}, "clip": {"x"}, "severities": {"severity"}},
    ),
    "evaluate_shift of models": row(
        lambda: FLAT | dict(models={"a": network()}), **OF_MODELS
    ),
    "evaluation.ShiftTable": row(
        dict(rows=[CASE]),
        rows=listed(*NO_ROWS, [CASE, {"model": "b"}], [CASE | {"nll": "a"}]),
        call=ShiftTable,
    ),
    "evaluation.ShiftTable.column": row(
        dict(self=ShiftTable([CASE]), model="a", name="nll"),
        model=choice("a"),
        name=choice("severity", "accuracy", "nll", "ece"),
        corruption=choice("blur").or_none,
        call=ShiftTable.column,
    ),
    "plots.shift": row(
        dict(table=ShiftTable([CASE])),
        table=listed(None, [CASE], {}, ShiftTable, "table"),
        axes=unshown(1, "ax", [1, 2, 3], np.ones(3)),
        call=mh.plots.shift,
    ),
}
