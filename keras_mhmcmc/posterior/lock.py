"""One writer at a time: a lock on a folder that dies with its process."""

import os

try:
    import fcntl
except ImportError:  # Windows, where a folder cannot be locked: nothing is refused
    fcntl = None

# Folders that this process holds: a descriptor for each, and how many count on it.
_HELD = {}


class FolderLock:
    """The right to write to a folder, until `release` or the end of the process.

    The system drops the lock of a process that dies, however it dies. Within a process
    it may be taken several times, as by a `fit` after one that was interrupted.
    """

    def __init__(self, folder):
        self._folder = folder
        self._key = None

    def acquire(self):
        """Takes the lock.

        Raises:
            ValueError: another process has it.
        """
        if self._key is not None or fcntl is None:
            return
        key = os.path.realpath(self._folder)
        if key not in _HELD:
            descriptor = os.open(key, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise ValueError(
                    "Argument `directory` must not be in use: another process writes "
                    "samples there. Wait for it, or choose another directory. "
                    f"Received: directory={self._folder!r}"
                ) from error
            _HELD[key] = [descriptor, 0]
        _HELD[key][1] += 1
        self._key = key

    def release(self):
        """Gives the lock back."""
        if self._key is None:
            return
        held = _HELD[self._key]
        held[1] -= 1
        if held[1] == 0:
            del _HELD[self._key]
            os.close(held[0])
        self._key = None
