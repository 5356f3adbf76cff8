"""Rows of arguments: attacks on models, and the tables of attacks."""

import numpy as np

import keras_mhmcmc as mh
from tests.support import kinds
from tests.support.argument_rows import BY_NAME
from tests.support.argument_rows import NO_MODELS
from tests.support.argument_rows import row
from tests.support.arguments_of_chains import LABELS
from tests.support.arguments_of_chains import Y4
from tests.support.arguments_of_models import COMPILED
from tests.support.arguments_of_models import NO_DICTS
from tests.support.arguments_of_models import NO_ROWS
from tests.support.arguments_of_models import OF_MODELS
from tests.support.arguments_of_models import X4
from tests.support.arguments_of_models import classifier
from tests.support.arguments_of_models import ensemble
from tests.support.arguments_of_models import inputs
from tests.support.arguments_of_models import network
from tests.support.kinds import Kind
from tests.support.kinds import array
from tests.support.kinds import choice
from tests.support.kinds import listed
from tests.support.kinds import unshown

CLIPS = [(1.0, 0.0), (0.0, 0.0), 1.0, "01", (0.6, 1.0), (0.0, 0.4)]  # `x` is 0.5
ATTACK = dict(
    x=inputs("[0, 1]"),
    clip=array([0.0, 1.0], "[-inf, inf]", *CLIPS, shapes=[1, 3]).or_none,
)
OF_A_MODEL = {name: BY_NAME[name] for name in ("model", "from_logits", "batch_size")}
OF_PGD = ("steps", "norm", "restarts", "random_start", "keep_strongest", "seed")
PGD = {name: BY_NAME[name] for name in OF_PGD} | dict(
    step_size=kinds.NOT_NEGATIVE.or_none
)
OF_APGD = ("steps", "norm", "restarts", "random_start", "seed")
APGD = {name: BY_NAME[name] for name in OF_APGD} | dict(
    loss=choice("cross_entropy", "margin")
)
SQUARE = dict(queries=kinds.COUNT, initial_share=kinds.UP_TO_ONE, seed=BY_NAME["seed"])
NO_CLIPS = [(1.0, 0.0), (0.0, 0.0), 1.0, "01", [np.nan, 1.0]]
TRAINING = row(
    lambda: dict(model=network(), epsilon=0.1),
    model=Kind((*NO_MODELS[:4], ensemble(), mh.ParallelChains(network(), 2))),
    epsilon=kinds.NOT_NEGATIVE,
    step_size=kinds.NOT_NEGATIVE.or_none,
    random_start=kinds.STRICT_FLAG.or_none,
    clip=array([0.0, 1.0], "[-inf, inf]", *NO_CLIPS, shapes=[1, 3]).or_none,
)
SHAPES = [(4,), "3", 3, {}, [None]]
OF_LIBRARIES = dict(
    model=BY_NAME["model"],
    input_shape=listed(*SHAPES),
    from_logits=BY_NAME["from_logits"],
)
LIBRARIES = {
    "adversarial.art_classifier": row(
        lambda: dict(model=network()),
        clip=array([0.0, 1.0], "[-inf, inf]", *NO_CLIPS, shapes=[1, 3]).or_none,
        # Outputs at large inputs may be NaN, and inputs of another shape are refused.
        also={"clip": {"model"}, "input_shape": {"x"}},
        **OF_LIBRARIES,
    ),
    "adversarial.art_classifier of a Classifier": row(
        lambda: dict(model=classifier()),
        from_logits=COMPILED["from_logits"],
        batch_size=COMPILED["batch_size"],
    ),
}
NO_ATTACKS = [
    *("FGSM", "cw", None, 1, [], {}, np.array(["fgsm"])),
    lambda model, x, epsilon, y, clip: None,
    lambda model, x, epsilon, y, clip: x[:, :2],
    lambda model, x, epsilon, y, clip: x * np.nan,
    lambda model, x, epsilon, y, clip: x.astype("complex64"),
]
STRONGEST = dict(
    y=LABELS,
    seed=BY_NAME["seed"],
    attacks=listed("pgd", (), ["strongest"], *([attack] for attack in NO_ATTACKS)),
)


def attacks():
    """Rows of an attack: on a compiled model, on a model, and on members."""
    attack = dict(x=X4, epsilon=0.1, y=Y4)
    for name, good, own in (
        ("fgsm", {}, {}),
        ("pgd", {"steps": 2}, PGD),
        ("apgd", {"steps": 2}, APGD),
        ("square", {"queries": 3}, SQUARE),
        ("strongest", {"attacks": ["fgsm", "pgd"]}, STRONGEST),
    ):
        good = attack | good
        yield (
            name,
            row(
                lambda good=good: good | dict(model=classifier()),
                epsilon=kinds.NOT_NEGATIVE,
                also={"x": {"y"}},
                **{"y": LABELS.or_none} | ATTACK | COMPILED | own,
            ),
        )
        on_model = lambda good=good: good | dict(model=network())
        yield f"{name} of a model", row(on_model, **OF_A_MODEL)
        on_member = lambda good=good: good | dict(model=ensemble(), member=0)
        yield f"{name} of members", row(on_member, member=kinds.integer(0, 1).or_none)


FIRST = {"model": "a", "epsilon": 0.0, "accuracy": 0.5, "nll": 0.1, "entropy": 0.1}
NO_TABLES = [[FIRST, {"model": "b"}], [FIRST | {"epsilon": "a"}]]
NO_TABLES += [[FIRST, FIRST | {"model": "b", "epsilon": 0.5}]]
ABSTAIN = (kinds.OPEN_SHARE | [1.5]).or_none
PAIR = {"source": "a", "target": "b", "accuracy": 0.5, "nll": 0.1}
PAIR |= {"clean_accuracy": 0.9}
TRANSFER = dict(x=X4, y=Y4, epsilon=0.1)
CURVE = dict(x=X4, y=Y4, epsilons=[0.0, 0.1])
TABLE = {
    **{f"adversarial.{name}": made for name, made in attacks()},
    "adversarial.training": TRAINING,
    **LIBRARIES,
    "adversarial.robustness_curve": row(
        lambda: CURVE | dict(models={"a": classifier()}),
        y=LABELS,
        models=listed(*NO_DICTS),
        epsilons=array([0.0, 0.1], "[0, inf)", 0.1, [], [True], shapes=[(1, 2)]),
        attack=listed(*NO_ATTACKS),
        abstain_below=ABSTAIN,
        verbose=choice(0, 1, 2),
        steps=unshown(1, "1"),  # without attack="pgd"
        also={"x": {"y"}},
        **ATTACK | COMPILED,
    ),
    "adversarial.robustness_curve of models": row(
        lambda: CURVE | dict(models={"a": network()}), **OF_MODELS
    ),
    "adversarial.robustness_curve by PGD": row(
        lambda: CURVE | dict(models={"a": classifier()}, attack="pgd", steps=2),
        queries=unshown(2),
        epsilon=unshown(0.1),
        **PGD,
    ),
    "adversarial.robustness_curve by Square": row(
        lambda: CURVE | dict(models={"a": classifier()}, attack="square", queries=3),
        steps=unshown(2),
        **SQUARE,
    ),
    "adversarial.transfer": row(
        lambda: (
            TRANSFER
            | dict(sources={"a": classifier()}, targets={"b": classifier()}, steps=2)
        ),
        y=LABELS,
        epsilon=kinds.NOT_NEGATIVE,
        sources=listed(*NO_DICTS),
        targets=listed(*NO_DICTS),
        attack=listed(*NO_ATTACKS),
        queries=unshown(1, "1"),  # without attack="square"
        also={"x": {"y"}, "attack": {"steps"}},
        **ATTACK | {k: COMPILED[k] for k in ("from_logits", "batch_size")},
    ),
    "adversarial.transfer of models": row(
        lambda: TRANSFER | dict(sources={"a": network()}, targets={"b": network()}),
        **{k: OF_MODELS[k] for k in ("from_logits", "batch_size")},
    ),
    "adversarial.TransferTable": row(
        dict(rows=[PAIR]),
        rows=listed(*NO_ROWS, [PAIR, PAIR], [PAIR | {"nll": "a"}], [FIRST]),
        attack=kinds.TEXT,
        caption=kinds.TEXT,
    ),
    "adversarial.TransferTable.matrix": row(
        dict(self=mh.adversarial.TransferTable([PAIR]), name="nll"),
        name=choice("accuracy", "nll", "clean_accuracy"),
    ),
    "adversarial.RobustnessTable": row(
        dict(rows=[FIRST]),
        rows=listed(*NO_ROWS, *NO_TABLES),
        attack=kinds.TEXT,
        caption=kinds.TEXT,
        abstain_below=ABSTAIN,
        warnings=listed("a warning", [1], [None]),
        also={"abstain_below": {"rows"}},
    ),
    "adversarial.RobustnessTable.column": row(
        dict(self=mh.adversarial.RobustnessTable([FIRST]), model="a", name="nll"),
        model=choice("a"),
        name=choice(*FIRST),
    ),
}
