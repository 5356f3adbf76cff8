"""`ParallelChains` of layers of each family, vectorised or not."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from tests.support.models import numpy

ROWS, STEPS, WORDS = 16, 6, 20
TOKENS = np.random.default_rng(0).integers(0, WORDS, (ROWS, STEPS))
LABELS = TOKENS.sum(axis=1) % 2
BLOCKS = {
    "attention": lambda x: layers.MultiHeadAttention(2, 2)(x, x),
    "batch_norm": layers.BatchNormalization(),
    "bidirectional": layers.Bidirectional(layers.LSTM(3)),
    "convolution": lambda x: layers.Conv2D(3, 3)(layers.Reshape((STEPS, 4, 1))(x)),
    "dropout": layers.Dropout(0.5),
    "gru": layers.GRU(4),
    "lstm": layers.LSTM(4),
    "simple_rnn": layers.SimpleRNN(4, recurrent_dropout=0.2),
    "time_distributed": layers.TimeDistributed(layers.Dense(3)),
}


def text_model(block):
    """A classifier of token sequences, with `block` between embedding and head."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((STEPS,), batch_size=ROWS, dtype="int32")
    hidden = layers.Embedding(WORDS, 4)(inputs)
    if isinstance(block, layers.Layer):
        block = type(block).from_config(block.get_config())
    outputs = layers.Dense(2, "softmax")(layers.Flatten()(block(hidden)))
    return keras.Model(inputs, outputs)


def fitted(model, num_chains, strategy="auto"):
    chains = mh.ParallelChains(model, num_chains, seed=0, strategy=strategy)
    sampler = mh.SGLD(0.1, train_size=ROWS, seed=0)
    chains.compile(sampler, "sparse_categorical_crossentropy")
    chains.fit(TOKENS, LABELS, batch_size=ROWS, epochs=2, shuffle=False, verbose=0)
    return chains


def by_hand(chains, num_chains):
    """Return the predictions of a model of its own for each chain."""
    rows = chains.member_weights([numpy(v) for v in chains.weights])
    predictions = []
    for k in range(num_chains):
        model = keras.models.clone_model(chains.template)
        model.set_weights([row[k] for row in rows])
        predictions.append(model.predict(TOKENS, batch_size=ROWS, verbose=0))
    return np.array(predictions)


@pytest.mark.parametrize("num_chains", [1, 2])
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.filterwarnings("ignore:The chains are evaluated:UserWarning")
def test_each_chain_predicts_as_a_model_with_its_weights(name, num_chains):
    chains = fitted(text_model(BLOCKS[name]), num_chains)
    expected = by_hand(chains, num_chains)
    outputs = chains.predict(TOKENS, batch_size=ROWS, verbose=0)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    if num_chains > 1:
        assert np.abs(outputs[0] - outputs[1]).max() > 1e-3


def test_convolutions_are_evaluated_side_by_side():
    """Keras asks for the layout of their operands, which PyTorch's vmap cannot tell."""
    chains = fitted(text_model(BLOCKS["convolution"]), 2, "vmap")
    assert chains.strategy == "vmap"


def test_networks_whose_layers_keep_states_are_refused():
    model = text_model(layers.Bidirectional(layers.LSTM(4, stateful=True)))
    for make in (mh.ParallelChains, mh.Ensemble):
        with pytest.raises(ValueError, match="built with `stateful=False`.*Received"):
            make(model, 2)


def failing(monkeypatch, *chunks):
    """Let steps fail that evaluate so many chains at a time."""
    over_chains = _backend.over_chains

    def maybe(step, chains, shared, data, chunk):
        if chunk in chunks:
            raise TypeError("no rule for this\nand a long trace")
        return over_chains(step, chains, shared, data, chunk)

    monkeypatch.setattr(_backend, "over_chains", maybe)


def test_any_failure_of_vectorisation_leads_to_the_loop_and_is_told_once(monkeypatch):
    model = text_model(layers.Dense(3))
    expected = fitted(model, 2, "loop").predict(TOKENS, verbose=0)
    failing(monkeypatch, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chains = fitted(model, 2)
        outputs = chains.predict(TOKENS, verbose=0)
    assert chains.strategy == "loop"
    told = [str(w.message) for w in caught if "one after the other" in str(w.message)]
    assert len(told) == 1 and "(TypeError: no rule for this)" in told[0]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-6)


def test_asked_for_vectorisation_a_failure_is_an_error_with_the_remedy(monkeypatch):
    failing(monkeypatch, 2)
    with pytest.raises(ValueError, match='must be "loop" or "auto".*no rule for this'):
        fitted(text_model(layers.Dense(3)), 2, "vmap")


def test_the_error_of_a_network_that_fails_in_both_ways_is_its_own(monkeypatch):
    failing(monkeypatch, 1, 2)
    with pytest.raises(TypeError, match="no rule for this"):
        fitted(text_model(layers.Dense(3)), 2)
