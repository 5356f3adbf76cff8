"""The files of the package, and the frameworks that each may import."""

import ast
import functools
from pathlib import Path

import keras_mhmcmc

PACKAGE = Path(keras_mhmcmc.__file__).parent
FRAMEWORKS = {"jax", "jaxlib", "tensorflow", "torch"}


def files():
    """Paths of the package's files, relative to it."""
    return sorted(
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")
    )


@functools.cache
def parse(path):
    """The syntax tree of a file."""
    return ast.parse((PACKAGE / path).read_text())


def frameworks_of(path):
    """The frameworks that a file may import: that of its folder in `_backend`."""
    room, *folders = path.split("/")[:-1] or [""]
    if room != "_backend":
        return set()
    return {"jax", "jaxlib"} if folders == ["jax"] else set(folders)
