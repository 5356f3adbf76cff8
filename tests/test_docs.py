"""What the documentation says runs, and what is public is documented."""

import doctest
import importlib
import inspect
import pathlib
import re

import pytest

import keras_mhmcmc as mh
from keras_mhmcmc import ensemble
from keras_mhmcmc import partition
from keras_mhmcmc import posterior
from keras_mhmcmc import priors
from keras_mhmcmc import proposals
from keras_mhmcmc import pruning
from keras_mhmcmc import schedules
from keras_mhmcmc.chains import parallel
from keras_mhmcmc.chains import run
from keras_mhmcmc.chains import targets
from keras_mhmcmc.datasets import loading
from keras_mhmcmc.datasets import regression
from keras_mhmcmc.datasets import scaling
from keras_mhmcmc.optimizers import csgld
from keras_mhmcmc.optimizers import esm
from keras_mhmcmc.optimizers import mhbt
from keras_mhmcmc.optimizers import psgld
from keras_mhmcmc.optimizers import rsgld
from keras_mhmcmc.optimizers import sghmc
from keras_mhmcmc.optimizers import sgld
from keras_mhmcmc.optimizers import sgldsa
from keras_mhmcmc.plots import attacks
from keras_mhmcmc.plots import calibration
from keras_mhmcmc.plots import chains
from keras_mhmcmc.plots import densities
from keras_mhmcmc.plots import energies
from keras_mhmcmc.plots import sparsity
from keras_mhmcmc.plots import training
from keras_mhmcmc.transitions import contour
from keras_mhmcmc.transitions import metropolis
from keras_mhmcmc.transitions import stochastic_gradient

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    )
]
MODULES = [
    # A function of the same name hides the module.
    importlib.import_module("keras_mhmcmc.chains.equi_energy"),
    importlib.import_module("keras_mhmcmc.chains.replica_exchange"),
    attacks,
    calibration,
    chains,
    contour,
    csgld,
    densities,
    energies,
    ensemble,
    esm,
    loading,
    mh.losses,
    mh.diagnostics,
    mhbt,
    metropolis,
    parallel,
    partition,
    posterior,
    priors,
    proposals,
    pruning,
    psgld,
    regression,
    rsgld,
    run,
    scaling,
    schedules,
    sghmc,
    sgld,
    sgldsa,
    sparsity,
    stochastic_gradient,
    targets,
    training,
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("sklearn")
    if "mh.plots" in block:
        pytest.importorskip("matplotlib").use("Agg")
        pytest.importorskip("arviz")
    exec(compile(block, "documentation", "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module):
    if module.__name__.startswith("keras_mhmcmc.plots"):
        pytest.importorskip("matplotlib").use("Agg")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def public_objects():
    for name in mh.__all__:
        value = getattr(mh, name)
        yield name, value
        if inspect.ismodule(value) and value is not mh.kernels:
            for inner, part in vars(value).items():
                home = f"{getattr(part, '__module__', None)}."
                is_ours = home.startswith(f"{value.__name__}.")
                if not inner.startswith("_") and is_ours:
                    yield f"{name}.{inner}", part


@pytest.mark.parametrize(
    "name, value", [pytest.param(*pair, id=pair[0]) for pair in public_objects()]
)
def test_public_objects_are_documented(name, value):
    lines = inspect.getdoc(value).splitlines()
    assert lines[0].endswith(".")
    # Python inherits docstrings; a class of ours has its own.
    assert not inspect.isclass(value) or value.__doc__


@pytest.mark.parametrize(
    "sampler", [mh.SGLD, mh.PSGLD, mh.SGHMC, mh.MHBT, mh.RSGLD, mh.MINT]
)
def test_samplers_document_law_arguments_and_source(sampler):
    text = inspect.getdoc(sampler)
    for part in ("Samples exp(-U/T)", "Args:", "Raises:", "Example:", "Reference:"):
        assert part in text
    arguments = set(inspect.signature(sampler.__init__).parameters)
    for argument in arguments - {"self", "options"}:
        assert f"{argument}:" in text


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_guards_that_the_pages_name_exist():
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in tests, f"{page.name}: {name}"
