"""Chains of one posterior that separate runs kept, each in a directory of its own."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.posterior import reading
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.sample_folders import edit
from tests.support.sample_folders import keep
from tests.support.sample_folders import manifest_of
from tests.support.samplers import SAMPLERS
from tests.support.samplers import TRAIN_SIZE

SEEDS = (3, 4)
SAMPLES = 6
load = mh.PosteriorSamples.load


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A model, and the folders of two weighted chains."""
    root = tmp_path_factory.mktemp("chains")
    folders = [root / f"chain-{seed}" for seed in SEEDS]
    for seed, folder in zip(SEEDS, folders, strict=True):
        sampler = SAMPLERS["csgld"].make(seed=seed)
        model = keep(folder, sampler, sequential(seed), every=3)
    return model, folders


@pytest.fixture
def folders(kept, tmp_path):
    return [Path(shutil.copytree(path, tmp_path / path.name)) for path in kept[1]]


# A pool equals its chains.


def check_chains(folders, model):
    """A pool has the numbers of its chains, bit for bit, in the order of the list."""
    pool, chains = load(folders), [load(folder) for folder in folders]
    assert len(pool) == SAMPLES
    for name in ("iterations", "energies"):
        columns = [getattr(chain, name) for chain in chains]
        np.testing.assert_array_equal(getattr(pool, name), np.stack(columns, axis=1))
    draws, _ = reading.chains(pool._store, model)
    for index, chain in enumerate(chains):
        for draw, expected in zip(draws, chain._store.read(model), strict=True):
            np.testing.assert_array_equal(draw[index], expected)
    # The members of an ensemble: all chains of a sample, then the next sample.
    ensemble, x = pool.ensemble(model), data()[0]
    members = ensemble.predict_members(x).reshape(SAMPLES, len(folders), len(x), -1)
    predictions = pool.predictions(model, x)
    assert predictions.shape == (len(folders), SAMPLES, TRAIN_SIZE, CLASSES)
    for index, chain in enumerate(chains):
        expected = chain.predictions(model, x)[0]
        np.testing.assert_allclose(predictions[index], expected, atol=1e-6)
        np.testing.assert_allclose(members[:, index], expected, atol=1e-6)


def log_weights_in(folders):
    """Those of the files, shape (samples, chains), in float64."""
    columns = [
        [entry["log_weight"] for entry in manifest_of(folder)["samples"]]
        for folder in folders
    ]
    return np.array(columns, "float64").T


def check_weights(folders, model):
    """The joint formula: S C exp(l) / sum(exp(l)) over all samples of all chains."""
    logs = log_weights_in(folders)
    expected = logs.size * np.exp(logs) / np.exp(logs).sum()
    pool = load(folders)
    assert pool.weights.dtype == "float64"
    np.testing.assert_allclose(pool.weights, expected, rtol=1e-12)
    assert pool.weight_ess == pytest.approx(logs.size**2 / np.square(expected).sum())
    ensemble = pool.ensemble(model)
    shares = ensemble.averaging_weights.reshape(logs.shape)
    np.testing.assert_allclose(shares * logs.size, expected, rtol=1e-5)
    x = data()[0]
    mean = np.tensordot(shares.ravel(), ensemble.predict_members(x), axes=1)
    np.testing.assert_allclose(ensemble.predict(x, verbose=0), mean, atol=1e-6)


def test_a_pool_is_its_chains(kept):
    check_chains(kept[1], kept[0])
    check_chains(kept[1][::-1], kept[0])


def test_weights_are_normalised_over_all_chains(kept):
    model, folders = kept
    # The chains do not have the same weight, or nothing would be tested.
    means = load(folders).weights.mean(axis=0)
    assert abs(means[0] - means[1]) > 1e-3
    check_weights(folders, model)


def test_a_list_of_one_has_a_chain_axis(kept):
    model, folders = kept
    check_chains(folders[:1], model)
    assert load(folders[:1]).weights.shape == (SAMPLES, 1)


def test_the_chains_of_arviz_are_those_of_the_list(kept):
    pytest.importorskip("arviz")
    model, folders = kept
    path = model.weights[0].path
    pool = np.asarray(load(folders).to_arviz(model)["posterior"][path])
    for index, folder in enumerate(folders):
        chain = np.asarray(load(folder).to_arviz(model)["posterior"][path])
        np.testing.assert_array_equal(pool[index], chain[0])


def test_r_hat_over_directories_is_one_line(kept):
    pytest.importorskip("arviz")
    pytest.importorskip("pandas")
    model, folders = kept
    x = data()[0][:2]
    table = mh.diagnostics.summary({"p": load(folders).predictions(model, x)})
    chains = [load(folder).predictions(model, x) for folder in folders]
    expected = mh.diagnostics.summary({"p": np.concatenate(chains)})
    assert len(table) == 2 * CLASSES
    np.testing.assert_allclose(table["r_hat"], expected["r_hat"], rtol=1e-4)
    np.testing.assert_allclose(table["ess_bulk"], expected["ess_bulk"], rtol=1e-3)


# What does not fit together.


def check_refused(match, directory, truncate=False):
    with pytest.raises(ValueError, match=f"(?s)Argument `directory` .*{match}"):
        load(directory, truncate)


def test_the_same_folder_twice_is_refused(kept, tmp_path):
    one, _ = kept[1]
    check_refused("list each folder once.*chain-3", [one, one])
    (tmp_path / "link").symlink_to(one)
    check_refused("list each folder once.*chain-3.*link", [str(one), tmp_path / "link"])


def test_the_same_seed_twice_is_refused(kept, tmp_path):
    copy = shutil.copytree(kept[1][0], tmp_path / "copy")
    check_refused("another `seed`.*chain-3.*copy.*seed=3", [kept[1][0], copy])


def test_another_model_is_refused(kept, tmp_path):
    wider = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")]
    )
    keep(tmp_path, SAMPLERS["csgld"].make(seed=9), wider, every=3)
    check_refused("one model.*names, shapes.*chain-3", [kept[1][0], tmp_path])


def test_other_names_are_refused(kept, folders):
    def rename(manifest):
        manifest["weights"][0][0] = "weight"
        return manifest

    edit(folders[1], rename)
    check_refused("one model.*names, shapes.*'weight'", folders)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("csgld", {"temperature": 0.5}, "temperature=1.0, not 0.5"),
        ("csgld", {"train_size": 30}, "train_size=96, not 30"),
        ("csghmc", {}, "sampler='CSGLD', not 'CSGHMC'"),
    ],
)
@pytest.mark.filterwarnings("ignore:An epoch of `fit` has 96")
def test_another_law_is_refused(name, options, match, kept, tmp_path):
    keep(tmp_path, SAMPLERS[name].make(seed=9, **options), every=3)
    check_refused(f"one sampler.*chain-3.*{match}", [kept[1][0], tmp_path])


def test_another_learning_rate_is_not_another_law(folders, kept):
    def change(manifest):
        manifest["run"]["arguments"]["learning_rate"] *= 2
        return manifest

    edit(folders[1], change)
    check_chains(folders, kept[0])


def test_a_folder_without_samples_is_refused(kept, tmp_path):
    check_refused("which has none", [kept[1][0], tmp_path])


def check_lengths(folders, model):
    """Chains of unequal lengths need `truncate`, which keeps the oldest samples."""
    edit(folders[1], lambda manifest: manifest | {"samples": manifest["samples"][:-1]})
    check_refused("truncate=True.*chain-3.*: 6.*chain-4.*: 5", folders)
    check_refused("truncate=True", folders[::-1])
    pool = load(folders, truncate=True)
    assert len(pool) == SAMPLES - 1
    for index, folder in enumerate(folders):
        chain = load(folder)
        iterations = chain.iterations[: SAMPLES - 1]
        np.testing.assert_array_equal(pool.iterations[:, index], iterations)
        draws, _ = reading.chains(pool._store, model)
        for draw, expected in zip(draws, chain._store.read(model), strict=True):
            np.testing.assert_array_equal(draw[index], expected[: SAMPLES - 1])
    assert pool.ensemble(model).num_members == 2 * (SAMPLES - 1)


def test_unequal_lengths_need_truncate(kept, folders):
    check_lengths(folders, kept[0])


def test_a_pool_is_no_callback(kept):
    model, folders = kept
    with pytest.raises(ValueError, match="several directories must not be a callback"):
        fit(compiled(SAMPLERS["csgld"].make(seed=9)), callbacks=[load(folders)])


# Many chains in a folder, and weights that do not move.


def parallel(seed, folder):
    chains = mh.ParallelChains(sequential(), 2, seed=seed)
    sampler = SAMPLERS["csgld"].make(seed=seed)
    return keep(folder, sampler, chains, every=6)


def test_chains_of_parallel_chains_follow_each_other(kept, tmp_path):
    folders = [tmp_path / name for name in "ab"]
    models = [parallel(seed, folder) for seed, folder in enumerate(folders)]
    pool, runs = load(folders), [load(folder) for folder in folders]
    assert pool.weights.shape == pool.iterations.shape == (3, 4)
    np.testing.assert_array_equal(pool.energies, np.hstack([r.energies for r in runs]))
    logs = np.hstack([reading.log_weights(run._store.records) for run in runs])
    expected = logs.size * np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_allclose(pool.weights, expected, rtol=1e-12)
    draws, _ = reading.chains(pool._store, models[0])
    parts = [reading.chains(run._store, models[0])[0] for run in runs]
    for draw, *part in zip(draws, *parts, strict=True):
        np.testing.assert_array_equal(draw, np.concatenate(part))
    x = data()[0]
    members = pool.ensemble(models[0]).predict_members(x)
    predictions = np.moveaxis(pool.predictions(models[0], x), 0, 1)
    np.testing.assert_allclose(members, predictions.reshape(members.shape), atol=1e-6)
    # The shapes of their weights are others.
    check_refused("one model", [folders[0], kept[1][0]])


@pytest.mark.parametrize("is_same", [True, False])
def test_frozen_weights_are_shared_if_they_are_the_same(is_same, tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for seed, folder in enumerate(folders):
        model = sequential(0 if is_same else seed)
        model.layers[0].trainable = False
        keep(folder, SAMPLERS["sgld"].make(seed=seed), model)
    pool = load(folders)
    # The biases are zeros in both.
    assert pool.ensemble(model).shared == ((0, 1) if is_same else (1,))
    draws, _ = reading.chains(pool._store, model)
    for index, folder in enumerate(folders):
        for draw, expected in zip(draws, load(folder)._store.read(model), strict=True):
            np.testing.assert_array_equal(draw[index], expected)
