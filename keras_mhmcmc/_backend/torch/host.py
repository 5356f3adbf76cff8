"""PyTorch: scalars that can be read, and memory that may be overwritten."""

import contextlib
import threading


class _Tracing(threading.local):
    """Whether this thread traces a step, whose values a compiled program changes."""

    is_on = False


_TRACING = _Tracing()


@contextlib.contextmanager
def tracing():
    """Trace a step in this scope: no scalar is known."""
    _TRACING.is_on = True
    try:
        yield
    finally:
        _TRACING.is_on = False


def is_tracing():
    """Return whether a step is traced."""
    return _TRACING.is_on


def is_known(condition):
    """Return whether a scalar is on the host, where reading it stops no queue."""
    return condition.device.type == "cpu" and not _TRACING.is_on


class Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""
