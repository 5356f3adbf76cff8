"""All layers of Keras with weights or states, in one chain, two chains and ensembles.

Each member must predict as a model of its own with the weights of this member.
"""

import inspect
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support import layer_rows
from tests.support.layer_rows import ROWS
from tests.support.models import numpy

BACKEND = keras.backend.backend()
ROOT = Path(__file__).parents[2]
LAYERS = {
    name: kind
    for name, kind in vars(keras.layers).items()
    if inspect.isclass(kind) and issubclass(kind, keras.layers.Layer)
}
OUT = {n: why for why, names in layer_rows.LEFT_OUT.items() for n in names.split()}
NAMES = [name for name in layer_rows.LAYERS if name in LAYERS]  # of this Keras


def test_each_layer_of_keras_has_a_row_or_a_reason():
    assert not OUT.keys() & layer_rows.LAYERS.keys()
    known = {kind for name, kind in LAYERS.items() if name in {*OUT, *NAMES}}
    assert set(LAYERS.values()) == known  # some layers have two names


def test_layers_without_a_row_have_no_weights():
    for name in [n for n in OUT if OUT[n] == layer_rows.NO_WEIGHTS and n in LAYERS]:
        kinds = LAYERS[name].mro()
        for kind in kinds[: kinds.index(keras.layers.Layer)]:
            methods = {m: f for m, f in vars(kind).items() if inspect.isfunction(f)}
            for method, function in methods.items():
                called = inspect.unwrap(function).__code__.co_names
                assert "add_weight" not in called, name
                assert method != "__init__" or "SeedGenerator" not in called, name


def test_the_page_is_that_of_the_table():
    """`python -m tests.support.layer_rows > docs/layers.md` writes it."""
    assert (ROOT / "docs/layers.md").read_text() == layer_rows.page()


class Kept(keras.callbacks.Callback):
    """The weights after each mini-batch."""

    def on_train_begin(self, logs=None):
        self.rows = []

    def on_train_batch_end(self, batch, logs=None):
        self.rows.append([np.array(value) for value in self.model.get_weights()])


def predicted(name, model):
    x, _ = layer_rows.LAYERS[name]
    return model.predict(x, batch_size=ROWS, verbose=0)


def by_hand(name, members):
    """The predictions of a model of its own for each member."""
    outputs = []
    for weights in members:
        model = layer_rows.model_of(name)
        model.set_weights(weights)
        outputs.append(predicted(name, model))
    return np.array(outputs)


def fitted(name, model, *callbacks):
    """Trains by two steps, and returns what was said about vectorisation."""
    sampler = mh.SGLD(0.1, train_size=ROWS, seed=0)
    model.compile(sampler, "sparse_categorical_crossentropy")
    x, _ = layer_rows.LAYERS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"epochs": 2, "shuffle": False, "verbose": 0}
        model.fit(x, layer_rows.LABELS, ROWS, callbacks=[*callbacks], **options)
        model.predict(x, batch_size=ROWS, verbose=0)
    return [str(w.message) for w in caught if "one after the other" in str(w.message)]


def close(outputs, expected):
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_chain(name):
    if layer_rows.is_of_another_backend(name):
        pytest.skip(f"Keras has no {name} on {BACKEND}")
    x, _ = layer_rows.LAYERS[name]
    model, kept = layer_rows.model_of(name), Kept()
    posterior = mh.PosteriorSamples(every=1)
    fitted(name, model, kept, posterior)
    for layer in model.layers:
        if isinstance(layer, keras.layers.RNN):
            layer.reset_states()
    expected = by_hand(name, kept.rows)
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    close(predicted(name, model), expected[-1])
    refusal = layer_rows.refusal(name, "ensemble")
    if refusal is not None:
        with pytest.raises(ValueError, match=refusal):
            posterior.ensemble(model)
        return
    ensemble = posterior.ensemble(model)
    close(predicted(name, ensemble), expected.mean(axis=0))
    close(ensemble.predict_members(x, batch_size=ROWS), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_chains(name):
    if layer_rows.is_of_another_backend(name):
        pytest.skip(f"Keras has no {name} on {BACKEND}")
    x, _ = layer_rows.LAYERS[name]
    model = layer_rows.model_of(name)
    refusal = layer_rows.refusal(name, "chains")
    if refusal is not None:
        with pytest.raises(ValueError, match=refusal):
            mh.ParallelChains(model, 2, seed=0)
        return
    chains, posterior = mh.ParallelChains(model, 2, seed=0), mh.PosteriorSamples(1)
    cause = layer_rows.refusal(name, "`fit` of chains")
    if cause is not None:
        with pytest.raises(IndexError, match=cause):
            fitted(name, chains)
        return
    cause, reason = (
        layer_rows.refusal(name, "`fit` in one pass"),
        layer_rows.reason_of_loop(name),
    )
    if cause is not None:
        with pytest.raises(ValueError, match=cause):
            fitted(name, chains)
        chains = mh.ParallelChains(model, 2, seed=0, strategy="loop")
    told = fitted(name, chains, posterior)
    is_loop = reason is not None or cause is not None
    assert chains.strategy == ("loop" if is_loop else "vmap")
    assert len(told) == (reason is not None) and (reason or "") in "".join(told)
    rows = chains.member_weights([numpy(v) for v in chains.weights])
    expected = by_hand(name, [[row[k] for row in rows] for k in range(2)])
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    close(predicted(name, chains), expected)
    ensemble = posterior.ensemble(chains)  # the last state of each chain
    close(ensemble.predict_members(x, batch_size=ROWS), expected)
    if not is_loop:
        loop = mh.ParallelChains(layer_rows.model_of(name), 2, seed=0, strategy="loop")
        fitted(name, loop)
        np.testing.assert_allclose(
            predicted(name, loop), expected, rtol=1e-3, atol=1e-4
        )
