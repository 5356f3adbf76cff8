"""The examples as modules, for the tests that run them."""

import importlib.util
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    """The module of an example, imported from its file."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))  # as Python does for a script
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
