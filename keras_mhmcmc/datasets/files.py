"""Archives of arrays, `.npz` files, with errors that say what to do."""

import os
import zipfile
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate

KEYS = ("x_train", "y_train", "x_test", "y_test")


class Archive(NamedTuple):
    """An `.npz` file, and the words for what `data_dir` must be."""

    path: str
    wanted: str

    def names(self):
        """Names of the arrays in the file."""
        with np.load(self.path, allow_pickle=False) as file:
            return file.files

    def read(self, *keys):
        """The arrays of these names, or a `ValueError` that lists those it lacks."""
        with np.load(self.path, allow_pickle=False) as file:
            missing = [key for key in keys if key not in file.files]
            if missing:
                raise ValueError(
                    f"Argument `data_dir` must be {self.wanted}. Received: "
                    f"{self.path!r}, which lacks {', '.join(missing)} and holds "
                    f"{', '.join(file.files)}"
                )
            return [file[key] for key in keys]


def find(data_dir, names, contents, remedy):
    """The first of the files `names` that a folder has, as an `Archive`.

    Args:
        data_dir: path of the folder.
        names: names of files.
        contents: words for what they hold.
        remedy: a sentence for who has none of them.
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
            f"`numpy.savez_compressed`. Received: {found[0]!r}, which is no .npz file"
        )
    return Archive(found[0], wanted)
