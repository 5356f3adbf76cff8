"""Rows of arguments: the pictures of runs, models and tables."""

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh
from tests.support import kinds
from tests.support.argument_rows import NO_MODELS
from tests.support.argument_rows import row
from tests.support.arguments_of_attacks import FIRST
from tests.support.arguments_of_chains import LABELS
from tests.support.arguments_of_chains import NO_SCALARS
from tests.support.arguments_of_chains import P4
from tests.support.arguments_of_chains import Y4
from tests.support.arguments_of_chains import log_density
from tests.support.arguments_of_models import NO_ROWS
from tests.support.arguments_of_models import NO_SPARSE
from tests.support.arguments_of_models import sparse_model
from tests.support.arguments_of_samplers import OF_CONTOUR
from tests.support.kinds import Kind
from tests.support.kinds import array
from tests.support.kinds import listed

HISTORY = [None, 1, [], {}, {"loss": [1.0]}, {"": 0, 0: 0}, keras.callbacks.History()]
HISTORY += [keras.callbacks.History, np.zeros(3)]
HISTORY += [{"acceptance": [0.5] * 2, "beta": [1]}]
HISTORY += [{"acceptance": x} for x in (None, "abc", np.zeros((2, 2, 2)), [1j])]
TWO = mh.EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=2)
ENTRIES = [None, "b", [], [1.5], [-0.5], [np.nan], [1j]]
NO_INCLUSION = [
    None,
    1,
    "a",
    [],
    {},
    np.ones(3),
    *NO_SPARSE,
    *({"a": v} for v in ENTRIES),
]
SIDES = [((3, -3), (-3, 3)), ((-3, 3), (0, 0))]
PREDICTION = mh.metrics.NormalMixture(np.zeros((2, 4)), 0.5)
IMAGES = np.zeros((2, 4, 3, 3))
IMAGES_OF = dict(
    images=array(IMAGES, "[0, 1]", shapes=[(2, 4, 3), (2, 4, 3, 3, 2)]),
    probabilities=array([P4, P4], "[0, 1]", P4, shapes=[(4, 2)]),
    labels=LABELS,
    epsilons=array([0.0, 0.1], "[0, inf)", 0.1, [], shapes=[1, (1, 2)]),
    title=kinds.TEXT.or_none,
)
NO_RUNS = [[], mh.Draws, np.full(3, np.nan), np.full(3, np.inf), np.zeros((2, 2, 2))]
NO_CONTOURS = [1, "a", mh.CSGLD, mh.SGLD(0.1, train_size=4)]
PLOTS = {
    "acceptance": row(
        dict(history={"acceptance": [0.9, 0.4]}), history=listed(*HISTORY)
    ),
    "predictive": row(
        dict(prediction=PREDICTION, x=np.arange(4.0), y=np.zeros(4)),
        prediction=listed(None, 1, [], {}, np.zeros(4), "a"),
        x=array(np.arange(4.0), "(-inf, inf)", 0.5, shapes=[3, (4, 2), (1, 4)]),
        y=array(np.zeros(4), "(-inf, inf)", 0.5, shapes=[3, (4, 2), (1, 4)]).or_none,
        target=kinds.integer(0, 0),
    ),
    "adversarial_grid": row(
        dict(images=IMAGES, probabilities=[P4, P4], labels=Y4, epsilons=[0.0, 0.1]),
        also={"images": {"epsilons", "probabilities", "labels"}},
        **IMAGES_OF,
    ),
    "contours": row(
        dict(log_density=log_density, draws=np.eye(2), points=5),
        log_density=listed("f", 1, [1], *NO_SCALARS, lambda x: np.nan * ops.sum(x)),
        draws=array(np.eye(2), "(-inf, inf)", 1.0, [], shapes=[2, (3, 3)]).or_none,
        extent=array(
            [[-3.0, 3.0]] * 2, "(-inf, inf)", *SIDES, shapes=[2, (3, 2)]
        ).or_none,
        temperature=kinds.POSITIVE,
        points=kinds.integer(2),
    ),
    "energy": row(
        dict(run=[4.0, 2.5, 3.5]),
        run=Kind(tuple(NO_RUNS), kinds.no_array),
        optimizer=listed(*NO_CONTOURS, mh.CSGLD(0.1, train_size=4, **OF_CONTOUR)),
        partition=listed(1, "a", [], {}, np.ones(3), TWO.get_config(), TWO),
    ),
    "inclusion": row(
        lambda: dict(probabilities=sparse_model().optimizer),
        probabilities=listed(*NO_INCLUSION),
    ),
    "reliability": row(
        dict(probabilities={"a": P4}, labels=Y4),
        probabilities=listed(None, 1, [], {}, P4, {"a": 2 * P4}, {"a": P4[:3]}),
        labels=LABELS,
        also={"probabilities": {"labels"}},
    ),
    "robustness": row(
        dict(table=mh.adversarial.RobustnessTable([FIRST])),
        table=listed(*NO_ROWS, *NO_MODELS, mh.adversarial.RobustnessTable),
    ),
}
TABLE = {f"plots.{name}": made for name, made in PLOTS.items()}
