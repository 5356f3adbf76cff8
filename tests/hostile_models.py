"""Rows of hostile input: what takes a trained model, and its attacks and scores."""

import functools

import keras
import numpy as np
from argument_tools import make
from hostile_tools import COUNT
from hostile_tools import INPUTS
from hostile_tools import MODEL
from hostile_tools import NUMBER
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

Dropout = functools.partial(keras.layers.Dropout, 0.5)
Normalisation = keras.layers.BatchNormalization


def without_none(values):
    return [value for value in values if value is not None]


def finite(result):
    assert np.isfinite(np.asarray(result, "float64")).all()


def predictions(result):
    finite(result.predict(X4, verbose=0))


@functools.cache
def sparse_model():
    """A model that a spike-and-slab sampler trained for a step."""
    model = network(Dropout)
    prior = mh.priors.SpikeSlab("kernel", v0=1e-3, v1=1.0)
    optimizer = mh.SGLDSA(0.01, train_size=4, prior=prior, seed=0)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    model.fit(X4, np.array(Y4), verbose=0)
    return model


ACTIVATION = ["softmaxx", 1, [], {}, True, np.ones(2), object(), b"softmax"]
NAME = [1, ["a"], {}, 0.5, "a/b", ":", "_a", "a b", "\u00fc", np.ones(2)]
MODELS = {
    "Classifier": Row(
        mh.Classifier,
        lambda: dict(model=network()),
        {"model": MODEL, "from_logits": STRICT_FLAG, "batch_size": COUNT},
    ),
    "Classifier.probabilities": Row(
        lambda x: classifier().probabilities(x),
        lambda: dict(x=X4),
        {"x": INPUTS},
        finite,
    ),
    "Classifier.probabilities_and_information": Row(
        lambda x: classifier().probabilities_and_information(x),
        lambda: dict(x=X4),
        {"x": INPUTS},
    ),
    "Ensemble": Row(
        mh.Ensemble,
        lambda: dict(member=network(), num_members=2),
        {
            "member": MODEL,
            "num_members": COUNT,
            "activation": ACTIVATION,
            "chunk": without_none(COUNT),
            "shared": [
                None,
                1,
                "ab",
                [-1],
                [2],
                [0, 1],
                [0.5],
                ["0"],
                {"a": 1},
                [True],
            ],
            "name": NAME,
        },
        predictions,
    ),
    "Ensemble.set_members": Row(
        lambda **arguments: mh.Ensemble(network(), 2).set_members(**arguments),
        lambda: dict(stacked=[np.ones((2, 3, 2)), np.ones((2, 2))], weights=[1.0, 1.0]),
        {
            "stacked": [
                None,
                1,
                "ab",
                [],
                {},
                [np.ones((2, 3, 2))],
                [np.ones((2, 3, 2)), np.ones((2, 2)), np.ones(2)],
                [np.ones((3, 3, 2)), np.ones((3, 2))],
                [np.ones((2, 3, 2)), np.ones((2, 3))],
                [np.full((2, 3, 2), np.nan), np.ones((2, 2))],
                [np.full((2, 3, 2), "a"), np.ones((2, 2))],
                [np.full((2, 3, 2), 1j), np.ones((2, 2))],
                [None, None],
            ],
            "weights": [
                None,
                1.0,
                "ab",
                [],
                {},
                [1.0],
                [1.0] * 3,
                [0.0, 0.0],
                [-1.0, 2.0],
                [np.nan, 1.0],
                [np.inf, 1.0],
                ["1", "1"],
                [1j, 1.0],
                [[1.0, 1.0]],
                [10**400, 1.0],
                [None, 1.0],
                lambda x: x,
            ],
        },
    ),
    "Ensemble.recalibrate": Row(
        lambda **arguments: ensemble(Normalisation).recalibrate(**arguments),
        lambda: dict(x=np.random.default_rng(0).normal(size=(4, 3))),
        {
            "x": [
                None,
                "a",
                [],
                {},
                0.5,
                np.zeros((0, 3)),
                np.full((4, 3), np.nan),
                np.full((4, 3), np.inf),
                np.full((4, 3), "a"),
                np.full((4, 3), 1j),
                np.full((4, 3), None),
                {"a": np.ones((4, 3)), "b": np.ones((3, 3))},
                {"": np.ones(4)},
            ],
            "batch_size": COUNT,
        },
    ),
    "Ensemble.recalibrate without normalisation": Row(
        lambda member: mh.Ensemble(member(), 2).recalibrate(X4),
        lambda: dict(member=lambda: network(Normalisation)),
        {"member": [network, lambda: network(Dropout)]},
        also={"member": {"Ensemble"}},
        is_drawn=False,
    ),
    "MCDropout": Row(
        mh.MCDropout,
        lambda: dict(model=network(Dropout), samples=2),
        {
            "model": [*MODEL, network(), network(Normalisation), ensemble()],
            "samples": COUNT,
            "activation": ACTIVATION,
            "seed": SEED,
            "name": NAME,
        },
        predictions,
    ),
    "ParallelChains": Row(
        mh.ParallelChains,
        lambda: dict(model=network(), num_chains=2),
        {
            "model": MODEL,
            "num_chains": COUNT,
            "seed": without_none(SEED),
            "strategy": [*TEXT, "pmap", True],
            "name": NAME,
        },
        predictions,
        is_quick=False,
    ),
    "ParallelChains.compile": Row(
        lambda optimizer: mh.ParallelChains(network(), 2).compile(optimizer),
        lambda: dict(optimizer="sgd"),
        {
            "optimizer": [
                "sgdd",
                1,
                [],
                True,
                mh.SGLD,
                keras.optimizers.Adafactor(),
                keras.optimizers.SGD(clipnorm=1.0),
                keras.optimizers.SGD(global_clipnorm=1.0),
                keras.optimizers.SGD(use_ema=True),
                keras.optimizers.SGD(gradient_accumulation_steps=2),
            ]
        },
    ),
    "prune": Row(
        mh.prune,
        lambda: dict(
            model=sparse_model(), optimizer=sparse_model().optimizer, threshold=0.5
        ),
        {
            "model": [*MODEL, classifier()],
            "optimizer": [
                None,
                "SGLDSA",
                mh.SGLDSA,
                keras.optimizers.SGD(),
                mh.SGLD(0.1, train_size=4),
                make("SGLDSA", train_size=4),
            ],
            "threshold": [*NUMBER, -0.1, 1.1],
        },
        also={"model": {"optimizer"}},
        is_quick=False,
    ),
}
