"""Folders of samples that something else has written to, and loading without code."""

import ast
import json
import os
import shutil
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.samplers import SAMPLERS

PACKAGE = Path(mh.__file__).parent
NAMES = ["sample-0000000006.h5", "sample-0000000012.h5", "sample-0000000018.h5"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A model, and the folder of its three samples."""
    folder = tmp_path_factory.mktemp("kept")
    model = compiled(SAMPLERS["csgld"].make(seed=3))
    fit(model, epochs=3, callbacks=[mh.PosteriorSamples(directory=folder)])
    model.save_weights(folder.parent / "other.weights.h5")
    return model, folder


@pytest.fixture
def folder(kept, tmp_path):
    return Path(shutil.copytree(kept[1], tmp_path / "samples"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


MISSING = object()


def edited(path, value):
    """A manifest in which the entry at a path has another value."""

    def edit(manifest):
        *parents, last = path
        inner = manifest
        for key in parents:
            inner = inner[key]
        if value is MISSING:
            del inner[last]
        else:
            inner[last] = value
        return manifest

    return edit


def at(name, value):
    return edited(["samples", 1, name], value)


BAD_MANIFESTS = {
    "newer": edited(["format"], 2),
    "no format": edited(["format"], MISSING),
    "no weights": edited(["weights"], MISSING),
    "weights without shapes": edited(["weights"], [["kernel", "float32"]]),
    "no samples": edited(["samples"], MISSING),
    "no iteration": at("iteration", MISSING),
    "iteration of text": at("iteration", "12"),
    "iteration of another": at("iteration", 18),
    "no weight": at("log_weight", MISSING),
    "weight above all": at("log_weight", float("inf")),
    "weight not a number": at("log_weight", float("nan")),
    "no file": at("file", MISSING),
    "file above": at("file", "../sample-0000000012.h5"),
    "file of the base": at("file", "base.h5"),
    "order": lambda m: m | {"samples": m["samples"][::-1]},
    "a list": lambda m: [m],
    "null": lambda m: None,
}
BAD_TEXTS = {
    "empty": b"",
    "no json": b"{'format': 1}",
    "half": b'{"format": 1, "weights": [], "samples": [{"fi',
    "no text": bytes(range(256)),
}


@pytest.mark.parametrize("name", [*BAD_MANIFESTS, *BAD_TEXTS])
def test_a_bad_manifest_is_an_error_that_names_it(name, kept, folder):
    path = folder / "manifest.json"
    if name in BAD_TEXTS:
        path.write_bytes(BAD_TEXTS[name])
    else:
        manifest = BAD_MANIFESTS[name](json.loads(path.read_text()))
        path.write_text(json.dumps(manifest))
    before = contents(folder)
    for use in (mh.PosteriorSamples.load, lambda f: mh.PosteriorSamples(directory=f)):
        with pytest.raises(ValueError, match="manifest.json.*(Restore|update)"):
            use(folder)
    assert contents(folder) == before


def test_a_manifest_with_more_than_is_needed_is_read(kept, folder):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["comment"] = manifest["samples"][0]["comment"] = "mine"
    path.write_text(json.dumps(manifest))
    assert len(mh.PosteriorSamples.load(folder)) == 3


def swapped(folder, kept):
    one, other = folder / NAMES[0], folder / NAMES[1]
    one.rename(folder / "x")
    other.rename(one)
    (folder / "x").rename(other)


def linked_out(folder, kept):
    (folder / NAMES[1]).rename(folder.parent / NAMES[1])
    (folder / NAMES[1]).symlink_to(folder.parent / NAMES[1])


def rewritten(change):
    def rewrite(folder, kept):
        with h5py.File(folder / NAMES[1], "r+") as file:
            change(file, folder)

    return rewrite


def link_inside(file, folder):
    del file["0"]
    file["0"] = h5py.ExternalLink(str(folder / NAMES[0]), "/0")


def other_shape(file, folder):
    del file["0"]
    file["0"] = np.zeros((2, 2), "float32")
    file["0"].attrs["dtype"] = "float32"


def other_type(file, folder):
    values = file["0"][()].astype("int32")
    del file["0"]
    file["0"] = values
    file["0"].attrs["dtype"] = "int32"


def objects(file, folder):
    file["0"].attrs["dtype"] = "object"


def without_an_array(file, folder):
    del file["0"]


def a_group(file, folder):
    del file["0"]
    file.create_group("0")


def several_iterations(file, folder):
    file.attrs["iteration"] = [12, 12]


def cut(share):
    def truncate(folder, kept):
        path = folder / NAMES[1]
        os.truncate(path, int(share * path.stat().st_size))

    return truncate


BAD_SAMPLES = {
    "missing": lambda folder, kept: os.remove(folder / NAMES[1]),
    "swapped": swapped,
    "random bytes": lambda folder, kept: (folder / NAMES[1]).write_bytes(
        np.random.default_rng(0).bytes(5000)
    ),
    "of Keras": lambda folder, kept: shutil.copy(
        kept[1].parent / "other.weights.h5", folder / NAMES[1]
    ),
    "the base": lambda folder, kept: shutil.copy(folder / "base.h5", folder / NAMES[1]),
    "a folder": lambda folder, kept: (
        os.remove(folder / NAMES[1]),
        os.mkdir(folder / NAMES[1]),
    ),
    "linked out": linked_out,
    **{
        change.__name__: rewritten(change)
        for change in (
            link_inside,
            other_shape,
            other_type,
            objects,
            without_an_array,
            a_group,
            several_iterations,
        )
    },
    **{f"cut to {share}": cut(share) for share in (0.0, 0.01, 0.3, 0.6, 0.9, 0.999)},
}


@pytest.mark.parametrize("name", BAD_SAMPLES)
def test_a_bad_sample_is_an_error_that_names_it(name, kept, folder):
    BAD_SAMPLES[name](folder, kept)
    before = contents(folder)
    loaded = mh.PosteriorSamples.load(folder)
    name = NAMES[0] if name == "swapped" else NAMES[1]
    with pytest.raises(ValueError, match=f"{name}.*Restore"):
        loaded.ensemble(kept[0])
    assert contents(folder) == before
    # The remedy works: without its entry the others are as they were.
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["samples"] = [e for e in manifest["samples"] if e["file"] != name]
    if name == NAMES[1]:
        (folder / "manifest.json").write_text(json.dumps(manifest))
        ensemble = mh.PosteriorSamples.load(folder).ensemble(kept[0])
        assert ensemble.predict_members(data()[0]).shape[0] == 2


@pytest.mark.parametrize("content", [None, b"", b"no HDF5"])
def test_a_bad_base_is_an_error_that_names_it(content, kept, folder):
    os.remove(folder / "base.h5")
    if content is not None:
        (folder / "base.h5").write_bytes(content)
    with pytest.raises(ValueError, match="base.h5.*Restore it from a copy"):
        mh.PosteriorSamples.load(folder).ensemble(kept[0])


def test_what_a_dead_process_left_is_cleared_and_nothing_else(folder, kept):
    ours = [f"unfinished-{name}" for name in (NAMES[2], "base.h5", "manifest.json")]
    others = ["unfinished-thesis.h5", "sample-of-mine.h5", "notes.txt"]
    for name in [*ours, *others]:
        (folder / name).write_text("half")
    fit(kept[0], epochs=1, callbacks=[mh.PosteriorSamples(directory=folder)])
    left = set(os.listdir(folder))
    assert not left & set(ours)
    assert set(others) <= left


# No code in files.

UNSAFE_MODULES = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}
UNSAFE_ATTRIBUTES = {
    "torch.load",
    "np.loads",
    "pickle.load",
    "keras.config.enable_unsafe_deserialization",
    "yaml.load",
}


def unsafe(source):
    """What in a module's source could run code that is read from a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
            yield from UNSAFE_MODULES & set(names)
        elif isinstance(node, ast.ImportFrom):
            yield from UNSAFE_MODULES & {(node.module or "").split(".")[0]}
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in UNSAFE_ATTRIBUTES:
            yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
                yield node.func.id
            for keyword in node.keywords:
                text = f"{keyword.arg}={ast.unparse(keyword.value)}"
                if text in ("allow_pickle=True", "safe_mode=False"):
                    yield text
            if ast.unparse(node.func) == "np.load" and not any(
                keyword.arg == "allow_pickle" for keyword in node.keywords
            ):
                yield "np.load without allow_pickle=False"


def test_no_module_can_run_code_from_a_file():
    sources = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    assert len(sources) > 50
    assert {p: list(unsafe(s)) for p, s in sources.items() if list(unsafe(s))} == {}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_compiled_model_loads_in_safe_mode(name, tmp_path):
    model = compiled(SAMPLERS[name].make(seed=3), sequential())
    model.optimizer.build(model.trainable_variables)
    path = tmp_path / "model.keras"
    model.save(path)
    with zipfile.ZipFile(path) as file:
        assert sorted(file.namelist()) == [
            "config.json",
            "metadata.json",
            "model.weights.h5",
        ]
        assert b"__lambda__" not in file.read("config.json")
    loaded = keras.models.load_model(path, safe_mode=True)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
