"""The notebooks: made from their scripts, clean, and they run."""

import os
import pathlib
import sys

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "examples" / "notebooks").glob("*.py"))
NAMES = [path.stem for path in SCRIPTS]


@pytest.fixture(scope="module")
def tool():
    """The module docs/tools/notebooks.py."""
    pytest.importorskip("jupytext")
    pytest.importorskip("nbclient")
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    import notebooks

    sys.path.pop(0)
    return notebooks


def test_there_are_eight():
    assert len(NAMES) == 8


@pytest.mark.slow_on("jax", "tensorflow")
@pytest.mark.parametrize("path", SCRIPTS, ids=NAMES)
def test_the_notebook_and_its_page_are_those_of_the_script(tool, path):
    """`python docs/tools/notebooks.py` makes them again."""
    import nbformat

    kept = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    made = tool.unexecuted(path)
    assert [cell.source for cell in kept.cells] == [cell.source for cell in made.cells]
    assert [cell.id for cell in kept.cells] == [cell.id for cell in made.cells]
    page = ROOT / "docs" / "notebooks" / f"{path.stem}.md"
    text, pictures = tool.page(kept, path.stem)
    assert page.read_text() == text
    for name, content in pictures.items():
        assert (page.parent / name).read_bytes() == content


@pytest.mark.slow_on("jax", "tensorflow")
@pytest.mark.parametrize("path", SCRIPTS, ids=NAMES)
def test_a_notebook_has_outputs_and_no_path_or_error(tool, path):
    import nbformat

    kept = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    outputs = [part for cell in kept.cells for part in cell.get("outputs", [])]
    assert outputs
    assert all(part.output_type != "error" for part in outputs)
    assert all(part.get("name", "stdout") == "stdout" for part in outputs)
    text = path.with_suffix(".ipynb").read_text()
    for word in ("Traceback", "/tmp", "/home", "/root", "site-packages", "C:\\\\"):
        assert word not in text
    assert len(text) < 400_000


def test_a_notebook_without_a_repository_has_no_link(tool, monkeypatch):
    monkeypatch.setattr(tool, "colab_link", lambda name: f"https://{name}")
    (first, *_) = tool.unexecuted(SCRIPTS[0]).cells
    assert first.source.endswith(f"[Run it in Colab](https://{NAMES[0]})")


def small_images(name, data_dir=None, split=0):
    """Random images in place of a download."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(5100, 28, 28, 1)).astype("float32")
    y = rng.integers(10, size=5100).astype("int32")
    return (x[:5000], y[:5000]), (x[5000:], y[5000:])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_script_runs(name, tmp_path, monkeypatch):
    """With few epochs, and without a download."""
    for package in ("sklearn", "scipy", "arviz", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    # RSGLD's warm-up has 500 steps; an epoch of the digits has 24.
    epochs = {"robustness": "24", "fashion_cnn": "1"}.get(name, "4")
    monkeypatch.setenv("EPOCHS", epochs)
    monkeypatch.delenv("DATA_DIR", raising=False)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    if name == "fashion_cnn":
        monkeypatch.setattr(mh.datasets, "load", small_images)
    path = ROOT / "examples" / "notebooks" / f"{name}.py"
    code = path.read_text()
    for long, short in (("100_000", "2_000"), ("burn_in=5_000", "burn_in=100")):
        code = code.replace(long, short)
    exec(compile(code, str(path), "exec"), {"__name__": name})
    assert os.environ["KERAS_BACKEND"] == keras.backend.backend()
