"""What leaves the process: files of ensembles, and what other servers read."""

import os
import subprocess
import sys
import zipfile

import h5py
import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import FEATURES
from tests.support.models import KERAS_VERSION
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential

BACKEND = keras.backend.backend()


def sampled(model=None):
    """An ensemble of two samples, which has not predicted yet."""
    posterior = mh.PosteriorSamples()
    model = compiled(mh.SGLD(0.05, train_size=96, seed=0), model)
    fit(model, callbacks=[posterior])
    return posterior.ensemble(model)


def dict_model():
    sources = {name: keras.Input((n,), name=name) for name, n in (("a", 3), ("b", 2))}
    x = keras.layers.Concatenate()(list(sources.values()))
    return keras.Model(sources, keras.layers.Dense(2)(x))


@keras.saving.register_keras_serializable(package="tests")
class Registered(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        return self.dense(x)


class Unknown(Registered):
    pass


class WithoutConfig(Registered):
    def __init__(self, width):
        super().__init__()
        self.dense = keras.layers.Dense(width)


def filled(member, members=2):
    rng = np.random.default_rng(0)
    ensemble = mh.Ensemble(member, members)
    stacked = [rng.normal(size=(members, *v.shape)) for v in member.weights]
    ensemble.set_members(stacked, np.arange(1.0, members + 1.0))
    return ensemble


def built(kind, *arguments):
    model = kind(*arguments)
    model(data()[0][:2])
    return model


def served(path, x):
    import tensorflow as tf

    artifact = tf.saved_model.load(str(path))
    return np.array(artifact.serve(x))


@pytest.mark.skipif(BACKEND == "torch", reason="Keras makes no SavedModel there")
class TestSavedModel:
    def test_right_after_it_was_made(self, tmp_path):
        ensemble = sampled()
        ensemble.export(tmp_path / "artifact", verbose=False)
        x, _ = data()
        for count in (1, 50):
            expected = ensemble.predict(x[:count], verbose=0)
            found = served(tmp_path / "artifact", x[:count])
            np.testing.assert_allclose(found, expected, atol=1e-6)

    @pytest.mark.slow
    def test_in_a_fresh_process(self, tmp_path):
        """TensorFlow alone serves the artifact."""
        ensemble, (x, _) = sampled(), data()
        ensemble.export(tmp_path / "artifact", verbose=False)
        np.save(tmp_path / "x.npy", x)
        script = [sys.executable, "-c", _SERVE + _ALONE, str(tmp_path)]
        subprocess.run(script, check=True, timeout=200)
        expected = ensemble.predict(x, verbose=0)
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-6)

    def test_several_inputs(self, tmp_path):
        ensemble = filled(dict_model())
        ensemble.export(tmp_path / "artifact", verbose=False)
        x, _ = data()
        inputs = {"a": x[:, :3], "b": x[:, 3:]}
        expected = ensemble.predict(inputs, verbose=0)
        found = served(tmp_path / "artifact", inputs)
        np.testing.assert_allclose(found, expected, atol=1e-5)

    def test_of_a_subclass_from_a_file(self, tmp_path):
        """It was not called in this process, which Keras would want."""
        ensemble = filled(built(Registered))
        ensemble.save(tmp_path / "ensemble.keras")
        loaded = keras.models.load_model(tmp_path / "ensemble.keras")
        loaded.export(tmp_path / "artifact", verbose=False)
        x, _ = data()
        expected = ensemble.predict(x, verbose=0)
        np.testing.assert_allclose(
            served(tmp_path / "artifact", x), expected, atol=1e-5
        )

    def test_a_member_that_does_not_know_its_inputs(self, tmp_path):
        class Late(Registered):
            def build(self):
                self.dense.build((None, FEATURES))

        model = Late()
        model.build()
        ensemble = filled(model)
        with pytest.raises(ValueError, match="`input_signature` must be given"):
            ensemble.export(tmp_path / "artifact")
        signature = [keras.InputSpec(shape=(None, FEATURES), dtype="float32")]
        ensemble.export(tmp_path / "artifact", "tf_saved_model", False, signature)
        x, _ = data()
        expected = ensemble.predict(x, verbose=0)
        np.testing.assert_allclose(
            served(tmp_path / "artifact", x), expected, atol=1e-5
        )


_EXPORT = """
import sys
import keras
import keras_mhmcmc

folder = sys.argv[1]
keras.models.load_model(folder + "/ensemble.keras").export(folder + "/artifact")
"""
_SERVE = """
import sys
import numpy as np
import tensorflow as tf

x = np.load(sys.argv[1] + "/x.npy")
artifact = tf.saved_model.load(sys.argv[1] + "/artifact")
np.save(sys.argv[1] + "/y.npy", artifact.serve(x))
"""
_ALONE = """
assert "keras_mhmcmc" not in sys.modules
"""
_LOAD = """
import sys
import keras
import keras_mhmcmc
import numpy as np

ensemble = keras.models.load_model(sys.argv[1] + "/ensemble.keras")
found = ensemble.predict_members(np.load(sys.argv[1] + "/x.npy"))
np.save(sys.argv[1] + "/members.npy", found)
"""


def in_a_fresh_process(script, folder, backend=BACKEND):
    root = os.path.dirname(os.path.dirname(mh.__file__))
    environment = {"KERAS_BACKEND": backend, "PYTHONPATH": root}
    run = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_lora_before_between_and_after(when, tmp_path):
    """Adapters come before training, between training and sampling, or afterwards."""
    model, (x, y) = sequential(), data()
    hidden = model.layers[0]
    if when == "before":
        hidden.enable_lora(2)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x, y, epochs=2, verbose=0)
    if when == "between":
        hidden.enable_lora(2)
    ensemble = sampled(model)
    expected = []
    for values in zip(*ensemble.stacked_values(), strict=True):
        model.set_weights(values)
        expected.append(model.predict(x, verbose=0))
    expected = np.array(expected)
    if when == "after":
        hidden.enable_lora(2)
        assert len(model.weights) > len(ensemble.member.weights)
    np.testing.assert_allclose(ensemble.predict_members(x), expected, atol=1e-6)
    ensemble.save(tmp_path / "ensemble.keras")
    np.save(tmp_path / "x.npy", x)
    in_a_fresh_process(_LOAD, tmp_path)
    found = np.load(tmp_path / "members.npy")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    exporting = "tensorflow" if BACKEND == "torch" else BACKEND
    in_a_fresh_process(_EXPORT + _SERVE, tmp_path, exporting)
    found = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(found, expected.mean(axis=0), atol=1e-5)


@pytest.mark.skipif(BACKEND != "torch", reason="for PyTorch")
class TestExportOnTorch:
    def test_a_saved_model_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="`format`.*KERAS_BACKEND=tensorflow"):
            filled(sequential()).export(tmp_path / "artifact")
        assert os.listdir(tmp_path) == []

    @pytest.mark.skipif(
        KERAS_VERSION <= (3, 10), reason="Keras 3.10 has no such format"
    )
    def test_a_program_of_torch(self, tmp_path):
        import torch

        ensemble, path = filled(sequential()), tmp_path / "ensemble.pt2"
        shapes = {0: torch.export.Dim("examples", min=1, max=1024)}
        options = {"format": "torch", "verbose": False, "dynamic_shapes": shapes}
        ensemble.export(path, **options)
        x, _ = data()
        found = torch.export.load(path).module()(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(found, ensemble.predict(x, verbose=0), atol=1e-6)

    @pytest.mark.slow
    def test_by_way_of_the_file_and_tensorflow(self, tmp_path):
        """What the error advises."""
        ensemble, (x, _) = sampled(), data()
        ensemble.save(tmp_path / "ensemble.keras")
        np.save(tmp_path / "x.npy", x)
        in_a_fresh_process(_EXPORT + _SERVE, tmp_path, "tensorflow")
        expected = ensemble.predict(x, verbose=0)
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-6)


def dropout_model():
    dense = keras.layers.Dense(3)
    return keras.Sequential([keras.Input((5,)), keras.layers.Dropout(0.5), dense])


@pytest.mark.parametrize(
    "make",
    [
        lambda: filled(sequential()),
        lambda: mh.MCDropout(dropout_model()),
        lambda: mh.ParallelChains(sequential(), 2),
    ],
)
def test_the_format_of_old_is_refused(make, tmp_path):
    model = make()
    for name in ("model.h5", "model.hdf5"):
        with pytest.raises(ValueError, match=r"`filepath` must end in `.keras`"):
            model.save(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_weights_alone_and_folders(tmp_path):
    ensemble, (x, _) = filled(sequential()), data()
    expected = ensemble.predict(x, verbose=0)
    ensemble.save_weights(tmp_path / "ensemble.weights.h5")
    other = mh.Ensemble(sequential(seed=5), 2)
    other.load_weights(tmp_path / "ensemble.weights.h5")
    np.testing.assert_array_equal(other.predict(x, verbose=0), expected)
    ensemble.save(tmp_path / "folder", zipped=False)
    loaded = keras.models.load_model(tmp_path / "folder")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), expected)


def test_a_class_that_keras_does_not_know(tmp_path):
    path = tmp_path / "ensemble.keras"
    ensemble = filled(built(Unknown))
    ensemble.save(path)
    message = r"`member`.*register_keras_serializable.*custom_objects=\{'Unknown'"
    with pytest.raises(ValueError, match=message):
        keras.models.load_model(path)
    x, _ = data()
    loaded = keras.models.load_model(path, custom_objects={"Unknown": Unknown})
    expected = ensemble.predict(x, verbose=0)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), expected)


class OwnLayer(keras.layers.Dense):
    pass


def test_a_layer_that_keras_does_not_know(tmp_path):
    """The remedy names the layer, and not the model around it."""
    model = keras.Sequential([keras.Input((4,)), OwnLayer(2, "softmax")])
    mh.deep_ensemble([model]).save(tmp_path / "ensemble.keras")
    message = r"custom_objects=\{'OwnLayer'.*error: Could not locate class 'OwnLayer'$"
    with pytest.raises(ValueError, match=message):
        keras.models.load_model(tmp_path / "ensemble.keras")


@pytest.mark.skipif(
    KERAS_VERSION <= (3, 10), reason="Keras 3.10 saves without a sentence"
)
def test_a_class_without_configuration(tmp_path):
    """Keras' own sentence names the class and what it must have."""
    ensemble = filled(built(WithoutConfig, 2))
    with pytest.raises(NotImplementedError, match="WithoutConfig.*[^$]*get_config"):
        ensemble.save(tmp_path / "ensemble.keras")


@pytest.mark.parametrize(
    "make, train",
    [
        (lambda: filled(sequential()), False),
        (lambda: mh.MCDropout(dropout_model()), False),
        (lambda: mh.ParallelChains(sequential(), 2), True),
    ],
)
def test_what_auto_became_elsewhere_is_not_taken_over(make, train):
    """Keras saves True on JAX; on PyTorch that would compile for minutes."""
    model = make()
    options = {"optimizer": mh.SGLD(0.1, train_size=96)} if train else {}
    model.compile(loss="sparse_categorical_crossentropy", **options)
    auto = model.jit_compile
    for saved, expected in ((True, auto), (False, False)):
        config = model.get_compile_config() | {"jit_compile": saved}
        other = make()
        other.compile_from_config(config)
        assert other.jit_compile == expected


def test_passes_are_kept_once(tmp_path):
    model = dropout_model()
    passes = mh.MCDropout(model, 3)
    assert passes.layers == [model]
    assert len({id(v) for v in passes.variables}) == len(passes.variables)
    assert [v.path for v in passes.weights] == [v.path for v in model.weights]
    passes.save(tmp_path / "passes.keras")
    with zipfile.ZipFile(tmp_path / "passes.keras") as archive:
        archive.extract("model.weights.h5", tmp_path)
    arrays, groups = [], []
    with h5py.File(tmp_path / "model.weights.h5") as file:
        file.visititems(
            lambda name, item: (
                arrays if isinstance(item, h5py.Dataset) else groups
            ).append(name)
        )
    assert len(arrays) == len(model.weights)
    assert not any("functional" in name for name in groups)
    loaded = keras.models.load_model(tmp_path / "passes.keras")
    for mine, theirs in zip(passes.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(numpy(mine), numpy(theirs))
