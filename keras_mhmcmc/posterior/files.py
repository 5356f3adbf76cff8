"""The files of samples: numbered arrays in HDF5, with a checksum."""

import contextlib
import hashlib
import io
import os
from collections.abc import Mapping

import h5py
import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc.posterior import manifest as sample_manifest

BASE = "base.h5"
UNFINISHED = "unfinished-"


def write(path: str, arrays: Mapping[int, Array], attributes: Mapping[str, int]) -> str:
    """Write numbered arrays to an HDF5 file, which replaces `path` when complete.

    Returns:
        The SHA-256 of the file, in hexadecimal.
    """
    # To memory first: HDF5 reports a full disk only when it closes its file.
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs.update(attributes)
        for index, array in arrays.items():
            # HDF5 has no bfloat16. The file has its bits and the name of the type.
            bits = array.view("uint16") if array.dtype.kind == "V" else array
            dataset = file.create_dataset(str(index), data=bits)
            dataset.attrs["dtype"] = array.dtype.name
    write_whole(path, content.getvalue())
    return hashlib.sha256(content.getvalue()).hexdigest()


def write_whole(path: str, content: bytes) -> None:
    """Write bytes to a file, which replaces `path` when it is on the disk."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"{UNFINISHED}{name}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise OSError(
            f"The file {path!r} could not be written: {error}. Free space on the disk, "
            "or choose another directory. All earlier samples are complete: load the "
            "model from a checkpoint, and `fit` continues after them."
        ) from error


def read(
    path: str, attributes: Mapping[str, int], sha256: str | None
) -> dict[int, Array]:
    """Return the numbered arrays of a file.

    Args:
        path: of the file.
        attributes: that the file must have.
        sha256: of the whole file, in hexadecimal. None: unknown.

    Raises:
        ValueError: the file is missing, has other bytes than were written, or is none
            of ours.
    """
    remedy = (
        "Restore it from a copy. To leave this sample out, remove its entry from "
        f"{sample_manifest.NAME!r}."
    )
    if os.path.basename(path) == BASE:
        remedy = (
            "Restore it from a copy: all samples need it. If there are no samples, "
            "remove it."
        )
    if not os.path.exists(path):
        raise ValueError(f"The sample file {path!r} is missing. {remedy}")
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ValueError(
            f"The sample file {path!r} cannot be read: {error}. {remedy}"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise ValueError(
            f"The sample file {path!r} must have the bytes that were written, but its "
            f"checksum is not that of the manifest. {remedy} Received: a file with the "
            f"SHA-256 {found}, and {sha256} in the manifest"
        )
    # From memory: these are the bytes that were checked.
    return _parsed(path, content, attributes, remedy)


def _parsed(
    path: str, content: bytes, attributes: Mapping[str, int], remedy: str
) -> dict[int, Array]:
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            found = {name: str(file.attrs.get(name)) for name in attributes}
            arrays = {int(name): _array(file, name) for name in file}
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The sample file {path!r} cannot be read: {error}. {remedy}"
        ) from error
    if found != {name: str(value) for name, value in attributes.items()}:
        raise ValueError(
            f"The sample file {path!r} must have the attributes {attributes}, as in "
            f"the manifest. {remedy} Received: {found}"
        )
    return arrays


def _array(file: h5py.File, name: str) -> Array:
    """Return an array of the file itself. One that another file holds is refused."""
    is_link = not isinstance(file.get(name, getlink=True), h5py.HardLink)
    dataset = None if is_link else file[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
        raise ValueError(f"{name!r} in it is not an array of its own")
    return dataset[()].view(np.dtype(dataset.attrs["dtype"]))
