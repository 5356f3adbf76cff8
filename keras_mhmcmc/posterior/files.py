"""The files of samples: numbered arrays in HDF5, and the lock of their folder."""

import contextlib
import io
import os
from collections.abc import Mapping

import h5py
import numpy as np

from keras_mhmcmc._types import Array

try:
    import fcntl
except ImportError:  # Windows cannot lock a folder: there every process is let in
    fcntl = None  # type: ignore[assignment]

BASE = "base.h5"
UNFINISHED = "unfinished-"


def write(
    path: str, arrays: Mapping[int, Array], attributes: Mapping[str, int]
) -> None:
    """Write numbered arrays to an HDF5 file, which replaces `path` when complete."""
    # To memory first: HDF5 reports a full disk only when it closes its file.
    content = io.BytesIO()
    # From this format on, HDF5 has checksums of all but the arrays themselves.
    with h5py.File(content, "w", libver="v110") as file:
        file.attrs.update(attributes)
        for index, array in arrays.items():
            # HDF5 has no bfloat16. The file has its bits and the name of the type.
            bits = array.view("uint16") if array.dtype.kind == "V" else array
            # A checksum needs an axis.
            dataset = file.create_dataset(
                str(index), data=np.atleast_1d(bits), fletcher32=array.size > 0
            )
            dataset.attrs.update({"dtype": array.dtype.name, "axes": array.ndim})
    write_whole(path, content.getvalue())


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
            "or choose another directory, and continue from a checkpoint of the model."
        ) from error


def read(path: str, attributes: Mapping[str, int], remedy: str) -> dict[int, Array]:
    """Return the numbered arrays of a file with these attributes, or raise."""
    try:
        # A link could show any file of this machine, in a folder from somebody else.
        if os.path.islink(path):
            raise ValueError(f"it is a link to {os.path.realpath(path)!r}")
        with open(path, "rb") as raw, h5py.File(raw, "r") as file:
            for name, value in attributes.items():
                if str(file.attrs.get(name)) != str(value):
                    raise ValueError(f"its {name} is not {value}, as in the manifest")
            return {int(name): _array(file, name) for name in file}
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The file {path!r} cannot be read: {error}. {remedy}"
        ) from error


def _array(file: h5py.File, name: str) -> Array:
    """Return an array of the file itself. One that another file holds is refused."""
    is_link = not isinstance(file.get(name, getlink=True), h5py.HardLink)
    dataset = None if is_link else file[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
        raise ValueError(f"{name!r} in it is not an array of its own")
    values = dataset[()].view(np.dtype(dataset.attrs["dtype"]))
    return values.reshape(()) if dataset.attrs.get("axes") == 0 else values


# Of each folder that this process has locked: who may write, and a descriptor.
_LOCKED: dict[str, tuple[object, int | None]] = {}


def lock(folder: str, owner: object) -> None:
    """Let `owner` write to a folder, or raise if another process writes there.

    In one process the last owner may write: its `fit` may follow an interrupted one.
    """
    key = os.path.realpath(folder)
    _, descriptor = _LOCKED.get(key, (None, None))
    if fcntl is not None and descriptor is None:
        descriptor = os.open(key, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ValueError(
                "Argument `directory` must not be in use, but another process writes "
                "samples there. Wait until it ends, or choose another directory. "
                f"Received: directory={folder!r}"
            ) from error
    _LOCKED[key] = owner, descriptor


def check_owner(folder: str, owner: object) -> None:
    if _LOCKED.get(os.path.realpath(folder), (owner,))[0] is not owner:
        raise ValueError(
            "Argument `directory` must be that of one `mh.PosteriorSamples` at a time, "
            "but a second one writes there as well. Give each its own directory. "
            f"Received: directory={folder!r}"
        )


def unlock(folder: str, owner: object) -> None:
    key = os.path.realpath(folder)
    if _LOCKED.get(key, (None,))[0] is owner:
        _, descriptor = _LOCKED.pop(key)
        if descriptor is not None:
            os.close(descriptor)
