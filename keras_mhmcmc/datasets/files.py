"""Archives of arrays, `.npz` files, with errors that name the remedy."""

import os
import zipfile
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array

KEYS = ("x_train", "y_train", "x_test", "y_test")


class Archive(NamedTuple):
    """An `.npz` file."""

    path: str
    wanted: str  # what errors say that `data_dir` must be

    def names(self) -> list[str]:
        """Return the names of the arrays in the file."""
        with np.load(self.path, allow_pickle=False) as file:
            return list(file.files)

    def read(self, *keys: str) -> list[Array]:
        """Return the arrays of these names, or raise a `ValueError`."""
        with np.load(self.path, allow_pickle=False) as file:
            missing = [key for key in keys if key not in file.files]
            if missing:
                raise ValueError(
                    f"Argument `data_dir` must be {self.wanted}. Received: "
                    f"{self.path!r}, which lacks {', '.join(missing)} and holds "
                    f"{', '.join(file.files)}"
                )
            return [file[key] for key in keys]


def find(data_dir: Any, names: Sequence[str], contents: str, remedy: str) -> Archive:
    """Return the first file of `names` that a folder has.

    Args:
        data_dir: path of the folder. Anything else is refused.
        names: names of files.
        contents: what the file holds, for errors.
        remedy: what to do if the folder has none of the files, a sentence for errors.
    """
    wanted = f"a folder with {' or '.join(names)}, which holds {contents}"
    _validate.instance(
        "data_dir", data_dir, (str, os.PathLike), f"{wanted}. {remedy}".rstrip(".")
    )
    paths = [os.path.join(os.fspath(data_dir), name) for name in names]
    found = [path for path in paths if os.path.isfile(path)]
    if not found:
        raise ValueError(
            f"Argument `data_dir` must be {wanted}. {remedy} "
            f"Received: no such file in {_validate.shown(os.fspath(data_dir))}"
        )
    if not zipfile.is_zipfile(found[0]):
        raise ValueError(
            f"Argument `data_dir` must be {wanted}. Write the file with "
            f"`numpy.savez_compressed`. Received: {found[0]!r}, not an .npz file"
        )
    return Archive(found[0], wanted)
