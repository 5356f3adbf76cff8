"""What a folder of samples tells: checksums, the seed and the sampler of the run."""

import functools
import itertools
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from keras_mhmcmc.posterior import files
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.sample_folders import keep
from tests.support.sample_folders import manifest_of
from tests.support.samplers import SAMPLERS
from tests.support.samplers import TRAIN_SIZE


def frozen():
    """A model whose first layer is in the base of a folder."""
    model = sequential()
    model.layers[0].trainable = False
    return model


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A model, and the folder of its samples."""
    folder = tmp_path_factory.mktemp("kept")
    return keep(folder, SAMPLERS["sgld"].make(seed=3), frozen()), folder


@pytest.fixture
def folder(kept, tmp_path):
    return Path(shutil.copytree(kept[1], tmp_path / "samples"))


# Checksums.


@pytest.mark.parametrize("name", ["sample-0000000012.h5", "base.h5"])
def test_no_changed_bit_gives_another_number(name, kept, folder):
    """Wherever it is in the file; most changes are errors, which name the file."""
    expected = mh.PosteriorSamples.load(folder)._store.read(kept[0])
    content, errors = (folder / name).read_bytes(), 0
    for place in range(0, len(content), 31):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        (folder / name).write_bytes(changed)
        loaded = mh.PosteriorSamples.load(folder)
        try:
            found = loaded._store.read(kept[0])
        except ValueError as error:
            errors += 1
            assert name in str(error) and "Restore it" in str(error)
        else:
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)
    assert errors > 30


def test_arrays_of_all_kinds_come_back(tmp_path):
    """HDF5 checks the parts of an array, which a single number does not have."""
    path, dtypes = str(tmp_path / "a.h5"), ("float32", "float64", "int32", "bfloat16")
    shapes = [(), (0,), (1,), (3,), (0, 3), (300, 400)]
    written = {}
    for shape, dtype in itertools.product(shapes, dtypes):
        values = 3.0 * np.ones(shape)
        written[len(written)] = _backend.host_value(
            keras.ops.convert_to_tensor(values, dtype)
        )
    files.write(path, written, {})
    found = files.read(path, {}, "")
    assert found.keys() == written.keys()
    for index, array in written.items():
        assert (found[index].shape, found[index].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(found[index], array)


# The run.


def test_the_manifest_has_the_seed_and_the_arguments(folder):
    run = manifest_of(folder)["run"]
    assert (run["seed"], run["sampler"], run["chains"]) == (3, "SGLD", None)
    expected = SAMPLERS["sgld"].make(seed=3).get_config()
    # The rate is the one that was given, not its rounding to float32.
    rate = expected.pop("learning_rate")
    assert run["arguments"].pop("learning_rate") == pytest.approx(rate)
    assert run["arguments"] == expected


def test_a_seed_that_was_drawn_is_written_and_stays(tmp_path):
    model = keep(tmp_path / "a", SAMPLERS["sgld"].make(), epochs=1)
    seed = manifest_of(tmp_path / "a")["run"]["seed"]
    assert seed == model.optimizer.noise_seed()
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    for name in "ab":  # the loaded sampler continues the same noise
        posterior = mh.PosteriorSamples(directory=tmp_path / name)
        fit(model, epochs=1, callbacks=[posterior])
        assert manifest_of(tmp_path / name)["run"]["seed"] == seed


def test_the_number_of_chains_is_written(tmp_path):
    chains = mh.ParallelChains(sequential(), 2, seed=0)
    keep(tmp_path, SAMPLERS["sgld"].make(seed=5), chains, epochs=1)
    run = manifest_of(tmp_path)["run"]
    assert (run["seed"], run["chains"]) == (5, 2)


@pytest.mark.filterwarnings("ignore:The optimizer SGD is not a sampler")
def test_another_optimizer_has_no_seed(tmp_path):
    keep(tmp_path, keras.optimizers.SGD(0.1), epochs=1)
    run = manifest_of(tmp_path)["run"]
    assert set(run.values()) == {None}


def half():
    return 0.05


class WithoutConfiguration(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.05


def recorded(rate):
    sampler = mh.SGLD(rate, train_size=TRAIN_SIZE, seed=3)
    return sampler.recorded_arguments()["learning_rate"]


def test_a_rate_without_a_configuration_stands_by_its_name():
    """No code goes into a file, and no run fails for what nobody reads."""
    assert recorded(0.05) == 0.05
    assert recorded(half) == "half"
    assert recorded(lambda: 0.05) == "<lambda>"
    assert recorded(functools.partial(float, "0.05")) == "partial"
    assert recorded(WithoutConfiguration()) == "WithoutConfiguration"
    schedule = mh.schedules.CyclicalCosine(0.05, 10)
    assert recorded(schedule)["config"] == schedule.get_config()


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_arguments_of_each_sampler_can_be_written(name):
    sampler = SAMPLERS[name].make(seed=3)
    compiled(sampler)
    arguments = sampler.recorded_arguments()
    assert arguments.keys() >= {"learning_rate", "train_size"}
    assert sampler.noise_seed() == 3
