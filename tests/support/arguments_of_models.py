"""Rows of arguments: what takes trained models, their attacks and tables."""

import functools

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.tables import EvaluationTable
from tests.support import kinds
from tests.support.argument_rows import BY_NAME
from tests.support.argument_rows import MODEL
from tests.support.argument_rows import NO_MODELS
from tests.support.argument_rows import row
from tests.support.arguments_of_chains import LABELS
from tests.support.arguments_of_chains import WEIGHTS
from tests.support.arguments_of_chains import Y4
from tests.support.arguments_of_samplers import OF_SPARSE
from tests.support.kinds import Kind
from tests.support.kinds import array
from tests.support.kinds import choice
from tests.support.kinds import instance
from tests.support.kinds import listed
from tests.support.kinds import number
from tests.support.kinds import unshown

X4 = np.full((4, 3), 0.5)
Dropout = functools.partial(keras.layers.Dropout, 0.5)
Normalisation = keras.layers.BatchNormalization


@functools.cache
def network(*layers):
    """A built model from inputs of shape (3,) to two probabilities."""
    head = keras.layers.Dense(2, activation="softmax")
    return keras.Sequential([keras.Input((3,)), *(make() for make in layers), head])


@functools.cache
def compiled_network():
    model = network()
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


@functools.cache
def classifier():
    """Compiled once for all tests."""
    return mh.Classifier(network())


@functools.cache
def ensemble(*layers):
    """Two members that are not the same."""
    model = network(*layers)
    made = mh.Ensemble(model, 2)
    values = [ops.convert_to_numpy(weight) for weight in model.weights]
    made.set_members([np.stack([v, v + 0.5]) for v in values], [1.0, 1.0])
    return made


def sparse_sampler():
    return mh.SGLDSA(0.01, train_size=4, seed=0, **OF_SPARSE)


@functools.cache
def sparse_model():
    """A model that a spike-and-slab sampler trained for a step."""
    model = network(Dropout)
    model.compile(sparse_sampler(), "sparse_categorical_crossentropy")
    model.fit(X4, Y4, verbose=0)
    return model


@functools.cache
def swag():
    """The moments of three states of `network()`."""
    model = network()
    model.compile("sgd", "sparse_categorical_crossentropy")
    made = mh.SWAG()
    model.fit(X4, Y4, epochs=3, verbose=0, callbacks=[made])
    return made


@functools.cache
def chains():
    """Two trained networks."""
    made = mh.ParallelChains(network(), 2, seed=0)
    made.compile("sgd", "sparse_categorical_crossentropy")
    made.fit(X4, Y4, verbose=0)
    return made


# Models.


def inputs(interval):
    return array(X4, interval, [], 0.5, 1e300 * X4, shapes=[(4, 2), (4, 3, 3), 4])


INPUTS = inputs("(-inf, inf)")
ACTIVATION = Kind(("softmaxx", 1, [], {}, True, b"softmax"), kinds.odd).but(callable)
STACKED = [np.ones((2, 3, 2)), np.ones((2, 2))]
NO_STACKS = [STACKED[:1], [*STACKED, np.ones(2)], [np.ones((3, 3, 2)), np.ones((3, 2))]]
NO_STACKS += [[STACKED[0], np.ones((2, 3))], [None, None], None, 1, [], "ab"]
NO_STACKS += [[f * STACKED[0], STACKED[1]] for f in (np.nan, 1j)]
NO_SHARED = [None, 1, "ab", [-1], [2], [0, 1], [0.5], ["0"], {"a": 1}, [True]]
NO_SETS = [None, "a", [], {}, 0.5, {"a": np.ones((4, 3)), "b": np.ones((3, 3))}]
REFUSED = [("clipnorm", 1.0), ("global_clipnorm", 1.0), ("use_ema", True)]
REFUSED += [("gradient_accumulation_steps", 2)]
NO_OPTIMIZERS = [keras.optimizers.SGD(**{option: value}) for option, value in REFUSED]
NO_OPTIMIZERS += [keras.optimizers.Adafactor(), "sgdd", 1, [], True, mh.SGLD]
NO_STARTS = [network(), "a.keras", 1, True, {}, [], [network()], [1, 2], ["a", "b"]]
NO_STARTS += [["no such file.keras"] * 2, [network(), network(Normalisation)]]
NO_STARTS += [[network(), NO_MODELS[-1]], np.zeros((2, 3))]
NO_FOLDERS = ["no such folder", __file__, "", 1, None, True, b"folder", {}, {"a": 1}]
NO_FOLDERS += [[], (), [None], [1], [["folder"]], ["no such folder"], range(2), 0.5]
NO_SPARSE = [mh.SGLDSA, keras.optimizers.SGD(), mh.SGLD(0.1, train_size=4), "SGLDSA"]
NO_SPARSE += [sparse_sampler()]  # which has no latent variables yet
MODELS = {
    "Classifier": row(lambda: dict(model=network())),
    "Classifier.probabilities": row(lambda: dict(self=classifier(), x=X4), x=INPUTS),
    "Classifier.redrawn": row(lambda: dict(self=classifier(), x=X4), x=INPUTS),
    "Classifier.probabilities_and_information": row(
        lambda: dict(self=classifier(), x=X4), x=INPUTS
    ),
    "Ensemble": row(
        lambda: dict(member=network(), num_members=2),
        member=MODEL,
        activation=ACTIVATION.or_none,
        shared=listed(*NO_SHARED),
    ),
    "Ensemble.set_members": row(
        lambda: dict(
            self=mh.Ensemble(network(), 2), stacked=STACKED, weights=[1.0, 1.0]
        ),
        stacked=listed(*NO_STACKS),
        weights=WEIGHTS,
    ),
    "Ensemble.recalibrate": row(
        lambda: dict(self=ensemble(Normalisation), x=X4),
        x=array(X4, "(-inf, inf)", *NO_SETS),
    ),
    "Ensemble.recalibrate without normalisation": row(
        lambda: dict(self=None, x=X4),
        self=listed(ensemble(), ensemble(Dropout)),
        also={"self": {"member"}},
    ),
    "MCDropout": row(
        lambda: dict(model=network(Dropout), samples=2),
        model=MODEL | [network(), network(Normalisation), ensemble()],
        activation=ACTIVATION.or_none,
    ),
    "BarkerChain": row(
        lambda: dict(model=network()), model=Kind((*NO_MODELS[:4], ensemble()))
    ),
    "BarkerChain.compile": row(
        lambda: dict(
            self=mh.BarkerChain(network()), optimizer=mh.Barker(1, train_size=9)
        ),
        optimizer=listed("sgd", None, 1, mh.SGLD(1, train_size=9)),
    ),
    "ParallelChains": row(
        lambda: dict(model=network(), num_chains=2),
        seed=kinds.INTEGER.or_none,
        strategy=choice("auto", "vmap", "loop"),
        start=listed(*NO_STARTS),
    ),
    "ParallelChains.compile": row(
        lambda: dict(self=mh.ParallelChains(network(), 2), optimizer="sgd"),
        optimizer=listed(*NO_OPTIMIZERS),
    ),
    "prune": row(
        lambda: dict(model=sparse_model(), optimizer=sparse_model().optimizer),
        optimizer=listed(None, *NO_SPARSE),
        threshold=number("[0, 1]"),
        also={"model": {"optimizer"}},
    ),
    "PosteriorSamples": row(
        {},
        every=kinds.COUNT.or_none,
        weight_by=choice(None, "learning_rate"),
        directory=listed(1, True, b"folder", ["folder"], {}, 0.5),
    ),
    "PosteriorSamples.load": row(
        dict(directory="no such folder"),
        directory=listed(*NO_FOLDERS),
        truncate=kinds.FLAG,
    ),
    "SWAG": row({}, every=kinds.COUNT.or_none, rank=kinds.integer(2)),
    "SWAG.ensemble": row(
        lambda: dict(self=swag(), model=network(), members=2),
        members=kinds.COUNT,
        scale=kinds.NOT_NEGATIVE,
        diagonal=kinds.FLAG,
        activation=ACTIVATION.or_none,
    ),
    "last_layer_laplace": row(
        lambda: dict(
            model=network(), x=X4, y=Y4, prior=mh.priors.Gaussian(1.0), members=2
        ),
        x=inputs("(-inf, inf)"),
        y=LABELS,
        prior=instance(
            mh.priors.Gaussian, None, 1.0, mh.priors.Gaussian, mh.priors.Prior()
        ),
        noise_std=listed(0.0, -1.0, np.nan, "1", [1.0], 0.1),  # of probabilities
        members=kinds.COUNT,
        activation=ACTIVATION.or_none,
        also={"x": {"y"}},
    ),
    "sample_last_layer": row(
        lambda: dict(
            model=network(),
            x=X4,
            y=Y4,
            prior=mh.priors.Gaussian(1.0),
            members=2,
            num_chains=2,
            num_steps=4,
            burn_in=2,
            progress=False,
        ),
        x=inputs("(-inf, inf)"),
        y=LABELS,
        prior=instance(
            mh.priors.Gaussian, None, 1.0, mh.priors.Gaussian, mh.priors.Prior()
        ),
        method=choice("hmc", "tuna"),
        members=kinds.COUNT,
        num_steps=kinds.COUNT.or_none,
        burn_in=kinds.INTEGER.or_none,
        learning_rate=kinds.POSITIVE.or_none,
        activation=ACTIVATION.or_none,
        also={
            "x": {"y"},
            "members": {"num_steps"},
            "num_chains": {"num_steps"},
            "burn_in": {"num_steps"},
        },
    ),
    "deep_ensemble": row(
        lambda: dict(chains=chains()),
        chains=listed(*NO_MODELS, network(), mh.ParallelChains(network(), 2)),
        activation=ACTIVATION.or_none,
    ),
}

# Attacks and tables.

CLIPS = [(1.0, 0.0), (0.0, 0.0), 1.0, "01", (0.6, 1.0), (0.0, 0.4)]  # `x` is 0.5
ATTACK = dict(
    x=inputs("[0, 1]"),
    clip=array([0.0, 1.0], "[-inf, inf]", *CLIPS, shapes=[1, 3]).or_none,
)
# What goes with a model, beside one that is compiled.
COMPILED = dict(
    member=listed(0, 1.0, "0", -1),
    from_logits=listed("yes", None, True, 1, np.ones(2)),
    batch_size=listed(1, "1", None, np.nan),
)
OF_A_MODEL = {name: BY_NAME[name] for name in ("model", "from_logits", "batch_size")}
OF_PGD = ("steps", "norm", "restarts", "random_start", "keep_strongest", "seed")
PGD = {name: BY_NAME[name] for name in OF_PGD} | dict(
    step_size=kinds.NOT_NEGATIVE.or_none
)
OF_APGD = ("steps", "norm", "restarts", "random_start", "seed")
APGD = {name: BY_NAME[name] for name in OF_APGD} | dict(
    loss=choice("cross_entropy", "margin")  # the others need more than 2 classes
)
SQUARE = dict(queries=kinds.COUNT, initial_share=kinds.UP_TO_ONE)
SQUARE |= {name: BY_NAME[name] for name in ("norm", "seed")}


NO_CLIPS = [(1.0, 0.0), (0.0, 0.0), 1.0, "01", [np.nan, 1.0]]
TRAINING = row(
    lambda: dict(model=network(), epsilon=0.1),
    model=Kind((*NO_MODELS[:4], ensemble(), mh.ParallelChains(network(), 2))),
    epsilon=kinds.NOT_NEGATIVE,
    step_size=kinds.NOT_NEGATIVE.or_none,
    random_start=kinds.STRICT_FLAG.or_none,
    clip=array([0.0, 1.0], "[-inf, inf]", *NO_CLIPS, shapes=[1, 3]).or_none,
)
SHAPES = [(), (4,), (3, 1), (0,), (3.0,), "3", 3, {}, [None], np.array([3])]
OF_LIBRARIES = dict(
    model=BY_NAME["model"],
    input_shape=listed(*SHAPES),
    from_logits=BY_NAME["from_logits"],
)
BOUNDS = [*NO_CLIPS, (0.0, np.inf), (-np.inf, np.inf)]
LIBRARIES = {
    "adversarial.art_classifier": row(
        lambda: dict(model=network()),
        clip=array([0.0, 1.0], "[-inf, inf]", *NO_CLIPS, shapes=[1, 3]).or_none,
        also={"clip": {"model"}},  # whose outputs at large inputs may be NaN
        **OF_LIBRARIES,
    ),
    "adversarial.foolbox_model": row(
        lambda: dict(model=network()),
        clip=array([0.0, 1.0], "(-inf, inf)", *BOUNDS, None, shapes=[1, 3]),
        has_gradient=kinds.STRICT_FLAG,
        also={"clip": {"model"}},
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
QUALITY = {k: 0.5 for k in EvaluationTable._heads}
QUALITY |= {"model": "a", "members": 1, "mutual_information": np.nan}
RATE = {"learning_rate": 0.1, "start": 2.0, "end": 1.0, "verdict": "passes"}
RATE |= {"acceptance": np.nan}
NO_ROWS = [None, 1, "a", [], {}, [1], [{}], [None], [{"model": "a"}], np.ones((2, 2))]
NO_TABLES = [[FIRST, {"model": "b"}], [FIRST | {"epsilon": "a"}]]
NO_TABLES += [[FIRST, FIRST | {"model": "b", "epsilon": 0.5}]]
NO_DICTS = [*NO_MODELS, {}, {"a": None}, *({"a": model} for model in NO_MODELS)]
ABSTAIN = (kinds.OPEN_SHARE | [1.5]).or_none
PAIR = {"source": "a", "target": "b", "accuracy": 0.5, "nll": 0.1}
PAIR |= {"clean_accuracy": 0.9}
TRANSFER = dict(x=X4, y=Y4, epsilon=0.1)
CURVE = dict(x=X4, y=Y4, epsilons=[0.0, 0.1])
OF_MODELS = dict(
    models=listed(*NO_DICTS),
    from_logits=kinds.STRICT_FLAG | [{"b": True}, {"a": 1}, {}],
    batch_size=kinds.COUNT,
)
TABLES = {
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
    "suggest_learning_rate": row(
        lambda: dict(
            model=compiled_network(), x=X4, y=Y4, optimizer="adam", rates=[0.1], steps=4
        ),
        optimizer=listed("adamm", 1, [], keras.layers.Dense(2)),
        rates=listed([], None, 0.1, "a", [0.0], [-0.1], [np.nan], [0.1, None], {0.1}),
        steps=kinds.integer(4),
        batch_size=kinds.COUNT.or_none,
        verbose=choice(0, 1),
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

TABLE = MODELS | TABLES
