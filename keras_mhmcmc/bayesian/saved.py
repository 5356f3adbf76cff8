"""Finished parts of a `BayesianEnsemble.fit` in a folder: a killed one goes on."""

import hashlib
import json
import os
import re
from typing import Any

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc.posterior import files

_RUN = "fit.json"


class Saved:
    """A value for each part of a fit, each in a file of its own.

    Args:
        directory: folder, which is made. None: nothing is saved.
        run: what must be the same when the fit goes on: a name, and a text or arrays.

    Raises:
        ValueError: the folder has the parts of another fit.
    """

    def __init__(self, directory: str | None, run: dict[str, Any]) -> None:
        self._directory = directory
        if directory is None:
            return
        os.makedirs(directory, exist_ok=True)
        found = {name: _digest(value) for name, value in run.items()}
        path = os.path.join(directory, _RUN)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                before = json.load(file)
            other = [name for name in found if found[name] != before.get(name)]
            if other:
                raise ValueError(
                    "Argument `directory` must be empty, or hold the parts of a fit "
                    "with the same arguments and data. Choose another folder. "
                    f"Received: directory={directory!r}, which differs in "
                    f"{', '.join(other)}"
                )
        files.write_whole(path, json.dumps(found, indent=1).encode())

    def get(self, part: str) -> Any:
        """Return the value of a part, or None."""
        path = self._path(part)
        if path is None or not os.path.exists(path):
            return None
        arrays = files.read(path, {}, "Remove it, and `fit` runs this part again.")

        def filled(entry: dict[str, Any]) -> Any:
            return arrays[entry["array"]] if set(entry) == {"array"} else entry

        return json.loads(arrays.pop(0).tobytes(), object_hook=filled)

    def put(self, part: str, value: Any) -> None:
        """Keep a value: dicts and lists of arrays, numbers and texts."""
        path = self._path(part)
        if path is None:
            return
        arrays: dict[int, Array] = {}

        def place_of(array: Array) -> dict[str, int]:
            arrays[len(arrays) + 1] = array
            return {"array": len(arrays)}

        text = json.dumps(value, default=place_of)
        arrays[0] = np.frombuffer(text.encode(), "uint8")
        files.write(path, arrays, {})

    def remove(self, part: str) -> None:
        """Forget a part."""
        path = self._path(part)
        if path is not None and os.path.exists(path):
            os.remove(path)

    def _path(self, part: str) -> str | None:
        if self._directory is None:
            return None
        return os.path.join(self._directory, re.sub(r"[^\w.=]+", "-", part) + ".h5")


def _digest(value: Any) -> str:
    if isinstance(value, str):
        text = re.sub(r'_\d+"', '"', value)  # Keras counts the layers of a process
        return hashlib.sha256(text.encode()).hexdigest()
    digest = hashlib.sha256()
    for array in value:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
