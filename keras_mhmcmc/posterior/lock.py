"""A lock on a folder: one process at a time writes samples there."""

import os
from dataclasses import dataclass

from keras_mhmcmc._types import PathLike

try:
    import fcntl
except ImportError:  # Windows cannot lock a folder: there every writer is let in
    fcntl = None  # type: ignore[assignment]


@dataclass
class _Held:
    """A folder that this process has locked."""

    descriptor: int
    holders: int = 0  # `FolderLock`s that need it
    newest: "FolderLock | None" = None  # the one that may write


_HELD: dict[str, _Held] = {}  # by the folder's real path


class FolderLock:
    """The right to write to a folder, until `release` or the end of the process.

    The operating system drops the lock of a process that dies. Several `FolderLock`s of
    one process may hold the same folder, as when a `fit` follows one that was
    interrupted. The one that took it last may write.
    """

    def __init__(self, folder: PathLike) -> None:
        self._folder = folder
        self._key: str | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            ValueError: another process has it.
        """
        held = self._held()
        if held is not None:
            held.newest = self
        if held is not None or fcntl is None:
            return
        key = os.path.realpath(self._folder)
        if key not in _HELD:
            descriptor = os.open(key, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise ValueError(
                    "Argument `directory` must not be in use, but another process "
                    "writes samples there. Wait until it ends, or choose another "
                    "directory. "
                    f"Received: directory={self._folder!r}"
                ) from error
            _HELD[key] = _Held(descriptor)
        _HELD[key].holders += 1
        _HELD[key].newest = self
        self._key = key

    def check(self) -> None:
        """Raise a `ValueError` if another `FolderLock` took the folder after this."""
        held = self._held()
        if held is not None and held.newest is not self:
            raise ValueError(
                "Argument `directory` must be that of one `mh.PosteriorSamples` at a "
                "time, but a second one writes there as well. Give each its own "
                f"directory. Received: directory={self._folder!r}"
            )

    def release(self) -> None:
        """Give the lock back, if this object holds it."""
        held = self._held()
        if held is not None and self._key is not None:
            held.holders -= 1
            if held.holders == 0:
                del _HELD[self._key]
                os.close(held.descriptor)
        self._key = None

    def _held(self) -> _Held | None:
        """Return the folder, if this process has it and this object holds it.

        A copy of this object from another process holds nothing.
        """
        return None if self._key is None else _HELD.get(self._key)
