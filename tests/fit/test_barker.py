"""`mh.Barker` in `mh.BarkerChain`: the chain of a `fit`, its samples, its models."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers import barker
from tests.oracles import growing as oracle
from tests.support.barker_chains import BATCH
from tests.support.barker_chains import FEATURES
from tests.support.barker_chains import NOISE
from tests.support.barker_chains import SCALE
from tests.support.barker_chains import SIZE
from tests.support.barker_chains import compiled
from tests.support.barker_chains import data
from tests.support.barker_chains import fit
from tests.support.barker_chains import linear
from tests.support.barker_chains import sampler
from tests.support.models import numpy
from tests.support.models import optimizer_state
from tests.support.models import weights
from tests.support.shuffled import Shuffled

IS_TORCH = keras.backend.backend() == "torch"


class States(keras.callbacks.Callback):
    """The weights after each mini-batch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append(weights(self.model))


def noise_of(options, steps):
    """The noise of so many steps, by another sampler with the same seed."""
    twin, variable = sampler(**options), keras.Variable(np.zeros((FEATURES, 1), "f"))
    twin.build([variable])
    for _ in range(steps):
        evaluation = twin._evaluation([variable.value], [], None, 0.0)
        *uniforms, place = (float(numpy(u)) for u in evaluation.uniforms)
        rank = np.sum(place >= barker.correction_table().astype("float32"))
        correction = barker.SPACING * (rank - len(barker.PROBABILITIES) + 1)
        yield numpy(list(evaluation.normals)[0]).ravel(), uniforms, correction


def beside_the_oracle(*callbacks, loss_weights=None, **options):
    """The states of a fit, those of the oracle, its sizes of tests, and the logs."""
    epochs, per_epoch = 12, -(-SIZE // BATCH)
    optimizer = sampler(**options)
    states, chain = States(), compiled(optimizer=optimizer, loss_weights=loss_weights)
    [weight] = loss_weights or [1.0]
    history = fit(chain, epochs, callbacks=[states, *callbacks])
    x, y = (part.astype("float64") for part in data())
    rows = [range(i, min(i + BATCH, SIZE)) for i in range(0, SIZE, BATCH)]
    batches = [
        (step % per_epoch == 0, rows[step % per_epoch], *noise)
        for step, noise in enumerate(noise_of(options, epochs * per_epoch))
    ]
    given = sampler(**options)
    settings = {"temperature": given.temperature} | {
        name: given.arguments[name] for name in ("learning_rate", "min_examples")
    }
    expected, sizes = oracle.barker_chain(
        np.zeros(FEATURES),
        batches,
        lambda theta: -0.5 * weight * ((y - x @ theta) / NOISE) ** 2,
        lambda theta: -0.5 * theta @ theta / SCALE**2,
        settings,
    )
    return np.array(states.found), expected, sizes, history


@pytest.mark.parametrize("options", [{}, {"temperature": 2.0}, {"learning_rate": 0.04}])
def test_the_states_are_those_of_the_oracle(options):
    # With and without a callback that settles the chain.
    posterior = [mh.PosteriorSamples()] if "temperature" not in options else []
    found, expected, sizes, logs = beside_the_oracle(*posterior, **options)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert len(np.unique(expected[:, 0])) > 2  # the chain moves
    assert len(sizes) >= 12
    if posterior:
        reported = np.array(logs["examples_per_test"])
        assert np.nanmin(reported) >= min(sizes) and np.nanmax(reported) <= max(sizes)


def test_the_weight_of_the_loss_counts():
    found, expected, *_ = beside_the_oracle(loss_weights=[2.0])
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert len(np.unique(expected[:, 0])) > 2


class Settle(keras.callbacks.Callback):
    """Begins a new test at each pass through the data, as an epoch does."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch % 2 == 0:
            self.model.optimizer.settle()


def errors_of_the_law():
    """Differences of mean and variance from 0 and 1, and their standard errors.

    They are of the posterior's coordinates with mean 0 and variance 1, in one long
    epoch, since each epoch of Keras takes time.
    """
    x, y = data()
    precision = x.T.astype("float64") @ x / NOISE**2 + np.eye(FEATURES) / SCALE**2
    mean = np.linalg.solve(precision, x.T @ y / NOISE**2)
    states, model = States(), linear()
    model.set_weights([mean[:, None]])
    chain = compiled(model, sampler(learning_rate=0.13))
    batches = Shuffled(x, y[:, None], SIZE // 2, seed=0, passes=500)
    # Keras would mix the mini-batches of all passes.
    chain.fit(batches, shuffle=False, verbose=0, callbacks=[states, Settle()])
    z = (np.array(states.found) - mean) @ np.linalg.cholesky(precision)
    parts = np.array([z.mean(axis=1), (z**2).mean(axis=1)]).reshape(2, 20, -1)
    parts = parts.mean(axis=2)
    error = parts.std(axis=1, ddof=1) / 20**0.5
    return parts.mean(axis=1) - [0.0, 1.0], error


def test_a_short_chain_has_the_posterior_of_a_conjugate_model():
    difference, error = errors_of_the_law()
    assert (error < [0.25, 0.3]).all()
    assert (np.abs(difference) < 4.0 * error).all()


def test_samples_ensemble_and_logs():
    x, y = data()
    chain, posterior = compiled(metrics=["mae"]), mh.PosteriorSamples(every=2)
    logs = fit(chain, 4, callbacks=[posterior], validation_data=(x, y))
    assert {
        "loss",
        "mae",
        "acceptance",
        "examples_per_test",
        "energy",
        "val_loss",
    } <= set(logs)
    assert "nonfinite" not in logs
    assert len(posterior) == 16
    ensemble = posterior.ensemble(chain.model)
    members = ensemble.predict_members(x)
    np.testing.assert_allclose(members[-1], chain.model.predict(x, verbose=0), 1e-4)
    assert logs["val_loss"][-1] == pytest.approx(chain.evaluate(x, y, verbose=0)[0])
    # The energy of a sample is that of the next mini-batch.
    assert np.isfinite(posterior.energies).all()


def test_save_load_and_resume(tmp_path):
    whole = compiled()
    fit(whole, 6)
    first = compiled()
    fit(first, 3)
    first.save(tmp_path / "chain.keras")
    second = keras.saving.load_model(tmp_path / "chain.keras")
    assert second.optimizer.get_config() == first.optimizer.get_config()
    fit(second, 3)
    np.testing.assert_array_equal(weights(whole), weights(second))
    pairs = zip(
        optimizer_state(whole.optimizer),
        optimizer_state(second.optimizer),
        strict=True,
    )
    for mine, theirs in pairs:
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.in_turn("jax", "tensorflow")
@pytest.mark.skipif(IS_TORCH, reason="Keras refuses it on PyTorch")
def test_several_steps_per_execution_are_the_same_chain():
    one, four = compiled(), compiled(steps_per_execution=4)
    fit(one, 3)
    fit(four, 3)
    np.testing.assert_allclose(weights(one), weights(four), atol=1e-6)


@keras.saving.register_keras_serializable("test_barker")
class Subclassed(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.normalise = keras.layers.BatchNormalization()
        self.drop = keras.layers.Dropout(0.5)
        self.head = keras.layers.Dense(3, "softmax")

    def call(self, x, training=False):
        x = self.normalise(x, training=training)
        return self.head(self.drop(x, training=training))


def unbuilt():
    layers = [keras.layers.Dense(4, "tanh"), keras.layers.Dense(3, "softmax")]
    return keras.Sequential(layers)


@pytest.mark.parametrize("make", [Subclassed, unbuilt])
def test_models_that_fit_builds(make, tmp_path):
    x, y = data()
    labels = (y > 0).astype("int32") + (y > 1)
    chain = compiled(make(), loss="sparse_categorical_crossentropy")
    posterior = mh.PosteriorSamples()
    before = None
    for _ in range(2):
        logs = fit(chain, 2, x, labels, callbacks=[posterior])
        others = [numpy(v) for v in chain.model.non_trainable_variables]
        if before is not None:  # inference mode: statistics stay
            for old, new in zip(before, others, strict=True):
                np.testing.assert_array_equal(old, new)
        before = others
    assert np.isfinite(logs["loss"]).all()
    # In inference mode the loss of an epoch without a move is that of `evaluate`.
    assert posterior.ensemble(chain.model).predict(x, verbose=0).shape == (SIZE, 3)
    chain.save(tmp_path / "chain.keras")
    again = keras.saving.load_model(tmp_path / "chain.keras")
    np.testing.assert_allclose(
        again.predict(x, verbose=0), chain.predict(x, verbose=0), rtol=1e-5
    )


def test_frozen_layers_stay():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(4), keras.layers.Dense(1, kernel_initializer="zeros")]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers])
    model.layers[0].trainable = False
    kernel = numpy(model.layers[0].kernel)
    head = numpy(model.layers[1].kernel)
    chain = compiled(model)
    fit(chain, 6)
    np.testing.assert_array_equal(kernel, numpy(model.layers[0].kernel))
    assert (head != numpy(model.layers[1].kernel)).any()
    model.layers[0].trainable = True  # a compiled step does not see this
    with pytest.raises(ValueError, match="must be new for each model"):
        fit(chain, 1)


class OddAway(keras.layers.Layer):
    """Gives NaN for all weights but the first ones."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(), initializer="zeros", name="weight")

    def call(self, x):
        return x[:, :1] * 0.0 + ops.where(self.weight == 0.0, 0.0, np.nan)


def test_proposals_that_are_not_finite_are_rejected_and_counted():
    model = keras.Sequential([keras.Input((FEATURES,)), OddAway()])
    chain = compiled(model, sampler(prior=None))
    with pytest.warns(UserWarning, match="stands still"):
        logs = fit(chain, 4, callbacks=[mh.PosteriorSamples()])
    assert weights(chain)[0] == 0.0
    # Each ends its test at the first mini-batch.
    assert logs["nonfinite"][-1] == 8 and np.isfinite(logs["loss"]).all()


def test_an_epoch_without_a_decision_warns():
    chain = compiled(optimizer=sampler(learning_rate=0.5, min_examples=100))
    with pytest.warns(UserWarning, match="decided no test in an epoch"):
        fit(chain, 2, steps_per_epoch=2)


def test_an_epoch_begins_a_new_test():
    chain = compiled(optimizer=sampler(learning_rate=5.0))
    fit(chain, 1, steps_per_epoch=3)
    assert float(numpy(chain.optimizer.slots.count)) == 0.0  # at the end of `fit`
    step = numpy(chain.optimizer.slots.step[0])
    fit(chain, 1, steps_per_epoch=3)
    np.testing.assert_array_equal(step, numpy(chain.optimizer.slots.step[0]))


@pytest.mark.parametrize("is_trained", [False, True])
def test_an_ensemble_of_logits_gives_probabilities(is_trained):
    """The loss of the chain says so, whether or not the model is compiled as well."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)).astype("float32"), rng.integers(3, size=60)
    model = keras.Sequential([keras.layers.Dense(3)])
    if is_trained:
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
        model.fit(x, y, verbose=0)
    chain = mh.BarkerChain(model)
    chain.compile(
        mh.Barker(0.1, train_size=60, seed=0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    posterior = mh.PosteriorSamples()
    chain.fit(x, y, 20, epochs=3, verbose=0, callbacks=[posterior])
    probabilities = posterior.ensemble(chain).predict(x, verbose=0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
