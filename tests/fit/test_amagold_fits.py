"""AMAGOLD in the models and data that people write."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.fit.compiled_loss import FullLoss
from tests.support.models import BATCH_SIZE
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import TRAIN_SIZE
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import numpy
from tests.support.models import optimizer_state
from tests.support.models import weights

EPOCH = TRAIN_SIZE // BATCH_SIZE


def sampler(**options):
    given = dict(learning_rate=0.02, train_size=TRAIN_SIZE, warm_up=0, seed=0)
    return mh.AMAGOLD(**given | options)


def fit(model, x=None, y=None, epochs=4, posterior=None, **options):
    if x is None:
        x, y = data()
    posterior = mh.PosteriorSamples() if posterior is None else posterior
    options = dict(batch_size=BATCH_SIZE, verbose=0, epochs=epochs) | options
    callbacks = [posterior, *options.pop("callbacks", [])]
    if not hasattr(x, "shape") and not isinstance(x, dict | list):
        del options["batch_size"]
    history = model.fit(x, y, callbacks=callbacks, **options)
    return history.history, posterior


def full_energy(model, x, y, prior=None):
    loss = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    squares = sum(float((numpy(v) ** 2).sum()) for v in model.trainable_variables)
    return TRAIN_SIZE * loss + (0.0 if prior is None else squares / (2 * prior**2))


def test_energies_of_samples_are_those_of_all_data():
    x, y = data()
    model = compiled(sampler(prior=mh.priors.Gaussian(2.0)))
    logs, posterior = fit(model, x, y)
    assert len(posterior) == 4
    expected = full_energy(model, x, y, 2.0)
    np.testing.assert_allclose(posterior.energies[-1], expected, rtol=1e-5)
    np.testing.assert_allclose(logs["energy"][-1], expected, rtol=1e-5)
    assert np.isnan(logs["acceptance"][0])  # the first path has no test
    assert set(logs["acceptance"][1:]) <= {0.0, 1.0}
    assert "acceptance_probability" in logs


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(6, "relu")
        self.drop = keras.layers.Dropout(0.3)
        self.head = keras.layers.Dense(CLASSES, "softmax")

    def call(self, x, training=False):
        return self.head(self.drop(self.hidden(x), training=training))


def unbuilt():
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(CLASSES, "softmax")]
    return keras.Sequential(layers)


def two_inputs():
    parts = [keras.Input((FEATURES,), name=name) for name in ("a", "b")]
    joined = keras.layers.Concatenate()(parts)
    return keras.Model(parts, keras.layers.Dense(CLASSES, "softmax")(joined))


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return EPOCH

    def __getitem__(self, index):
        rows = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return tuple(part[rows] for part in data())


def of_tensorflow():
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(data()).shuffle(96).batch(BATCH_SIZE)


def for_ever():
    return of_tensorflow().repeat()


def of_torch():
    torch = pytest.importorskip("torch")
    x, y = (torch.as_tensor(part) for part in data())
    dataset = torch.utils.data.TensorDataset(x, y)
    return torch.utils.data.DataLoader(dataset, BATCH_SIZE, shuffle=True)


@pytest.mark.parametrize("make", [Subclassed, unbuilt, two_inputs])
def test_models_people_write(make):
    x, y = data()
    given = {"a": x, "b": x} if make is two_inputs else x
    keras.utils.set_random_seed(0)
    model = compiled(sampler(), make())
    _, posterior = fit(model, given, y)
    np.testing.assert_allclose(
        posterior.energies[-1], full_energy(model, given, y), rtol=1e-5
    )
    ensemble = posterior.ensemble(model)
    assert ensemble.predict(given, verbose=0).shape == (TRAIN_SIZE, CLASSES)


@pytest.mark.parametrize("make", [Batches, of_tensorflow, for_ever, of_torch])
def test_data_people_write(make):
    model = compiled(sampler())
    steps = dict(steps_per_epoch=EPOCH) if make is for_ever else {}
    _, posterior = fit(model, make(), **steps)
    assert len(posterior) == 4
    expected = full_energy(model, *data())
    np.testing.assert_allclose(posterior.energies[-1], expected, rtol=1e-5)


def test_the_part_for_training_is_the_data_of_the_test():
    x, y = (np.concatenate([part, part[:24]]) for part in data())
    model = compiled(sampler())
    _, posterior = fit(model, x, y, validation_split=0.2)
    expected = full_energy(model, x[:TRAIN_SIZE], y[:TRAIN_SIZE])
    np.testing.assert_allclose(posterior.energies[-1], expected, rtol=1e-5)


def test_paths_within_an_epoch_are_tested():
    model = compiled(sampler(steps_per_test=2))
    logs, posterior = fit(model, posterior=mh.PosteriorSamples(every=2), epochs=6)
    assert EPOCH == 6
    assert set(np.round(3 * np.array(logs["acceptance"][1:]))) <= {0.0, 1.0, 2.0, 3.0}
    assert len(posterior) == 18  # the first path, too, ends in a state
    distinct = len(np.unique(posterior.energies))
    assert distinct > 3


def test_no_sample_comes_from_a_path():
    """Between two tests the samples are the last tested state."""
    posterior = mh.PosteriorSamples(every=1)
    model = compiled(sampler())
    fit(model, posterior=posterior)
    first = posterior.iterations[0]
    # A sample is kept before the test at the end of an epoch: one iteration late.
    assert first == EPOCH + 1
    states = [
        np.concatenate([np.ravel(a[i]) for a in posterior._store.read(model)])
        for i in range(len(posterior))
    ]
    changes = posterior.iterations[1:][
        [not np.array_equal(a, b) for a, b in zip(states, states[1:], strict=False)]
    ]
    assert set(changes % EPOCH) <= {1}


@pytest.mark.eager_and_compiled
def test_several_steps_in_one_execution():
    if keras.backend.backend() == "torch":
        pytest.skip("Keras has no steps_per_execution on PyTorch")
    model = compiled(sampler(steps_per_test=2), steps_per_execution=3)
    _, posterior = fit(model)
    expected = full_energy(model, *data())
    np.testing.assert_allclose(posterior.energies[-1], expected, rtol=1e-5)


def test_a_saved_run_goes_on_bit_for_bit(tmp_path):
    def of(model, epochs, **options):
        x, y = data()
        return fit(model, x, y, epochs=epochs, shuffle=False, **options)

    whole, half = compiled(sampler()), compiled(sampler())
    of(whole, 4)
    of(half, 2)
    half.save(tmp_path / "half.keras")
    rest = keras.models.load_model(tmp_path / "half.keras")
    assert rest.optimizer.get_config() == half.optimizer.get_config()
    of(rest, 4, initial_epoch=2)
    np.testing.assert_array_equal(weights(rest), weights(whole))
    for a, b in zip(
        optimizer_state(rest.optimizer), optimizer_state(whole.optimizer), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_weights_that_somebody_sets_start_a_new_chain():
    model = compiled(sampler())
    fit(model)
    for variable in model.trainable_variables:
        variable.assign(numpy(variable) + 5.0)
    far = full_energy(model, *data())
    logs, _ = fit(model, epochs=1)
    assert np.isnan(logs["acceptance"][0])
    assert abs(logs["energy"][0] - far) < far  # it went on from there


def test_a_learning_rate_that_changes_takes_effect_with_the_next_path():
    rates = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(numpy(self.model.optimizer.slots.rate)))

    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.02 / (epoch + 1))
    model = compiled(sampler())
    x, y = data()
    model.fit(
        x,
        y,
        batch_size=BATCH_SIZE,
        epochs=3,
        verbose=0,
        callbacks=[schedule, mh.PosteriorSamples(), Look()],
    )
    rates = np.reshape(rates, (3, EPOCH))
    assert (np.ptp(rates, axis=1) == 0.0).all()
    np.testing.assert_allclose(rates[:, 0], [0.02, 0.01, 0.02 / 3], rtol=1e-6)


def test_an_error_in_fit_leaves_the_last_state():
    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                self.state = weights(self.model)

        def on_train_batch_end(self, batch, logs=None):
            if batch == 3 and hasattr(self, "state"):
                raise RuntimeError("a user's own error")

    fail, model = Fail(), compiled(sampler())
    with pytest.raises(RuntimeError, match="own error"):
        fit(model, callbacks=[fail])
    if keras.backend.backend() == "jax":  # Keras tells no other optimizer of the end
        np.testing.assert_array_equal(weights(model), fail.state)
    logs, posterior = fit(model, epochs=1)  # the chain goes on
    assert logs["acceptance"][0] in (0.0, 1.0)
    expected = full_energy(model, *data())
    np.testing.assert_allclose(posterior.energies[-1], expected, rtol=1e-5)


def test_fit_without_a_callback_makes_one_test():
    x, y = data()
    model = compiled(sampler())
    model.fit(x, y, batch_size=BATCH_SIZE, epochs=3, verbose=0)
    report = model.optimizer.diagnostics()
    np.testing.assert_allclose(report["energy"], full_energy(model, x, y), rtol=1e-5)


def test_a_rate_that_is_too_large_is_told():
    model = compiled(sampler(learning_rate=3.0))
    with pytest.warns(UserWarning, match="AMAGOLD accepted none of the last"):
        fit(model, epochs=20)


def test_batch_normalisation_is_told():
    layers = [keras.Input((FEATURES,)), keras.layers.BatchNormalization(name="norm")]
    layers.append(keras.layers.Dense(CLASSES, "softmax"))
    with pytest.warns(UserWarning, match="not exact with batch norm.*norm"):
        fit(compiled(sampler(), keras.Sequential(layers)), epochs=1)


def test_data_that_is_not_finite_is_told():
    x, y = data()
    x[3] = np.nan
    model = compiled(sampler())
    with pytest.warns(UserWarning, match="first path was not finite"):
        _, posterior = fit(model, x, y)
    with pytest.raises(ValueError, match="no samples"):
        posterior.ensemble(model)


@pytest.mark.parametrize("changed", ["loss", "data"])
def test_another_fit_tests_the_state_on_its_own_energy(changed):
    x, y = data()
    model = compiled(sampler(learning_rate=1e-4))
    fit(model, x, y)
    if changed == "loss":  # hundreds of nats more: no path would be accepted
        model.compile(model.optimizer, model.loss, loss_weights=[3.0])
    else:
        y = (y + 1) % CLASSES
    logs, posterior = fit(model, x, y, epochs=2)
    assert min(logs["acceptance_probability"]) > 0.5
    expected = full_energy(model, x, y)
    np.testing.assert_allclose(posterior.energies[-1], expected, rtol=1e-5)


def test_the_energy_of_a_state_is_evaluated_once_in_each_fit(monkeypatch):
    model = compiled(sampler())
    calls, mean = [], FullLoss.__call__
    monkeypatch.setattr(
        FullLoss, "__call__", lambda *given: calls.append(1) or mean(*given)
    )
    for x, y in [data()] * 2:
        fit(model, x, y, epochs=3)
    # Three paths in each fit, and the state that the second one begins from.
    assert len(calls) == 7
