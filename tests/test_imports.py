"""What an import of the package loads, in fresh interpreters."""

import os
import subprocess
import sys

import keras
import pytest

from tests.support.package_files import FRAMEWORKS
from tests.support.package_files import PACKAGE
from tests.support.package_files import files
from tests.support.package_files import frameworks_of

HEAVY = {"matplotlib", "sklearn", "arviz", "pandas", "tensorflow_datasets", "scipy"}
HEAVY |= {"art"}


def start_import(statement):
    """A process that imports in a fresh interpreter and prints what was loaded."""
    code = (
        f"{statement}; import sys; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_importing_the_package_loads_nothing_that_keras_does_not_load():
    processes = [start_import(f"import {name}") for name in ("keras", "keras_mhmcmc")]
    outputs = [process.communicate(timeout=120) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    alone, together = (set(output.split()) for output, _ in outputs)
    assert "keras_mhmcmc" in together
    assert "keras_mhmcmc" not in alone
    assert (together - alone) & (FRAMEWORKS | HEAVY) == set()


# Imports each module in a process of its own that has Keras and nothing of this
# package, not even its `__init__`, which would import the rooms in a lucky order.
IMPORT_EACH = """
import importlib, os, sys, types, keras
package = types.ModuleType("keras_mhmcmc")
package.__path__ = [sys.argv[1]]
sys.modules["keras_mhmcmc"] = package
for name in sys.argv[2:]:
    if os.fork() == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(name, repr(error), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_each_module_can_be_imported_first():
    """One of each folder: a folder's `__init__` comes first, whatever is imported."""
    running = keras.backend.backend()
    names = {}
    for path in files():
        if path != "__init__.py" and frameworks_of(path) <= {running, "jaxlib"}:
            name = path.removesuffix(".py").replace("/", ".")
            name = "keras_mhmcmc." + name.removesuffix(".__init__")
            names.setdefault(os.path.dirname(path) or name, name)
    command = [sys.executable, "-c", IMPORT_EACH, str(PACKAGE), *names.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and len(names) > 20
