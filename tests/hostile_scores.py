"""Rows of hostile input: attacks on models, and tables of their scores."""

import numpy as np
from hostile_models import Normalisation
from hostile_models import finite
from hostile_models import without_none
from hostile_tools import COUNT
from hostile_tools import INPUTS
from hostile_tools import INTEGER
from hostile_tools import LABELS
from hostile_tools import MODEL
from hostile_tools import NOT_NEGATIVE
from hostile_tools import OPEN_SHARE
from hostile_tools import SEED
from hostile_tools import STRICT_FLAG
from hostile_tools import TEXT
from hostile_tools import X4
from hostile_tools import Y4
from hostile_tools import Row
from hostile_tools import classifier
from hostile_tools import ensemble
from hostile_tools import network

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.evaluate import EvaluationTable

CLIP = [1.0, "01", "0", (0.0,), (0.0, 0.5, 1.0), (1.0, 0.0), (0.0, 0.0), [[0.0, 1.0]]]
CLIP += [
    (np.nan, 1.0),
    ("0", "1"),
    (None, 1.0),
    {},
    (0.6, 1.0),
    (0.0, 0.4),
    (0j, 1),
    [],
]
MODELS_OF_NAMES = [*MODEL, [], {}, {"a": None}, {"a": Normalisation()}, [network()]]
MODELS_OF_NAMES += [{"a": model} for model in MODEL]
EPSILONS = [None, 0.1, [], "0.1", {}, {"a": 1}, [[0.1]], ["0.1"], [None], [True]]
EPSILONS += [[-0.1], [0.1, np.nan], [np.inf], [10**400], {0.1}, np.array([1j]), [1j]]
FROM_LOGITS = [
    *(v for v in STRICT_FLAG if not isinstance(v, dict)),
    {"b": True},
    {"a": 1},
    {},
]
OF_A_CLASSIFIER = ["yes", None, True, 1, {}, np.ones(2)]
ATTACK = {"x": INPUTS, "y": without_none(LABELS), "clip": CLIP, "epsilon": NOT_NEGATIVE}
PGD = {
    "steps": COUNT,
    "step_size": without_none(NOT_NEGATIVE),
    "random_start": STRICT_FLAG,
    "keep_strongest": STRICT_FLAG,
    "seed": SEED,
}
SCORES = {"model": "a", "epsilon": 0.0, "accuracy": 0.5, "nll": 0.1, "entropy": 0.1}
QUALITY = {k: 0.5 for k in ("accuracy", "nll", "brier", "ece", "entropy")}
QUALITY |= {"model": "a", "members": 1, "mutual_information": np.nan}
ROWS = [None, 1, "a", [], {}, [1], [{}], [None], [{"model": "a"}], np.ones((2, 2))]


def scores(result):
    for row in result.rows:
        assert all(np.isfinite(v) for k, v in row.items() if k in ("accuracy", "nll"))


def attack(name, options):
    """Rows of an attack: with a compiled model, with a model, and with members."""
    function = getattr(mh.adversarial, name)
    good = dict(x=X4, epsilon=0.1, y=Y4, clip=(0.0, 1.0))
    if options:
        good |= dict(steps=2)
    yield (
        f"adversarial.{name}",
        Row(
            function,
            lambda: good | dict(model=classifier()),
            ATTACK
            | options
            | {"member": [0, *without_none(INTEGER)]}
            | {"from_logits": OF_A_CLASSIFIER, "batch_size": [1, "1", None, np.nan]},
            finite,
            also={"x": {"y"}},
        ),
    )
    yield (
        f"adversarial.{name} of a model",
        Row(
            function,
            lambda: good | dict(model=network()),
            {"model": MODEL, "from_logits": STRICT_FLAG, "batch_size": COUNT},
        ),
    )
    yield (
        f"adversarial.{name} of members",
        Row(
            function,
            lambda: good | dict(model=ensemble(), member=0),
            {"member": [2, 10**6, *without_none(INTEGER)]},
        ),
    )


SCORED = {
    **dict(attack("fgsm", {})),
    **dict(attack("pgd", PGD)),
    "adversarial.robustness_curve": Row(
        mh.adversarial.robustness_curve,
        lambda: dict(models={"a": classifier()}, x=X4, y=Y4, epsilons=[0.0, 0.1]),
        {
            "x": INPUTS,
            "y": LABELS,
            "clip": CLIP,
            "epsilons": EPSILONS,
            "attack": [
                "FGSM",
                "cw",
                None,
                1,
                [],
                {},
                np.array(["fgsm", "pgd"]),
                lambda model, x, epsilon, y, clip: None,
                lambda model, x, epsilon, y, clip: "x",
                lambda model, x, epsilon, y, clip: x[:2],
                lambda model, x, epsilon, y, clip: x[:, :2],
                lambda model, x, epsilon, y, clip: x * np.nan,
                lambda model, x, epsilon, y, clip: x.astype("complex64"),
            ],
            "true_label": STRICT_FLAG,
            "member": [0, *without_none(INTEGER)],
            "abstain_below": [*without_none(OPEN_SHARE), 1.5],
            "verbose": ["1", None, [1], 3, -1, 0.5, np.array([0, 1])],
            "steps": [1, "1"],  # without attack="pgd"
        },
        scores,
        also={"x": {"y"}},
    ),
    "adversarial.robustness_curve of models": Row(
        mh.adversarial.robustness_curve,
        lambda: dict(models={"a": network()}, x=X4, y=Y4, epsilons=[0.1]),
        {
            "models": MODELS_OF_NAMES,
            "from_logits": FROM_LOGITS,
            "batch_size": COUNT,
        },
    ),
    "adversarial.robustness_curve by PGD": Row(
        mh.adversarial.robustness_curve,
        lambda: dict(
            models={"a": classifier()},
            x=X4,
            y=Y4,
            epsilons=[0.1],
            attack="pgd",
            steps=2,
        ),
        PGD | {"restarts": [2], "epsilon": [0.1]},
    ),
    "adversarial.RobustnessTable": Row(
        mh.adversarial.RobustnessTable,
        lambda: dict(rows=[SCORES]),
        {
            "rows": [
                *ROWS,
                [SCORES, {"model": "b"}],
                [SCORES, SCORES | {"model": "b", "epsilon": 0.5}],
                [SCORES | {"epsilon": "a"}],
            ],
            "attack": [1, None, [], {}, True],
            "caption": [1, None, [], {}, True],
            "abstain_below": [*without_none(OPEN_SHARE), 1.5],
        },
        repr,
        also={"abstain_below": {"rows"}},
    ),
    "adversarial.RobustnessTable.column": Row(
        mh.adversarial.RobustnessTable([SCORES]).column,
        lambda: dict(model="a", name="accuracy"),
        {"model": [*TEXT, "b"], "name": [*TEXT, "loss"]},
    ),
    "evaluate": Row(
        mh.evaluate,
        lambda: dict(models={"a": classifier()}, x=X4, y=Y4),
        {
            "x": INPUTS,
            "y": LABELS,
            "ood": [
                *without_none(v for v in INPUTS if not isinstance(v, dict)),
                {"a": "b"},
                {"a": None},
                {"a": np.ones((4, 2))},
                {"a": np.full((4, 3), np.nan)},
                {"a": []},
            ],
            "bins": COUNT,
            "verbose": ["1", None, [1], 2, -1, 0.5],
        },
        scores,
        also={"x": {"y"}},
    ),
    "evaluate of models": Row(
        mh.evaluate,
        lambda: dict(models={"a": network()}, x=X4, y=Y4),
        {
            "models": MODELS_OF_NAMES,
            "from_logits": FROM_LOGITS,
            "batch_size": COUNT,
        },
    ),
    "evaluation.EvaluationTable": Row(
        EvaluationTable,
        lambda: dict(rows=[QUALITY]),
        {"rows": [*ROWS, [QUALITY, {"model": "b"}]]},
        repr,
    ),
    "evaluation.EvaluationTable.column": Row(
        EvaluationTable([QUALITY]).column,
        lambda: dict(name="accuracy"),
        {"name": [*TEXT, "loss"]},
    ),
}
