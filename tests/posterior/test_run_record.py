"""What a folder of samples tells: checksums, the seed and the sampler of the run."""

import functools
import hashlib
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.posterior import directory
from keras_mhmcmc.posterior import files
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.sample_folders import as_first_written
from tests.support.sample_folders import edit
from tests.support.sample_folders import flip_a_bit
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


def test_the_checksum_is_the_sha256_of_the_file(folder):
    manifest = manifest_of(folder)
    found = {entry["file"]: entry["sha256"] for entry in manifest["samples"]}
    found["base.h5"] = manifest["base_sha256"]
    assert len(found) == 4
    for name, sha256 in found.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256


def change(name, folder, model):
    """Flips a bit of a weight in a file of the folder."""
    weight = model.layers[0 if name == "base.h5" else 1].kernel
    if name != "base.h5":
        samples = mh.PosteriorSamples.load(folder)._store.read(model)
        place = [v.path for v in model.weights].index(weight.path)
        value = samples[place][1]
    else:
        value = numpy(weight)
    flip_a_bit(folder / name, value.tobytes())


def check_that_a_change_is_found(name, folder, model):
    change(name, folder, model)
    loaded = mh.PosteriorSamples.load(folder)
    with pytest.raises(ValueError, match=f"{name}.*checksum.*Restore"):
        loaded.ensemble(model)


NAMES = ["sample-0000000012.h5", "base.h5"]


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_bit_is_an_error_that_names_the_file(name, kept, folder):
    check_that_a_change_is_found(name, folder, kept[0])


@pytest.mark.parametrize("name", NAMES)
def test_an_ignored_checksum_is_caught(name, kept, folder, monkeypatch):
    without = lambda path, attributes, sha256: files.read(path, attributes, None)
    monkeypatch.setattr(
        directory, "files", type("Files", (), vars(files) | {"read": without})
    )
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check_that_a_change_is_found(name, folder, kept[0])


def test_a_folder_without_checksums_is_read_and_continued(kept, tmp_path):
    """Samples that are added later have checksums."""
    sampler = SAMPLERS["sgld"].make(seed=3)
    model = keep(tmp_path, sampler, frozen(), epochs=1)
    edit(tmp_path, as_first_written)
    before = mh.PosteriorSamples.load(tmp_path)._store.read(model)
    fit(model, epochs=2, callbacks=[mh.PosteriorSamples(directory=tmp_path)])
    manifest = manifest_of(tmp_path)
    assert [entry["sha256"] is None for entry in manifest["samples"]] == [
        True,
        False,
        False,
    ]
    assert manifest["base_sha256"] is None and manifest["run"]["seed"] is None
    after = mh.PosteriorSamples.load(tmp_path)._store.read(model)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


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
