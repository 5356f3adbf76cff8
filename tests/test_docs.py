"""What the documentation says runs, and what is public is documented."""

import doctest
import functools
import importlib
import inspect
import pathlib
import re

import keras
import pytest

import keras_mhmcmc as mh

ROOT = pathlib.Path(__file__).parent.parent
# `test_notebooks.py` runs the scripts of the pages in docs/notebooks.
WRITTEN = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.parent.name != "notebooks"
]
PAGES = [ROOT / "README.md", *WRITTEN]
CODE = {
    page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for page in PAGES
}
# Runs that take minutes are short here. Examples with their settings have tests.
SHORTER = {
    "README.md": (
        ("/ unit, verbose", "/ unit, epochs=20, sampling=0.1, verbose"),
        ("epochs=80, verbose=0)", "epochs=2, verbose=0)"),
        ("epochs=80, verbose=0, ", "epochs=36, verbose=0, "),  # 500 steps of warm-up
        ("burn_in=600", "burn_in=520"),
        ("models, x_test, y_test, **", "models, x_test[:40], y_test[:40], **"),
    ),
    "docs/chains.md": (
        (
            "num_steps=1500,\n        num_chains=20",
            "num_steps=600,\n        num_chains=5",
        ),
    ),
    "docs/attacks.md": (
        ("epochs=15", "epochs=2"),
        ("models, x_test, y_test, [", "models, x_test[:20], y_test[:20], ["),
    ),
    "docs/classification.md": (("epochs=10, sampling=0.5", "epochs=2, sampling=0.1"),),
    "docs/contour.md": (
        ("burn_in=1200", "burn_in=1020"),
        ("epochs=400", "epochs=210"),  # the pilot has 1000 steps
        ("burn_in=1000", "burn_in=100"),
        ("epochs=300", "epochs=60"),
    ),
    "docs/parallel_chains.md": (
        ("epochs=5000", "epochs=20"),
        ("burn_in=7500, every=150", "burn_in=100, every=20"),
    ),
    "docs/plots.md": (
        ("epochs=1000", "epochs=100"),
        ("burn_in=1000, every=50", "burn_in=100, every=50"),
        ("epochs=80", "epochs=10"),
        ("burn_in=600)\nmodels", "burn_in=60)\nmodels"),
        (
            "(models, x_test, y_test)\nprint(table)  #",
            "(models, x_test[:40], y_test[:40])\nprint(table)  #",
        ),
        ("epochs=600", "epochs=60"),
        ("num_steps=100_000", "num_steps=2_000"),
        ("burn_in=5_000", "burn_in=100"),
    ),
    "docs/recipes/bayesian_ensemble.md": (
        ("/ unit, verbose", "/ unit, epochs=5, sampling=0.1, verbose"),
    ),
    "docs/recipes/last_layer.md": (
        ("0.3), progress=False", "0.3), num_steps=120, progress=False"),
    ),
    "docs/recipes/optimise_then_sample.md": (
        ("epochs=80", "epochs=8"),
        ("burn_in=300, every=30", "burn_in=60, every=6"),
    ),
    "docs/regression.md": (
        ("[:, None], verbose=0)", "[:, None], epochs=5, sampling=0.1, verbose=0)"),
    ),
    "docs/tempering.md": (
        ("num_steps=300", "num_steps=60"),
        ("burn_in=100", "burn_in=20"),
        ("ring_steps=100", "ring_steps=20"),
    ),
}


# The README runs at each landing, the blocks of the other pages in `make test-all`.
FIRST_PAGE = pytest.mark.in_turn("jax", "tensorflow", "torch")
BLOCKS = [
    pytest.param(
        page,
        number,
        id=f"{page.name}-{number}",
        marks=FIRST_PAGE if page == PAGES[0] else pytest.mark.slow,
    )
    for page, blocks in CODE.items()
    for number in range(len(blocks))
]
PACKAGE = pathlib.Path(mh.__file__).parent


USE_IT = re.findall(
    r" (\S+\.md)$",
    (ROOT / "mkdocs.yml").read_text().split("  - Use it:\n")[1].split("\n  - ")[0],
    re.MULTILINE,
)
USE_IT = {name: (ROOT / "docs" / name).read_text() for name in ["index.md", *USE_IT]}


def test_the_readme_is_short():
    assert len(PAGES[0].read_text().split()) <= 700


def test_what_a_user_reads_is_short():
    """15,000 words; of a page at most three screens, a table and a picture."""
    words = {name: len(text.split()) for name, text in USE_IT.items()}
    assert len(words) > 15 and sum(words.values()) <= 15_000
    assert max(words.values()) <= 1_500, max(words, key=words.get)
    for name, text in USE_IT.items():
        assert len(re.findall(r"^\|[ :|-]+\|$", text, re.MULTILINE)) <= 1, name
        assert text.count("![") <= 1, name


def table_rows(text):
    """The rows of a page's tables that hold at least two numbers."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return {row for row in rows if len(re.findall(r"\d\.\d", row)) > 1}


def test_no_page_repeats_a_table_of_another():
    seen = {}
    for page in PAGES[1:]:
        for row in table_rows(page.read_text()):
            other = seen.setdefault(row, page.name)
            assert other == page.name, f"{page.name} and {other}: {row}"


# What examples in docstrings import.
PACKAGES = {"art_estimator": "art", "sklearn": "sklearn"}
# Modules with an example in a docstring.
MODULES = [
    ".".join(["keras_mhmcmc", *path.relative_to(PACKAGE).with_suffix("").parts])
    for path in sorted(PACKAGE.rglob("*.py"))
    if re.search(r"^\s+>>> ", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("page, number", BLOCKS)
def test_python_blocks_run(page, number, tmp_path, monkeypatch):
    """A first line may name a backend, processes, or what of the page comes before."""
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("sklearn")
    blocks = CODE[page][: number + 1]
    first_line = blocks[-1].split("\n")[0]
    backend = re.match(r"# with KERAS_BACKEND=(\w+)", first_line)
    if backend and backend[1] != keras.backend.backend():
        pytest.skip(f"for {backend[1]}")
    if "process" in first_line:
        pytest.skip("`tests/backend` has a test that starts the processes")
    if first_line.endswith("after the functions above"):
        blocks = [blocks[0], blocks[-1]]
    elif first_line != "# after the blocks above":
        blocks = blocks[-1:]
    code = "".join(blocks)
    for long, short in SHORTER.get(page.relative_to(ROOT).as_posix(), ()):
        code = code.replace(long, short)
    if "mh.plots" in code:
        pytest.importorskip("matplotlib").use("Agg")
        pytest.importorskip("arviz")
    if re.search(r"^(import|from) art\b", code, re.MULTILINE):
        pytest.importorskip("art")
    exec(compile(code, "documentation", "exec"), {"__name__": "documentation"})


def test_what_the_tests_shorten_is_on_the_page():
    for page in PAGES:
        for long, _ in SHORTER.get(page.relative_to(ROOT).as_posix(), ()):
            assert sum(block.count(long) for block in CODE[page]) == 1


# Their examples train several networks.
LONG = "keras_mhmcmc.sklearn", "keras_mhmcmc.baselines.last_layer"


@pytest.mark.parametrize(
    "name",
    [pytest.param(m, marks=pytest.mark.slow if m in LONG else ()) for m in MODULES],
)
def test_examples_in_docstrings_run(name):
    if name.startswith("keras_mhmcmc.plots"):
        pytest.importorskip("matplotlib").use("Agg")
    for module, package in PACKAGES.items():
        if name.endswith(module):
            pytest.importorskip(package)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def public_objects():
    for name in mh.__all__:
        value = getattr(mh, name)
        yield name, value
        if inspect.ismodule(value) and value is not mh.kernels:
            for inner in value.__all__:
                yield f"{name}.{inner}", getattr(value, inner)


@pytest.mark.parametrize(
    "name, value", [pytest.param(*pair, id=pair[0]) for pair in public_objects()]
)
def test_public_objects_are_documented(name, value):
    lines = inspect.getdoc(value).splitlines()
    assert lines[0].endswith(".")
    # Python inherits docstrings; a class of ours has its own.
    assert not inspect.isclass(value) or value.__doc__


SAMPLERS = sorted(
    name
    for name in mh.__all__
    if inspect.isclass(getattr(mh, name))
    and issubclass(getattr(mh, name), keras.optimizers.Optimizer)
)


def arguments_in(text):
    """The arguments that a docstring has a line for, or sends to another one for."""
    found = set(re.findall(r"^    (\w+): ", text, re.MULTILINE))
    pattern = r"((?:`\w+`[^`.]*)+) (?:are|is) (?:those|that)\s+of `mh\.([\w.]+)`"
    for names, other in re.findall(pattern, " ".join(text.split())):
        value = functools.reduce(getattr, other.split("."), mh)
        listed = arguments_in(inspect.getdoc(value))
        found |= set(re.findall(r"`(\w+)`", names)) & listed
    # The table of a family stands in its kernel, and the shared arguments in `mh.SGLD`.
    pattern = (
        r"ther arguments(?: and the errors)? are those of ((?:[ and]*`mh[\w.]+`)+)"
    )
    for others in re.findall(pattern, " ".join(text.split())):
        for other in re.findall(r"`mh\.([\w.]+)`", others):
            value = functools.reduce(getattr, other.split("."), mh)
            found |= arguments_in(inspect.getdoc(value))
    return found


def test_arguments_are_looked_up_where_a_docstring_sends_to():
    told = "Other arguments are those of `mh.kernels.sghmc` and `mh.SGLD`."
    found = arguments_in(told)
    assert {"momentum", "temperature", "seed"} <= found
    assert not {"batch_size", "partition"} & found


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_document_law_arguments_and_source(name):
    sampler = getattr(mh, name)
    text = inspect.getdoc(sampler)
    for part in ("Example:", "Reference:"):
        assert part in text
    arguments = set(inspect.signature(sampler.__init__).parameters)
    assert arguments - {"self", "options"} <= arguments_in(text)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_guards_that_the_pages_name_exist():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in tests, f"{page.name}: {name}"


def api_directives():
    """What the API pages show, by the name that a user imports."""
    text = "".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    return set(shown) | set(re.findall(r"\{#(keras_mhmcmc\S+)\}", text))


def test_every_public_name_has_a_place_in_the_api_pages():
    """`make docs` checks the same in the built pages."""
    shown = api_directives()
    for name in mh.__all__:
        assert f"keras_mhmcmc.{name}" in shown
    for name in mh.kernels.__all__:
        assert f"keras_mhmcmc.kernels.{name}" in shown


def test_what_the_api_pages_show_exists():
    for name in api_directives():
        parts = name.split(".")
        value = mh
        for part in parts[1:-1]:
            value = importlib.import_module(f"{value.__name__}.{part}")
        assert hasattr(value, parts[-1]), name


def needs_loss(name):
    parameters = inspect.signature(getattr(mh, name)).parameters
    arguments = {"train_size": 10, "batch_size": 5}
    arguments = {k: v for k, v in arguments.items() if k in parameters}
    if "partition" in parameters:
        arguments["partition"] = mh.EnergyPartition(0.0, 1.0, 5)
    sampler = getattr(mh, name)(0.1, **arguments)
    return sampler.algorithm.traits.uses_energy


def test_every_sampler_is_in_the_table_of_samplers():
    rows = (ROOT / "docs/choosing.md").read_text().split("## All optimizers")[1]
    rows = rows.split("## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)
    assert sorted(named) == SAMPLERS
    for name, answer in re.findall(r"^\| `(\w+)` \|[^|]+\| ([^|]+) \|", rows, re.M):
        sampler = getattr(mh, name)
        if "likelihood" in inspect.signature(sampler).parameters:
            assert answer == "in regressions"
        else:
            assert answer == ("yes" if needs_loss(name) else "no")


def test_every_page_is_in_the_navigation():
    nav = re.findall(r"[:-] (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    docs = ROOT / "docs"
    pages = sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    assert sorted(nav) == pages
