"""The layout of the package: who imports what, read from the source."""

import ast
import importlib
import sys

import keras
import pytest

from tests.support.package_files import FRAMEWORKS
from tests.support.package_files import files
from tests.support.package_files import frameworks_of
from tests.support.package_files import parse

HEAVY = {"matplotlib", "sklearn", "arviz", "pandas", "tensorflow_datasets", "scipy"}
HEAVY |= {"art"}

# The rooms of the package, the lowest first. A file imports from rooms below its own,
# and from its siblings.
ROOMS = [
    "_version",
    "_types",
    "_names",
    "_validate",
    "_data",
    "_inputs",
    "_serialize",
    "_warn",
    "_layer_calls",
    "_table",
    "_backend",
    "_stored_model",
    "_laws",
    "schedules",
    "losses",
    "bounds",
    "targets",
    "diagnostics",
    "samplers/parts/tensors",
    "samplers/base",
    "samplers/parts",
    "priors",
    "proposals",
    "partition",
    "expansions",
    "fit",
    "samplers",
    "kernels",
    "sampling",
    "parallel",
    "tuning",
    "ensemble",
    "barker_chain",
    "posterior",
    "evaluation",
    "baselines",
    "bayesian",
    "adversarial",
    "datasets",
    "plots",
    "sklearn",
]
# Other packages that are installed with keras_mhmcmc.
AT_THE_TOP = {"posterior": {"h5py"}, "parallel": {"h5py"}, "sklearn": {"sklearn"}}
# Other packages, which a function may import where it needs them.
INSIDE_FUNCTIONS = {
    "_laws": {"scipy"},
    "diagnostics": {"arviz"},
    "_table": {"pandas"},
    "evaluation": {"scipy"},
    "adversarial": {"art", "scipy"},
    "plots": {"arviz", "matplotlib"},
    "datasets": {"PIL", "sklearn", "tensorflow_datasets"},
}
MAY_ASK_FOR_THE_BACKEND = {"_backend/__init__.py", "_backend/keras_internals.py"}


def module_of(path):
    """The row of the table that a file or a part of a dotted name belongs to."""
    parts = path.removesuffix(".py").split("/")
    heads = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((head for head in heads if head in ROOMS), parts[0])


def place_of(node):
    """Where the imports of a node's body stand, if not at the top of the module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return "function"
    is_if = isinstance(node, ast.If)
    return "types" if is_if and getattr(node.test, "id", "") == "TYPE_CHECKING" else ""


def imports(tree, path="x.py"):
    """(dotted name, "top", "function" or "types") of every import."""
    places = {
        id(node): place_of(parent)
        for parent in ast.walk(tree)
        if place_of(parent)
        for node in ast.walk(parent)
    }
    for node in ast.walk(tree):
        place = places.get(id(node), "top")
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, place
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                above = ["keras_mhmcmc", *path.split("/")[: -node.level]]
                start = ".".join([*above, start]).rstrip(".")
            for alias in node.names:
                yield f"{start}.{alias.name}", place


def violations(tree, path):
    """What the source of `path` does that its row does not allow."""
    row = module_of(path)
    found = []
    for name, place in imports(tree, path):
        top, _, rest = name.partition(".")
        if top in FRAMEWORKS and top not in frameworks_of(path):
            found.append(f"imports the framework {name}")
        elif top == "keras_mhmcmc":
            target = module_of(rest.replace(".", "/"))
            is_known = target in ROOMS
            if not is_known or ROOMS.index(target) > ROOMS.index(row):
                found.append(f"imports {name}")
        elif top in AT_THE_TOP.get(row, ()) or (place == "types" and top in HEAVY):
            continue
        elif top not in {"keras", "numpy", *FRAMEWORKS, *sys.stdlib_module_names}:
            if place == "top":
                found.append(f"imports {name} at its top")
            if top not in INSIDE_FUNCTIONS.get(row, ()):
                found.append(f"imports {name}")
    if path not in MAY_ASK_FOR_THE_BACKEND:
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            if getattr(called, "attr", getattr(called, "id", "")) == "backend":
                found.append("asks which backend runs")
    is_named = path == "samplers/named.py"  # tells Keras the names
    if path.startswith("samplers/") and not is_named:
        found += algorithm_violations(tree, path)
    return found


OPTIMIZERS = {"Sampler", "ContourOptimizer", "SpikeSlabOptimizer"}
OPTIMIZERS |= {"MetropolisSampler"}


def is_optimizer(node):
    """Whether a part of a sampler's file is its optimizer, or a function for it."""
    names = {getattr(n, "id", "") for n in ast.walk(node)}
    if isinstance(node, ast.ClassDef):
        return {ast.unparse(x) for x in node.bases} & OPTIMIZERS != set()
    return isinstance(node, ast.FunctionDef) and "keras" in names


def algorithm_violations(tree, path):
    """What the mathematics may not use: frameworks, variables, private randomness."""
    found = []
    has_optimizer = any(is_optimizer(node) for node in tree.body)
    for name, _ in imports(tree, path):
        top, _, rest = name.partition(".")
        if top == "keras_mhmcmc" and rest.split(".")[0] == "_backend":
            if path != "samplers/parts/tensors.py" and not has_optimizer:
                found.append(f"imports {name}, which only tensors.py may")
        elif (
            top == "keras"
            and rest != "ops"
            and not has_optimizer
            or top in {"os", "random", "secrets"}
        ):
            found.append(f"imports {name}")
    for node in tree.body:
        inner = [] if is_optimizer(node) else ast.walk(node)
        for part in inner:
            name = getattr(part, "id", getattr(part, "attr", ""))
            is_backend = name == "_backend" and path != "samplers/parts/tensors.py"
            if isinstance(name, str) and ("variable" in name.lower() or is_backend):
                found.append(f"has the name {name}")
    return found


@pytest.mark.parametrize("path", [path for path in files() if path != "__init__.py"])
def test_a_file_imports_only_what_its_row_allows(path):
    assert module_of(path) in ROOMS, "give the new module a place in ROOMS"
    assert violations(parse(path), path) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("fit/state.py", "import torch"),
        ("_backend/errors.py", "import torch"),
        ("_backend/__init__.py", "import jax"),
        ("_backend/torch/chains.py", "import jax"),
        ("_backend/plain.py", "import jax"),
        ("_backend/torch/core.py", "import keras\nkeras.backend.backend()"),
        ("samplers/parts/tensors.py", "import jax.numpy as jnp"),
        ("posterior/store.py", "def f():\n    from tensorflow import math"),
        ("fit/state.py", "import matplotlib.pyplot"),
        ("fit/state.py", "def f():\n    import matplotlib"),
        ("plots/style.py", "import matplotlib"),
        ("plots/style.py", "if matplotlib:\n    import matplotlib"),
        ("fit/state.py", "if TYPE_CHECKING:\n    import torch"),
        ("losses.py", "if TYPE_CHECKING:\n    from keras_mhmcmc import ensemble"),
        ("datasets.py", "from sklearn import datasets"),
        ("fit/state.py", "import keras\nkeras.backend.backend()"),
        (
            "ensemble/ensemble.py",
            "import keras\nif keras.config.backend() == 'jax': pass",
        ),
        ("ensemble/ensemble.py", "from keras.config import backend\nbackend()"),
        ("samplers/sgld.py", "from keras_mhmcmc import _backend"),
        ("samplers/sgld.py", "from keras_mhmcmc._backend import draw"),
        ("samplers/base.py", "from keras_mhmcmc.fit.sampler import Sampler"),
        ("samplers/parts/x.py", "from keras_mhmcmc.samplers.sgld import sgld"),
        ("samplers/sgld.py", "import keras"),
        ("samplers/sgld.py", "from keras import ops, Variable"),
        ("samplers/sgld.py", "import os"),
        ("samplers/sgld.py", "x = keras.Variable(1)"),
        ("samplers/sgld.py", "self.add_variable(1)"),
        ("priors.py", "from keras_mhmcmc import fit"),
        ("proposals.py", "from keras_mhmcmc.fit.sampler import Sampler"),
        ("fit/state.py", "from .. import posterior"),
        ("fit/state.py", "from keras_mhmcmc import ensemble"),
        ("ensemble/ensemble.py", "from keras_mhmcmc import posterior"),
        ("losses.py", "from keras_mhmcmc import ensemble"),
        ("_validate.py", "from keras_mhmcmc import _backend"),
        ("posterior/store.py", "import keras_mhmcmc as mh"),
        ("posterior/store.py", "from keras_mhmcmc import SGLD"),
    ],
)
def test_the_check_of_imports_finds_what_is_not_allowed(path, source):
    assert violations(ast.parse(source), path) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("_backend/__init__.py", "import keras\nkeras.backend.backend()"),
        ("_backend/torch/core.py", "import torch"),
        ("_backend/jax/chains.py", "import jax.numpy as jnp"),
        ("samplers/parts/tensors.py", "from keras_mhmcmc import _backend"),
        (
            "samplers/parts/proposals.py",
            "from keras_mhmcmc.samplers.parts import tensors\nimport math",
        ),
        ("samplers/parts/proposals.py", "from . import tensors"),
        ("fit/state.py", "from .sampler import Sampler\nfrom .. import priors"),
        ("samplers/sgld.py", "from keras_mhmcmc.fit.sampler import Sampler"),
        ("posterior/store.py", "from keras_mhmcmc.ensemble import Ensemble"),
        ("plots/style.py", "def f():\n    import matplotlib.pyplot as plt"),
        ("evaluation/evaluate.py", "if TYPE_CHECKING:\n    import pandas"),
    ],
)
def test_the_check_of_imports_lets_pass_what_is_allowed(path, source):
    assert violations(ast.parse(source), path) == []


INITS = [path for path in files() if path.endswith("__init__.py")]
# Others have no names of their own.
EMPTY = ("_backend", "fit", "samplers")


def all_of(tree):
    """The names in `__all__`, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    return None


# With it, `dir()` and tab completion offer public names only.
DIR = "def __dir__() -> list[str]:\n    return __all__"


@pytest.mark.parametrize("path", INITS)
def test_an_init_only_imports(path):
    body = parse(path).body
    assert isinstance(body[0], ast.Expr) and isinstance(body[0].value.value, str)
    for node in body[1:]:
        is_all = isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
        is_choice = path == "_backend/__init__.py" and isinstance(node, ast.If)
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_dir = ast.unparse(node) == DIR
        assert is_import or is_all or is_choice or is_dir, ast.unparse(node)


@pytest.mark.parametrize(
    "path",
    [path for path in INITS if path.split("/")[0] not in EMPTY],
)
def test_an_init_lists_exactly_what_it_imports(path):
    tree = parse(path)
    imported = [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.name != "__version__"
    ]
    listed = all_of(tree)
    assert sorted(listed) == listed
    assert sorted(imported) == listed
    name = ".".join(["keras_mhmcmc", *path.split("/")[:-1]])
    module = importlib.import_module(name)
    assert all(hasattr(module, public) for public in listed)


def test_every_public_file_is_reached_from_the_package():
    for path in files():
        name = module_of(path)
        if path.count("/") == 0 and not name.startswith("_"):
            importlib.import_module(f"keras_mhmcmc.{name}")


def test_the_functions_of_an_eager_step_are_those_of_keras():
    names, _ = names_of("_backend/torch/ops.py")
    assert len(names) > 15 and all(callable(getattr(keras.ops, name)) for name in names)


# In the folder of each framework in `_backend`.
PARTS = ("chains", "core", "random")


def names_of(path):
    """The public names that a file defines, and those that it imports."""
    defined, imported = set(), set()
    for node in parse(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets}
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name for alias in node.names}
    return {name for name in defined if not name.startswith("_")}, imported


def test_the_three_backends_have_the_same_names():
    """A folder has what `plain.py` lacks, and may replace what it has."""
    common, _ = names_of("_backend/plain.py")
    listed = {}
    for framework in ("jax", "tensorflow", "torch"):
        listed[framework] = set(common)
        for part in PARTS:
            path = f"_backend/{framework}/{part}.py"
            names = set(all_of(parse(path)))
            defined, imported = names_of(path)
            assert names <= defined | imported
            listed[framework] |= names
    assert listed["jax"] == listed["tensorflow"] == listed["torch"]
    assert len(listed["jax"]) > 50


def test_the_package_uses_each_name_of_the_backend():
    used = {
        node.attr
        for path in files()
        if not path.startswith("_backend/")
        for node in ast.walk(parse(path))
        if ast.unparse(node).startswith("_backend.") and isinstance(node, ast.Attribute)
    }
    names, _ = names_of("_backend/plain.py")
    for part in PARTS:
        names |= set(all_of(parse(f"_backend/torch/{part}.py")))
    assert names <= used


def test_only_pytorch_has_files_of_its_own():
    own = {
        path.removeprefix("_backend/torch/").removesuffix(".py")
        for path in files()
        if path.startswith("_backend/torch/")
    }
    assert own >= {"__init__", *PARTS}
    for framework in ("jax", "tensorflow"):
        folder = f"_backend/{framework}/"
        there = {path.removeprefix(folder) for path in files() if folder in path}
        assert there == {f"{name}.py" for name in ("__init__", *PARTS)}
