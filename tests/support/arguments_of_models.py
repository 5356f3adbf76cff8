"""Rows of arguments: what takes a model, and the models that other rows take."""

import functools
import warnings

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh
from tests.support import kinds
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
def kept():
    """Three states of `network()`."""
    model = network()
    model.compile("sgd", "sparse_categorical_crossentropy")
    made = mh.PosteriorSamples()
    with warnings.catch_warnings(action="ignore"):  # of iterates that are no samples
        model.fit(X4, Y4, epochs=3, verbose=0, callbacks=[made])
    return made


@functools.cache
def chains():
    """Two trained networks."""
    made = mh.ParallelChains(network(), 2, seed=0)
    made.compile("sgd", "sparse_categorical_crossentropy")
    made.fit(X4, Y4, verbose=0)
    return made


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
NO_LISTS = [[network(), network(Normalisation)], [network(), 1], NO_MODELS[-1:]]
NO_FOLDERS = ["no such folder", __file__, "", 1, None, True, b"folder", {}, {"a": 1}]
NO_FOLDERS += [[], (), [None], [1], [["folder"]], ["no such folder"], range(2), 0.5]
NO_SPARSE = [mh.SGLDSA, keras.optimizers.SGD(), mh.SGLD(0.1, train_size=4), "SGLDSA"]
NO_SPARSE += [sparse_sampler()]  # which has no latent variables yet
NO_ROWS = [None, 1, "a", [], {}, [1], [{}], [None], [{"model": "a"}], np.ones((2, 2))]
NO_DICTS = [*NO_MODELS, {}, {"a": None}, *({"a": model} for model in NO_MODELS)]
# What goes with a model, beside one that is compiled.
COMPILED = dict(
    member=listed(0, 1.0, "0", -1),
    from_logits=listed("yes", None, True, 1, np.ones(2)),
    batch_size=listed(1, "1", None, np.nan),
)
OF_MODELS = dict(
    models=listed(*NO_DICTS),
    from_logits=kinds.STRICT_FLAG | [{"b": True}, {"a": 1}, {}],
    batch_size=kinds.COUNT,
)
TABLE = {
    "Classifier": row(lambda: dict(model=network())),
    "Classifier.probabilities": row(lambda: dict(self=classifier(), x=X4), x=INPUTS),
    "Classifier.redrawn": row(lambda: dict(self=classifier(), x=X4), x=INPUTS),
    "Classifier.outputs_and_information": row(
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
    "BayesianEnsemble": row(
        lambda: dict(model=network(), num_members=2),
        model=listed(keras.Model, keras.layers.Dense(2), np.zeros((3, 2)), "model"),
        num_members=kinds.COUNT.or_none,
        sampler=listed(None, 1, "mint", "AUTO", keras.optimizers.SGD(0.1), mh.SGLD),
        temperature=kinds.POSITIVE.but("auto"),
        prior=kinds.POSITIVE.but("auto"),
        max_samples=kinds.COUNT.or_none,
        seed=kinds.INTEGER.or_none,
    ),
    "BayesianEnsemble.compile": row(
        lambda: dict(
            self=mh.BayesianEnsemble(network(), 2),
            loss="sparse_categorical_crossentropy",
        ),
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
    "swag": row(
        lambda: dict(posterior=kept(), model=network(), members=2),
        posterior=listed(mh.PosteriorSamples, None, [], "posterior"),
        rank=kinds.integer(2),
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
            progress=False,
        ),
        x=inputs("(-inf, inf)"),
        y=LABELS,
        prior=instance(
            mh.priors.Gaussian, None, 1.0, mh.priors.Gaussian, mh.priors.Prior()
        ),
        members=kinds.COUNT,
        num_steps=kinds.COUNT.or_none,
        also={"x": {"y"}, "members": {"num_steps"}, "num_chains": {"num_steps"}},
    ),
    "deep_ensemble": row(
        lambda: dict(chains=chains()),
        chains=listed(*NO_MODELS, mh.ParallelChains(network(), 2), [], *NO_LISTS),
        activation=ACTIVATION.or_none,
    ),
    "suggest_learning_rate": row(
        lambda: dict(
            model=compiled_network(), x=X4, y=Y4, optimizer="adam", rates=[0.1], steps=4
        ),
        optimizer=listed("adamm", 1, [], keras.layers.Dense(2)),
        rates=listed([], None, 0.1, "a", [0.0], [-0.1], [np.nan], [0.1, None], {0.1}),
        steps=kinds.integer(4),
        batch_size=kinds.COUNT.or_none,
    ),
}
