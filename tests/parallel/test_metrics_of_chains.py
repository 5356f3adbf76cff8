"""Losses and metrics of each chain: short mini-batches, callbacks that evaluate."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh


@pytest.fixture(scope="module")
def data():
    """70 examples whose last ones are outliers."""
    x = np.random.default_rng(0).normal(size=(70, 4)).astype("float32")
    y = x[:, :1].copy()
    y[-6:] += 10.0
    return x, y


def still_chains(strategy="auto", inputs=None):
    """Two chains that do not move: SGD with a rate of 0."""
    inputs = keras.Input((4,)) if inputs is None else inputs
    outputs = keras.layers.Dense(1)(keras.layers.Concatenate()([inputs, inputs]))
    chains = mh.ParallelChains(keras.Model(inputs, outputs), 2, strategy=strategy)
    sgd = keras.optimizers.SGD(0.0)
    chains.compile(optimizer=sgd, loss="mse", metrics=["mse"])
    return chains


def squares(chains, x, y):
    """The mean squared error of each chain, from its predictions."""
    outputs = np.asarray(chains.predict(x, verbose=0))
    return np.square(outputs - y).mean(axis=(1, 2))


@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_a_short_last_batch_counts_by_its_examples(data, strategy):
    x, y = data
    chains = still_chains(strategy)
    history = chains.fit(x, y, 16, verbose=0, validation_data=(x, y)).history
    expected = squares(chains, x, y)
    for name in ("loss", "mse", "val_loss", "val_mse"):
        values = chains.chain_history[name][0]
        np.testing.assert_allclose(values, expected, rtol=1e-4)
        np.testing.assert_allclose(history[name], expected.mean(), rtol=1e-4)
    found = chains.evaluate_chains(x, y, batch_size=16)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-4)
    assert chains.examples_seen() == 70


def test_sizes_that_do_not_match_are_told(data):
    x, y = data
    chains = mh.ParallelChains(
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), 2
    )
    optimizer = mh.MHBT(0.01, train_size=70, batch_size=16, seed=0)
    chains.compile(optimizer=optimizer, loss=mh.losses.GaussianNLL(1.0))
    with pytest.warns(UserWarning, match="last mini-batch of an epoch has 6 examples"):
        chains.fit(x, y, 16, verbose=0, callbacks=[mh.PosteriorSamples()])


class Evaluates(keras.callbacks.Callback):
    """Look at other data at the end of each epoch."""

    def __init__(self, x, y):
        super().__init__()
        self._data = x, y

    def on_epoch_end(self, epoch, logs=None):
        self.model.evaluate(*self._data, verbose=0)


@pytest.mark.parametrize("validates", [False, True])
def test_a_callback_that_evaluates_changes_no_history(data, validates):
    x, y = data
    chains = still_chains()
    options = {"validation_data": (x, y + 1)} if validates else {}
    callbacks = [Evaluates(x + 100, y)]
    chains.fit(x, y, 16, epochs=2, verbose=0, callbacks=callbacks, **options)
    expected = {"loss": squares(chains, x, y)}
    if validates:
        expected["val_loss"] = squares(chains, x, y + 1)
    for name, values in expected.items():
        assert chains.chain_history[name].shape == (2, 2)
        np.testing.assert_allclose(chains.chain_history[name][1], values, rtol=1e-4)


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_weights_of_masked_positions_are_the_same_for_each_chain(strategy):
    """Keras multiplies weights by the mask, on PyTorch in place."""
    x = np.arange(24.0).reshape(4, 3, 2) / 24.0
    x[:, 2] = 0.0
    layers = [keras.layers.Masking(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((3, 2)), *layers])
    chains = mh.ParallelChains(start=[model] * 3, strategy=strategy, model=model)
    chains.compile("sgd", "mse", weighted_metrics=["mae"])
    weights = np.tile([[1.0], [2.0], [3.0], [4.0]], (1, 3))
    chains.fit(x, np.ones((4, 3, 1)), sample_weight=weights, verbose=0)
    model.compile("sgd", "mse")
    model.fit(x, np.ones((4, 3, 1)), sample_weight=weights, verbose=0)
    expected = [np.stack([value] * 3) for value in model.get_weights()]
    found = [keras.ops.convert_to_numpy(v) for v in chains.trainable_variables]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
