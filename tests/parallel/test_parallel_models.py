"""`ParallelChains` with all kinds of models, callbacks, files and devices."""

import os
import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.devices import simulated_devices
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import optimizer_state
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import BATCH_SIZE
from tests.support.samplers import PAPER
from tests.support.samplers import TRAIN_SIZE

BACKEND = keras.backend.backend()


def rsgld(**options):
    options = {"train_size": TRAIN_SIZE, "batch_size": BATCH_SIZE, "seed": 3} | options
    return mh.RSGLD(0.1, **PAPER | options)


def parallel(num_chains=3, model=None, optimizer=None, strategy="auto", **options):
    chains = mh.ParallelChains(
        model or sequential(), num_chains, seed=0, strategy=strategy
    )
    return compiled(optimizer or rsgld(), chains, **options)


def by_path(chains):
    return {variable.path.split("/")[-1]: variable for variable in chains.variables}


def with_state():
    """A model with moving statistics and a random generator."""
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Dropout(0.5, seed=4),
            keras.layers.Dense(CLASSES, "softmax"),
        ]
    )


class Spy(keras.callbacks.Callback):
    """Moving means, generators and accepted proposals after every step."""

    def __init__(self):
        super().__init__()
        self.means, self.seeds, self.accepted = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        variables = by_path(self.model)
        self.means.append(numpy(variables["moving_mean"]))
        self.seeds.append(numpy(variables["seed_generator_state"]))
        counts = {v.name: v for v in self.model.optimizer.variables}["counts"]
        self.accepted.append(numpy(counts)[:, 0])


@pytest.mark.parametrize("strategy", ["auto", "loop"])
def test_a_rejection_restores_moving_statistics_and_not_generators(strategy):
    chains = parallel(4, with_state(), rsgld(temperature=1.0), strategy)
    spy = Spy()
    fit(chains, epochs=3, callbacks=[spy])
    means, seeds, accepted = map(np.array, (spy.means, spy.seeds, spy.accepted))
    steps = len(means) - 1
    moved = (means[1:] != means[:-1]).any(axis=2)
    took = accepted[1:] > accepted[:-1]
    # Both kinds of steps happened, and after every one it is as it should be.
    assert 0 < took.sum() < steps * 4
    np.testing.assert_array_equal(moved, took)
    assert (seeds[1:] != seeds[:-1]).any(axis=2).all()
    assert len(np.unique(seeds[0], axis=0)) == 4


@pytest.mark.eager_and_compiled
def test_a_recurrent_network_trains_where_it_cannot_be_vectorised():
    """TensorFlow cannot vectorise the lists of a loop over time."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Embedding(9, 3), keras.layers.LSTM(3)]
    model = keras.Sequential(
        [keras.Input((4,)), *layers, keras.layers.Dense(CLASSES, "softmax")]
    )
    x = np.random.default_rng(0).integers(0, 9, (TRAIN_SIZE, 4))
    _, y = data()
    runs = [parallel(2, model, strategy=strategy) for strategy in ("auto", "loop")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for chains in runs:
            chains.fit(x, y, batch_size=32, shuffle=False, verbose=0)
    np.testing.assert_allclose(*map(weights, runs), rtol=1e-3, atol=1e-4)
    told = [str(w.message) for w in caught if "one after the other" in str(w.message)]
    assert len(told) == (runs[0].strategy == "loop")


def test_a_saved_and_loaded_run_goes_on_bit_for_bit(tmp_path):
    whole, first = parallel(), parallel()
    for epochs in (2, 2):
        fit(whole, epochs=epochs, callbacks=[mh.PosteriorSamples()])
    fit(first, callbacks=[mh.PosteriorSamples()])
    first.save(tmp_path / "chains.keras")
    second = keras.models.load_model(tmp_path / "chains.keras")
    assert second.num_chains == 3
    assert second.optimizer.get_config() == first.optimizer.get_config()
    assert second.seed == first.seed == 0
    fit(second, callbacks=[mh.PosteriorSamples()])
    np.testing.assert_array_equal(weights(second), weights(whole))
    for one, other in zip(
        *(optimizer_state(run.optimizer) for run in (second, whole)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_chains_of_adam_are_loaded_without_a_warning(tmp_path):
    """Keras would tell of slots of an optimizer that the user never named."""
    whole, first = parallel(), parallel()
    for chains in (whole, first):
        chains.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
        fit(chains)
    first.save(tmp_path / "chains.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        second = keras.models.load_model(tmp_path / "chains.keras")
    for chains in (whole, second):
        fit(chains)
    np.testing.assert_array_equal(weights(second), weights(whole))


def test_samples_have_a_chain_axis(tmp_path):
    pytest.importorskip("arviz")
    model = with_state()
    chains = parallel(3, model)
    posterior = mh.PosteriorSamples(every=4)
    stored = mh.PosteriorSamples(every=4, directory=tmp_path)
    fit(chains, epochs=4, callbacks=[posterior, stored])
    assert len(posterior) == 6
    draws = posterior.to_arviz(chains).posterior
    for variable in model.weights:
        array = np.asarray(draws[variable.path])
        assert array.shape == (3, 6, *variable.shape)
    kernel = numpy(by_path(chains)["kernel"])
    path = model.layers[-1].kernel.path
    np.testing.assert_array_equal(np.asarray(draws[path])[:, -1], kernel)

    x, _ = data()
    ensembles = [
        samples.ensemble(chains)
        for samples in (posterior, mh.PosteriorSamples.load(tmp_path))
    ]
    members = ensembles[0].predict_members(x)
    assert members.shape == (18, TRAIN_SIZE, CLASSES)
    np.testing.assert_array_equal(members, ensembles[1].predict_members(x))
    # The last draw of all chains comes last.
    np.testing.assert_allclose(
        members[-3:], chains.predict(x, verbose=0), rtol=1e-4, atol=1e-5
    )
    mean = ensembles[0].predict(x, verbose=0)
    np.testing.assert_allclose(mean, members.mean(axis=0), rtol=1e-4, atol=1e-6)


def test_watching_the_chains_does_not_change_them():
    plain, watched = parallel(), parallel()
    fit(plain, callbacks=[mh.PosteriorSamples()])
    fit(watched, callbacks=[mh.PosteriorSamples(every=1)])
    np.testing.assert_array_equal(weights(plain), weights(watched))


@pytest.mark.slow_on("jax", "tensorflow")
@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_run_eagerly_is_the_same_run(strategy):
    eager, plain = (
        parallel(
            2,
            optimizer=mh.MINT(0.05, train_size=TRAIN_SIZE, batch_size=16, seed=3),
            strategy=strategy,
            run_eagerly=flag,
        )
        for flag in (True, False)
    )
    fit(eager, epochs=1)
    fit(plain, epochs=1)
    np.testing.assert_allclose(weights(eager), weights(plain), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses it on PyTorch")
def test_several_steps_per_execution_are_the_same_run():
    plain, grouped = (parallel(2, steps_per_execution=n) for n in (1, 3))
    fit(plain)
    fit(grouped)
    np.testing.assert_allclose(weights(grouped), weights(plain), rtol=1e-4, atol=1e-5)


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, width=7, **options):
        super().__init__(**options)
        self.width = width
        self.hidden = keras.layers.Dense(width, "tanh")
        self.head = keras.layers.Dense(CLASSES, "softmax")

    def build(self, input_shape):
        self.hidden.build(input_shape)
        self.head.build((None, self.width))

    def call(self, inputs):
        return self.head(self.hidden(inputs))

    def get_config(self):
        return {"width": self.width}


def test_functional_and_subclassed_models_train():
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(7, "tanh")(inputs)
    functional = keras.Model(inputs, keras.layers.Dense(CLASSES, "softmax")(hidden))
    subclassed = Subclassed()
    subclassed(data()[0])
    for model in (functional, subclassed):
        chains = parallel(3, model)
        before = numpy(chains.trainable_variables[0])
        assert np.abs(before[0] - before[1]).max() > 0.01
        assert np.abs(before[1] - before[2]).max() > 0.01
        fit(chains)
        assert np.isfinite(weights(chains)).all()
        assert (chains.optimizer.chain_diagnostics()["acceptance"] > 0).all()


def test_a_model_that_cannot_be_made_again_is_refused():
    class Unknown(keras.Model):
        def __init__(self, layer):
            super().__init__()
            self.head = layer

        def call(self, inputs):
            return self.head(inputs)

        def get_config(self):
            raise NotImplementedError("no configuration")

    model = Unknown(keras.layers.Dense(CLASSES))
    model(data()[0])
    with pytest.raises(ValueError, match="`model`.*get_config"):
        mh.ParallelChains(model, 2)
    assert mh.ParallelChains(model, 1).num_chains == 1


def test_a_constructor_without_keyword_arguments_has_chains():
    """As people write a first subclass."""

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.head = keras.layers.Dense(CLASSES)

        def call(self, inputs):
            return self.head(inputs)

    model = Net()
    model(data()[0])
    kernel = mh.ParallelChains(model, 2).get_weights()[0]
    np.testing.assert_array_equal(kernel[0], model.get_weights()[0])
    assert np.abs(kernel[1] - kernel[0]).max() > 0.01


def test_a_model_that_is_not_built_is_refused():
    with pytest.raises(ValueError, match="built model"):
        mh.ParallelChains(keras.Sequential([keras.layers.Dense(1)]), 2)


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: keras.optimizers.SGD(0.1, clipnorm=1.0), "clipnorm"),
        (lambda: keras.optimizers.Adam(0.1, global_clipnorm=1.0), "global_clipnorm"),
        (lambda: keras.optimizers.Adam(0.1, use_ema=True), "use_ema"),
        (
            lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
            "gradient_accumulation_steps",
        ),
        (lambda: keras.optimizers.Lamb(0.1), "Lamb"),
        (lambda: keras.optimizers.Adafactor(0.1), "Adafactor"),
        (
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
            "LossScaleOptimizer",
        ),
    ],
)
def test_optimizers_that_mix_the_chains_are_refused(make, what):
    with pytest.raises(ValueError, match=f"`optimizer`.*{what}"):
        parallel(2, optimizer=make())


def test_the_optimizer_of_another_model_is_refused():
    model = compiled(rsgld())
    fit(model, epochs=1)
    with pytest.raises(ValueError, match="`optimizer` must be new"):
        parallel(2, optimizer=model.optimizer)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_four_devices_share_the_chains():
    """Simulated devices; the chains are those of one device, to rounding."""
    script = """
import sys
import jax
import numpy as np
import keras_mhmcmc as mh
from tests.support.models import compiled, fit, sequential, weights
from tests.support.samplers import SAMPLERS
assert jax.device_count() == int(sys.argv[1])
for strategy in ("vmap", "loop"):
    chains = mh.ParallelChains(sequential(), 8, seed=0, strategy=strategy)
    compiled(SAMPLERS["mint"].make(seed=3), chains)
    fit(chains, epochs=2, callbacks=[mh.PosteriorSamples()])
    for variable in [*chains.trainable_variables, chains.optimizer.slots.position[0]]:
        assert len(variable.value.sharding.device_set) == jax.device_count()
        rows = {shard.data.shape[0] for shard in variable.value.addressable_shards}
        assert rows == {8 // jax.device_count()}
    print(*weights(chains))
"""
    root = str(pathlib.Path(__file__).parents[2])
    processes = []
    for devices in (1, 4):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(devices)],
            env=os.environ | simulated_devices(devices) | {"PYTHONPATH": root},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
    runs = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        runs.append(np.array(output.split(), float))
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-3, atol=1e-4)
